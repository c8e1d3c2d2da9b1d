"""Where the columns of a projection go: members in members."""

from __future__ import annotations

from kiwi_gw.query.compiler.codes import Space
from kiwi_gw.query.compiler.paths import Paths
from kiwi_gw.query.compiler.writing import Writer
from kiwi_gw.query.errors import QueryError
from kiwi_gw.query.tree import Column, Path
from kiwi_gw.query.values.convert import own_digits
from kiwi_gw.query.values.types import FLOAT

Name = tuple[str, ...]


def placed(select: tuple[Column, ...] | None) -> tuple[Column, ...]:
    """The columns, if each has a place of its own.

    Raises:
        QueryError: two have the same name, or one is in the other. A column without a name is the whole
            result, and has to be the only one.
    """
    columns = select or ()
    ends: set[Name] = set()
    groups: set[Name] = set()
    for column in columns:
        name = column.name
        inner = {name[:length] for length in range(len(name))}
        if name in ends or (name in groups) or inner & ends:
            said = ".".join(name) or "the whole result"
            raise QueryError(
                f"two columns are called {said}, or one is inside of the other", column.value.position
            )
        ends.add(name)
        groups |= inner
    return columns


def assignments(
    columns: tuple[Column, ...], writer: Writer, paths: Paths, space: Space, *, weigh: bool
) -> list[str]:
    """Statements that put the value of the projection into `result`."""
    if len(columns) == 1 and not columns[0].name:
        return [f"result = {_value(columns[0], writer, paths, space)[0]}", *_default("result", columns[0])]
    lines: list[str] = []
    names: list[str] = []
    for index, column in enumerate(columns):
        text, _ = _value(column, writer, paths, space)
        names.append(f"v{index}")
        lines.append(f"v{index} = {text}")
    if weigh:
        lines.append(f"weigh({', '.join(names)})")
    lines.append("result = {}")
    groups: dict[Name, str] = {(): "result"}
    # An object of lenient columns alone is there only if one of them is.
    fixed = {column.name[:n] for column in columns if not column.lenient for n in range(len(column.name))}
    for name, column in zip(names, columns, strict=True):
        parent = "result"
        made: list[str] = []
        for length in range(1, len(column.name)):
            group = column.name[:length]
            if group not in groups:
                groups[group] = space.fresh("d")
            key = ascii(group[-1])
            made.append(f"{groups[group]} = {parent}.setdefault({key}, {{}})")
            parent = groups[group]
        put = f"{parent}[{column.name[-1]!a}] = {name}"
        if column.lenient and isinstance(column.value, Path):
            outer = [
                line
                for line, n in zip(made, range(1, len(column.name)), strict=True)
                if column.name[:n] in fixed
            ]
            lines += outer
            inner = "; ".join([*made[len(outer) :], put])
            lines.append(f"if {name} is not MISSING: {inner}")
        else:
            lines += [*made, put]
    return lines


def _value(column: Column, writer: Writer, paths: Paths, space: Space) -> tuple[str, bool]:
    """The source of a column."""
    value = column.value
    if column.lenient and isinstance(value, Path):
        return paths.raw(value.root, value.steps, missing=True), True
    code = writer.value(value)
    if code.type == FLOAT:
        return f"{space.given(own_digits)}({code.text})", False
    return code.text, False


def _default(name: str, column: Column) -> list[str]:
    return [f"if {name} is MISSING: {name} = None"] if column.lenient else []
