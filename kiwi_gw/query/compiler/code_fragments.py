"""Pieces of Python source, and the space in which they run.

Nothing of a query's text gets into source but constants as `repr` writes them: whole and finite numbers,
booleans, and texts in ASCII. Every other constant and every function is in the namespace, under a name that
is made here.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

from kiwi_gw.query.compiler.event_budget import EventBudget
from kiwi_gw.query.functions.base import VARIABLE, Argument
from kiwi_gw.query.limits import MAX_MADE, MAX_READ
from kiwi_gw.query.values import Value
from kiwi_gw.query.values.types import Type

_LONGEST: Final = 200


@dataclass(frozen=True, slots=True)
class CodeFragment:
    """Hold an expression in Python. constant: its value if all records have the same, else VARIABLE."""

    text: str
    type: Type
    constant: Value = VARIABLE
    position: int = 0

    @property
    def is_constant(self) -> bool:
        return self.constant is not VARIABLE

    @property
    def argument(self) -> Argument:
        return Argument(self.type, self.constant, self.position)


class Namespace:
    """Hold the names of one compiled query. made, text, read: those methods of its budget."""

    def __init__(self) -> None:
        self.names: dict[str, object] = {}
        self._by_id: dict[int, str] = {}
        self._count = 0
        self.allowance = EventBudget()
        self.made, self.text = self.allowance.made, self.allowance.text
        self.read = self.allowance.read

    @property
    def budget_resets(self) -> list[str]:
        """Return statements that give an event a budget of its own, if the budget is used."""
        limits = {"left": (MAX_MADE, self.made, self.text), "unread": (MAX_READ, self.read)}
        return [
            f"{self.name_of(self.allowance)}.{name} = {most}"
            for name, (most, *users) in limits.items()
            if any(id(user) in self._by_id for user in users)
        ]

    def fresh_name(self, prefix: str) -> str:
        self._count += 1
        return f"{prefix}{self._count}"

    def name_of(self, thing: object, prefix: str = "g") -> str:
        """Return the name of a thing in the namespace; one for each."""
        name = self._by_id.get(id(thing))
        if name is None:
            name = self._by_id[id(thing)] = self.fresh_name(prefix)
            self.names[name] = thing  # keeps it alive, and so its id
        return name

    def constant(self, value: Value, type_: Type, position: int = 0) -> CodeFragment:
        plain = value is None or type(value) is bool or type(value) is int
        if plain or (type(value) is float and math.isfinite(value)):
            return CodeFragment(f"({value!r})" if _negative(value) else repr(value), type_, value, position)
        if type(value) is str and len(value) <= _LONGEST:
            return CodeFragment(ascii(value), type_, value, position)
        return CodeFragment(self.name_of(value, "c"), type_, value, position)


def _negative(value: Value) -> bool:
    return (type(value) is int or type(value) is float) and repr(value).startswith("-")
