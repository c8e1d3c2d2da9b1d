"""What a statement asks for that does not look at one record at a time."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final, Literal

from kiwi_gw.dialects.lenses.sql.statement import Narrowed, Setting
from kiwi_gw.model import Form
from kiwi_gw.query.tree import Column, Node, Path

Join = Literal["INNER", "LEFT", "RIGHT", "FULL"]


@dataclass(frozen=True, slots=True)
class Table:
    """One table of a statement: the first, or one that is joined to those before it.

    name: behind FROM or JOIN. prefix: what its members are named with, its alias or its name. join, on: how
    it is joined; None: it is the first. key_decoder, value_decoder: None: the source's. narrowed: which of
    its records need be read.
    """

    name: str
    prefix: str
    join: Join | None = None
    on: Node | None = None
    key_decoder: Form | None = None
    value_decoder: Form | None = None
    narrowed: Narrowed = Narrowed()  # noqa: RUF009  (it is frozen)
    position: int = field(default=0, compare=False)
    key_decoder_position: int | None = field(default=None, compare=False)
    value_decoder_position: int | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class Order:
    """One expression of ORDER BY."""

    value: Node
    descending: bool
    nulls_first: bool


@dataclass(frozen=True, slots=True)
class GroupedStatement:
    """A statement with aggregates, GROUP BY, HAVING, DISTINCT, ORDER BY or joins. What is neither grouped nor
    in an aggregate was refused before it is made; its functions are looked up by `check_functions`.

    A path's root says which table it is of, and what of its records: `t0.value`, `t1.offset`, by the place of
    the table in `tables`. Aggregates are calls, see `aggregates`. columns: None: `*`. aggregated: it gives a
    row for each group; without group_by: one row. limit: None: all rows.
    """

    tables: tuple[Table, ...]
    columns: tuple[Column, ...] | None
    distinct: bool = False
    where: Node | None = None
    aggregated: bool = False
    group_by: tuple[Node, ...] = ()
    having: Node | None = None
    order_by: tuple[Order, ...] = ()
    limit: int | None = None
    settings: tuple[Setting, ...] = ()


def root_of(table: int, root: str) -> str:
    """Name the root of a path of a table: the first is 0."""
    return f"t{table}.{root}"


def table_of_root(root: str) -> int:
    """Return which table such a root is of."""
    return int(root.partition(".")[0][1:])


WHOLE_VALUE: Final = Column(("value",), Path(root_of(0, "value")))
"""What `*` is in the result of a `GroupedStatement`: the value of the record, as it is."""


def trees_of(statement: GroupedStatement) -> Iterator[Node]:
    """Go through all trees of a statement."""
    for column in statement.columns or ():
        yield column.value
    for table in statement.tables:
        if table.on is not None:
            yield table.on
    for one in (statement.where, statement.having):
        if one is not None:
            yield one
    yield from statement.group_by
    for order in statement.order_by:
        yield order.value
