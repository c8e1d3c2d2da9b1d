"""The expression tree that both front ends make and the compiler reads.

Operators and functions are all `FunctionCall`s, by one canonical name each (`and`, `<=`, `+`, `like`,
`concat`, `caql.=`). All of them, with their meaning, are in `kiwi_gw.query.functions`. Trees are equal if
they mean the same, wherever they stood in their texts: equal queries share the bytes that are made for them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

Constant = None | bool | int | float | str


@dataclass(frozen=True, slots=True)
class Literal:
    """Hold a constant. `1` and `1.0` and `true` are three different ones: see `key`."""

    value: Constant
    position: int = field(default=0, compare=False)

    @property
    def key(self) -> str:
        return repr(self.value)


@dataclass(frozen=True, slots=True)
class Path:
    """Hold where a value of the record is: a root (`value`, `data`), then members and array items (from
    0)."""

    root: str
    steps: tuple[str | int, ...] = ()
    position: int = field(default=0, compare=False)

    @property
    def key(self) -> str:
        return f"{self.root}{list(self.steps)!r}"


@dataclass(frozen=True, slots=True)
class FunctionCall:
    """Apply an operator or a function. `case` has pairs of condition and value, then the value otherwise."""

    name: str
    arguments: tuple[Node, ...]
    position: int = field(default=0, compare=False)

    @property
    def key(self) -> str:
        return f"{self.name}({','.join(argument.key for argument in self.arguments)})"


@dataclass(frozen=True, slots=True)
class Cast:
    """Cast to another type; NULL where that cannot be. to: Spark's name of it, in capitals (`BIGINT`)."""

    value: Node
    to: str
    position: int = field(default=0, compare=False)

    @property
    def key(self) -> str:
        return f"cast({self.value.key} as {self.to})"


Node = Literal | Path | FunctionCall | Cast


def walk(node: Node) -> Iterator[Node]:
    """Go through the node and everything in it, in the order in which it is evaluated."""
    waiting = [node]
    while waiting:  # without recursion: a deep tree would take the square of its depth
        each = waiting.pop()
        yield each
        if isinstance(each, FunctionCall):
            waiting.extend(reversed(each.arguments))
        elif isinstance(each, Cast):
            waiting.append(each.value)


@dataclass(frozen=True, slots=True)
class Column:
    """Hold one value of a projection. name: where it is in the result, member in member.

    lenient: a value that is missing in the record is left out, and not null. spread: it has no name, and the
    members of its value are in the result; one that another column has, or one before, is not.
    """

    name: tuple[str, ...]
    value: Node
    lenient: bool = False
    spread: bool = False

    @property
    def key(self) -> str:
        signs = f"{'?' if self.lenient else ''}{'*' if self.spread else ''}"
        return f"{list(self.name)!r}={self.value.key}{signs}"


@dataclass(frozen=True, slots=True)
class Query:
    """Describe what a subscription wants of its source. where: which events (None: all). select: what of them
    (None: their value as it is)."""

    where: Node | None = None
    select: tuple[Column, ...] | None = None

    @property
    def key(self) -> str:
        """Return a text that is equal for queries that give the same. It is part of the key of the bytes."""
        where = "" if self.where is None else self.where.key
        select = "*" if self.select is None else ";".join(column.key for column in self.select)
        return f"{select}|{where}"
