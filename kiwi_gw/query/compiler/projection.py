"""Where the columns of a projection go: members in members."""

from __future__ import annotations

from kiwi_gw.query.compiler.code_fragments import Namespace
from kiwi_gw.query.compiler.expression_codegen import ExpressionCodegen
from kiwi_gw.query.compiler.paths import Paths
from kiwi_gw.query.errors import QueryError
from kiwi_gw.query.tree import Column, Path

Name = tuple[str, ...]


def placed(select: tuple[Column, ...] | None) -> tuple[Column, ...]:
    """Return the columns, if each has a place of its own.

    Raises:
        QueryError: two have the same name, or one is in the other. A column without a name is the whole
            result, and has to be the only one.
    """
    columns = select or ()
    ends: set[Name] = set()
    groups: set[Name] = set()
    for column in columns:
        if column.spread:
            continue
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
    columns: tuple[Column, ...],
    codegen: ExpressionCodegen,
    paths: Paths,
    namespace: Namespace,
    *,
    weigh: bool,
) -> list[str]:
    """Write statements that put the value of the projection into `result`."""
    if len(columns) == 1 and not columns[0].name and not columns[0].spread:
        default = ["if result is MISSING: result = None"] if columns[0].lenient else []
        return [f"result = {_value(columns[0], codegen, paths)}", *default]
    lines: list[str] = []
    names: list[str] = []
    for index, column in enumerate(columns):
        names.append(f"v{index}")
        lines.append(f"v{index} = {_value(column, codegen, paths)}")
    if weigh:
        lines.append(f"weigh({', '.join(names)})")
    lines.append("result = {}")
    spread: list[str] = []  # last: nothing may be put into what is the record's own
    groups: dict[Name, str] = {(): "result"}
    # An object of lenient columns alone is there only if one of them is.
    fixed = {column.name[:n] for column in columns if not column.lenient for n in range(len(column.name))}
    for name, column in zip(names, columns, strict=True):
        if column.spread:
            spread.append(f"if type({name}) is dict: result = {{**{name}, **result}}")
            continue
        parent = "result"
        made: list[str] = []
        for length in range(1, len(column.name)):
            group = column.name[:length]
            if group not in groups:
                groups[group] = namespace.fresh_name("d")
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
    return lines + spread


def _value(column: Column, codegen: ExpressionCodegen, paths: Paths) -> str:
    """Write the value of a column."""
    value = column.value
    if column.lenient and isinstance(value, Path):
        return paths.raw(value.root, value.steps, missing=True)
    return codegen.value(value).text
