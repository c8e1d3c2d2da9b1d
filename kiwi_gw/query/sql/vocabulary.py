"""The words and types of queries in SQL, and what is said of those that are not supported."""

from __future__ import annotations

from typing import Final

IN_SPARK: Final = "a query looks at one event at a time; this belongs in a Spark source"

CLAUSES: Final = frozenset(
    """JOIN CROSS INNER LEFT RIGHT FULL NATURAL ON USING FROM WHERE GROUP HAVING ORDER SORT LIMIT OFFSET UNION
    INTERSECT EXCEPT MINUS LATERAL PIVOT WINDOW OVER FILTER WITHIN QUALIFY WITH""".split()  # noqa: SIM905
)
"""Words that begin a clause: a query has none."""

TYPES: Final = {
    "BIGINT": "BIGINT",
    "LONG": "BIGINT",
    "INT": "INT",
    "INTEGER": "INT",
    "DOUBLE": "DOUBLE",
    "STRING": "STRING",
    "BOOLEAN": "BOOLEAN",
    "DATE": "DATE",
    "TIMESTAMP": "TIMESTAMP",
    "TIMESTAMP_LTZ": "TIMESTAMP",
}
"""Types that a value can be cast to, by all of Spark's names for them."""

RESERVED: Final = frozenset(
    "AND OR NOT IN IS LIKE ILIKE RLIKE REGEXP BETWEEN WHEN THEN ELSE AS SELECT DISTINCT".split()  # noqa: SIM905
)
"""Words that are not names where a value must come; as the name of a member every word is one."""

DECIMALS: Final = ("DECIMAL", "DEC", "NUMERIC")
NO_DECIMALS: Final = "there are no decimals here: use DOUBLE, or BIGINT"
NO_INTERVALS: Final = "there are no intervals here: timestamps are numbers of milliseconds"
MORE: Final = "it ends too early: a value must follow"
NO_SUBQUERIES: Final = f"a subquery needs other events: {IN_SPARK}"
