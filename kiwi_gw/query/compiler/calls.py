"""Writes calls of functions as Python source, and holds them to what they may cost."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Final

from kiwi_gw.query.compiler.code_fragments import CodeFragment, Namespace
from kiwi_gw.query.compiler.event_budget import FEW, SHORT, EventBudget
from kiwi_gw.query.errors import QueryError
from kiwi_gw.query.functions.base import Binding, Function
from kiwi_gw.query.functions.cost import LOOKS, FunctionCost, ResultKind, WorkGrowth, capped
from kiwi_gw.query.limits import MAX_FOLDED, MAX_FOLDED_ITEMS, MAX_FOLDED_PATTERN
from kiwi_gw.query.values import RecordError, Value
from kiwi_gw.query.values.implicit_casts import conversion
from kiwi_gw.query.values.types import Type

# Types of which a value may be long, and from which length on it counts; None: that is not known.
_LONG: Final = {"STRING": SHORT, "ARRAY": FEW, "OBJECT": None, "MAP": None, "ANY": None}
_SHORT: Final = frozenset((int, float, bool))


class CallCodegen:
    """Write calls whose arguments are written already."""

    def __init__(self, namespace: Namespace) -> None:
        self.namespace = namespace

    def bind(self, found: Function, codes: list[CodeFragment], position: int) -> Binding:
        """Choose the function for the types of these arguments.

        Raises:
            QueryError: no function takes them; with the position.
        """
        if found.bind is None:
            raise QueryError(f"{found.name} cannot be here", position)
        return found.bind(tuple(code.argument for code in codes))

    def apply(
        self, binding: Binding, codes: list[CodeFragment], position: int, cost: FunctionCost = LOOKS
    ) -> CodeFragment:
        """Write the call, held to what it may cost; a constant where that can be known now."""
        codes = [self.convert(code, want) for code, want in zip(codes, binding.wants, strict=True)]
        if binding.strict and any(code.is_constant and code.constant is None for code in codes):
            return self.namespace.constant(None, binding.result, position)
        if all(code.is_constant for code in codes):
            folded = self._folded(binding, codes, position, cost)
            if folded is not None:
                return folded
        call = self.namespace.name_of(capped(binding.call, cost))
        if not binding.strict:
            text = f"{call}({', '.join(self._read(code.text, code, cost) for code in codes)})"
            return CodeFragment(self._counted(text, cost), binding.result, position=position)
        tests, arguments = [], []
        for code in codes:
            test, argument = self.bind_once(code)
            arguments.append(self._read(argument, code, cost))
            if not code.is_constant:
                tests.append(f"{test} is None")
        text = self._counted(f"{call}({', '.join(arguments)})", cost)
        return CodeFragment(
            f"(None if {' or '.join(tests)} else {text})" if tests else text,
            binding.result,
            position=position,
        )

    def convert(self, code: CodeFragment, wanted: Type | None) -> CodeFragment:
        """Write the implicit cast to a type; None: the value as it is."""
        if wanted is None or code.type == wanted:
            return code
        return self.cast(code, conversion(code.type, wanted), wanted)

    def cast(self, code: CodeFragment, cast: Callable[[Value], Value], wanted: Type) -> CodeFragment:
        """Write the call of `cast`, which makes a value of the type."""
        if code.is_constant:
            with suppress(RecordError):  # every record raises it, and is counted
                return self.namespace.constant(cast(code.constant), wanted, code.position)
        return CodeFragment(f"{self.namespace.name_of(cast)}({code.text})", wanted, position=code.position)

    def bind_once(self, code: CodeFragment) -> tuple[str, str]:
        """Return source that evaluates it first, and a name for its value afterwards."""
        if code.is_constant or code.text.isidentifier():
            return code.text, code.text
        name = self.namespace.fresh_name("t")
        return f"({name} := {code.text})", name

    def _read(self, text: str, code: CodeFragment, cost: FunctionCost) -> str:
        """Write an argument of a call. It is counted if it may be long and the call reads all of it."""
        kind = code.type.kind
        if code.is_constant or cost.work is WorkGrowth.CONSTANT or kind not in _LONG:
            return text
        read = f"{self.namespace.name_of(self.namespace.read)}({text}, {cost.pace})"
        most = _LONG[kind]
        if not text.isidentifier():
            return read
        # NULL has no length, and a call that is not strict takes it.
        measured = f"not {text} or len({text}) < {most}"
        short = measured if most else f"type({text}) in {self.namespace.name_of(_SHORT)}"
        return f"({text} if {short} else {read})"

    def _counted(self, text: str, cost: FunctionCost) -> str:
        """Write the call so that what it makes is counted."""
        if cost.makes is ResultKind.NOTHING:
            return text
        return f"{self.namespace.name_of(self.namespace.made)}({text})"

    def _folded(
        self, binding: Binding, codes: list[CodeFragment], position: int, cost: FunctionCost
    ) -> CodeFragment | None:
        """Evaluate a call of constants. None if that fails, as the records will say why. None, too, if the
        result is too large to be kept: then it is made for every record."""
        values = [code.constant for code in codes]
        looked_at = sum(len(value) for value in values if isinstance(value, str))
        if cost.work is WorkGrowth.PATTERN and looked_at > MAX_FOLDED_PATTERN:
            return None
        try:
            value = EventBudget().made(capped(binding.call, cost)(*values))
        except Exception:  # noqa: BLE001 (every record raises the same, and is counted)
            return None
        return None if _large(value) else self.namespace.constant(value, binding.result, position)


def _large(value: Value) -> bool:
    """Return whether a result for constants is larger than a query keeps."""
    if isinstance(value, list):
        return len(value) > MAX_FOLDED_ITEMS or sum(map(len, filter(_is_text, value))) > MAX_FOLDED
    return isinstance(value, str) and len(value) > MAX_FOLDED


def _is_text(value: Value) -> bool:
    return isinstance(value, str)
