"""Writes a statement of many records as a query for an engine: a SELECT of Spark's SQL.

    SELECT __r.`__c0` AS `carrier`, __r.`__c1` AS `count`, __r.`__key0`
    FROM (SELECT t0.`value`['carrier'] AS `__c0`, count(1) AS `__c1`, t0.`value`['carrier'] AS `__key0`
          FROM t0 GROUP BY t0.`value`['carrier']) AS `__r`
    ORDER BY __r.`__c1` DESC NULLS LAST LIMIT 10001

Inside, all names are ours, so that no name of a client is ever looked up; outside columns get the names that
the client knows. What begins as none of those does is ours.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from kiwi_gw.dialects.lenses.sql.grouped import WHOLE_VALUE, GroupedStatement, Table, root_of
from kiwi_gw.dialects.lenses.sql.names import META_ROOTS
from kiwi_gw.dialects.lenses.sql.spark_text import expression_text, name_text
from kiwi_gw.model import Decode, EngineLimits, EngineQuery, QueriedTable
from kiwi_gw.query.tree import Column, Path

MAX_ROWS: Final = 10_000
"""Of a result. One more is asked for, so that it can be told that there are more."""

_LIMITS: Final = EngineLimits()
_LARGEST: Final = 2**63 - 1
_PLACE: Final = ("key", *META_ROOTS.values())


@dataclass(frozen=True, slots=True)
class WrittenQuery:
    """A statement in Spark's SQL. key: columns that say which row of the result it is, and are no members of
    the value."""

    sql: str
    key: tuple[str, ...]


def queried_table(table: Table, source_id: str, decode: Decode) -> QueriedTable:
    """Say what of a source is read for a table. decode: what `decoders.decode_of` says for the table.

    Bounds are numbers that places and times of records can be: what lies beyond those, as in `_ts >= -1` or
    `_offset < -9223372036854775808`, neither messages nor engines have room for.
    """
    found = table.narrowed
    first_time = None if found.first_time is None or found.first_time <= 0 else found.first_time
    return QueriedTable(
        source_id,
        decode,
        _between(0, found.first_offset),
        _between(-1, found.last_offset),
        _between(0, first_time),
        found.partitions,
    )


def _between(least: int, number: int | None) -> int | None:
    return None if number is None else min(max(number, least), _LARGEST)


def engine_query(
    statement: GroupedStatement,
    tables: Sequence[QueriedTable],
    *,
    live: bool = False,
    limits: EngineLimits = _LIMITS,
) -> EngineQuery:
    """Make a query of a statement. tables: of each of its tables, in their order, what is read.

    Raises:
        QueryError: as `written`.
    """
    query = written(statement)
    named = {f"t{index}": table for index, table in enumerate(tables)}
    assert len(named) == len(statement.tables)  # noqa: S101
    return EngineQuery(query.sql, named, query.key, live, limits)


def result_columns(statement: GroupedStatement) -> tuple[Column, ...]:
    """Return the members of a row's value, in their order. `*` is `value`; without DISTINCT the place of the
    record and its key are beside it, under the names of the engine's tables."""
    if statement.columns is not None:
        return statement.columns
    if statement.distinct:
        return (WHOLE_VALUE,)
    return (WHOLE_VALUE, *(Column((root,), Path(root_of(0, root))) for root in _PLACE))


def written(statement: GroupedStatement) -> WrittenQuery:
    """Write a statement in Spark's SQL, over tables `t0`, `t1` and so on. It gives no more than MAX_ROWS + 1
    rows.

    Raises:
        QueryError: a column is called what cannot be written; or a function is not there, which
            `check_functions` finds sooner.
    """
    return _Writer(statement).query()


class _Writer:
    def __init__(self, statement: GroupedStatement) -> None:
        self._statement = statement
        self._columns = result_columns(statement)
        self._ours = "__"
        names = [column.name[0].casefold() for column in self._columns]
        while any(name.startswith(self._ours) for name in names):
            self._ours += "_"

    def query(self) -> WrittenQuery:
        statement = self._statement
        inside = {f"{self._ours}c{i}": expression_text(each.value) for i, each in enumerate(self._columns)}
        outside = [
            f"{self._outer(ours)} AS {name_text(column.name[0], column.value.position)}"
            for ours, column in zip(inside, self._columns, strict=True)
        ]
        order = self._order(inside)
        keys = self._keys()
        inside |= keys
        outside += map(self._outer, keys)
        columns = ", ".join(f"{text} AS `{name}`" for name, text in inside.items())
        limit = MAX_ROWS + 1 if statement.limit is None else min(statement.limit, MAX_ROWS + 1)
        distinct = "DISTINCT " if statement.distinct else ""
        inner = f"SELECT {distinct}{columns}{self._from()}"
        sql = f"SELECT {', '.join(outside)} FROM ({inner}) AS `{self._ours}r`{order} LIMIT {limit}"  # noqa: S608
        return WrittenQuery(sql, tuple(keys))

    def _outer(self, name: str) -> str:
        return f"`{self._ours}r`.`{name}`"

    def _keys(self) -> dict[str, str]:
        """Return hidden columns that say which row it is: the values that a group has in common. All of no
        group are one row; rows that are distinct have no key."""
        statement = self._statement
        if not statement.aggregated or statement.distinct:
            return {}
        texts = [expression_text(node) for node in statement.group_by] or ["0"]
        return {f"{self._ours}key{index}": text for index, text in enumerate(texts)}

    def _order(self, inside: dict[str, str]) -> str:
        """Write ORDER BY, by hidden columns. Rows that are distinct have none: it is of their columns."""
        known = {
            column.value.key: self._outer(ours) for ours, column in zip(inside, self._columns, strict=True)
        }
        terms: list[str] = []
        for index, order in enumerate(self._statement.order_by):
            if self._statement.distinct:
                text = expression_text(order.value, known)
            elif (found := known.get(order.value.key)) is not None:
                text = found
            else:
                name = f"{self._ours}order{index}"
                inside[name] = expression_text(order.value)
                text = self._outer(name)
            way = "DESC" if order.descending else "ASC"
            terms.append(f"{text} {way} NULLS {'FIRST' if order.nulls_first else 'LAST'}")
        return f" ORDER BY {', '.join(terms)}" if terms else ""

    def _from(self) -> str:
        statement, text = self._statement, ""
        for index, table in enumerate(statement.tables):
            if table.on is None:
                text += f" FROM t{index}"
            else:
                text += f" {table.join} JOIN t{index} ON {expression_text(table.on)}"
        if statement.where is not None:
            text += f" WHERE {expression_text(statement.where)}"
        if statement.group_by:
            text += f" GROUP BY {', '.join(map(expression_text, statement.group_by))}"
        if statement.having is not None:
            text += f" HAVING {expression_text(statement.having)}"
        return text
