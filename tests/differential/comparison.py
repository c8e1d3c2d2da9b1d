"""What the gateway makes of an expression, and whether that is what Spark makes of it."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from kiwi_gw.query.compiler import compile_query
from kiwi_gw.query.errors import QueryError
from kiwi_gw.query.schema import Schema
from kiwi_gw.query.sql import ROOTS, read
from tests.differential.expressions import Expression

_MOMENT: Final = re.compile(r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(?:\.(\d+))?Z")
# Where Spark makes no implicit cast (BIGINT to INT among them), and functions here take what they can; and
# AND, OR, NOT and conditions, for which what is no BOOLEAN is NULL.
_LENIENT: Final = re.compile(
    r"\b(?:get_json_object|timestamp_\w+|date_add|date_sub|dateadd|element_at|AND|OR|NOT|CASE|if)\b"
)
# Without a schema a NULL has no type that the others of a choice would take.
_CHOICE: Final = re.compile(r"\b(?:CASE|if|coalesce|nvl|ifnull|nullif|greatest|least)\b")
# A year after 9999 or before 1, which is NULL here.
_FAR: Final = re.compile(r"(?:\+\d{5,}|-\d{4,}|0000)-\d\d-\d\d(?:[T ]\d\d:\d\d:\d\d(?:\.\d+)?Z?)?")
_NUMBER: Final = re.compile(r"-?\d+\.\d+(E-?\d+)?")


@dataclass(frozen=True, slots=True)
class Refused:
    """The gateway does not take the expression."""

    why: str


BAD: Final = "<bad>"
"""Instead of a value: it could not be evaluated for this record."""


def ours(text: str, records: Sequence[object], schema: Schema | None) -> Sequence[object] | Refused:
    """The values of an expression, as JSON has them."""
    try:
        query = compile_query(read(None, f"{text} AS r"), ROOTS, schema)
    except QueryError as error:
        return Refused(str(error))
    columns = dict.fromkeys(query.roots, records)
    texts = query.project(columns, range(len(records)))
    return [json.loads(one)["r"] if one else BAD for one in texts]


def kept(text: str, records: Sequence[object], schema: Schema | None) -> Sequence[int]:
    """The records that the expression, as a condition, passes."""
    query = compile_query(read(text, None), ROOTS, schema)
    return query.filter(dict.fromkeys(query.roots, records), len(records))[0]


def decoded(texts: Sequence[str]) -> Sequence[object]:
    return [msgspec.json.decode(text) for text in texts]


def equal(one: object, other: object, *, near: bool = False, inside: bool = False) -> bool:
    """Whether two JSON values are the same. near: numbers may differ in their last digits. inside: Spark may
    have made a DOUBLE of a BIGINT of ours, exactly that of this number: in an array of numbers, as without a
    schema only a whole array has a type in Spark. Not the other way round."""
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(
            equal(*pair, near=near, inside=True) for pair in zip(one, other, strict=True)
        )
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(
            equal(one[name], other[name], near=near, inside=True) for name in one
        )
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    if isinstance(one, int | float) and isinstance(other, int | float):
        if type(one) is not type(other):
            if not inside or type(other) is not float:
                return False
            one = float(one)
        return repr(one) == repr(other) or one == other or (near and math.isclose(one, other, rel_tol=1e-13))
    if isinstance(one, str) and isinstance(other, str):
        return one == other or _canonical(one) == _canonical(other) or _json(one) == _json(other)
    return one == other


def _json(text: str) -> object:
    """JSON can be written in more than one way."""
    try:
        return json.loads(text) if text.startswith(("{", "[")) else text
    except ValueError:
        return text


def _canonical(text: str) -> str:
    """Java before 19 writes some numbers with a digit too many; a second may have more or fewer digits."""
    text = _MOMENT.sub(lambda found: f"{found[1]}.{(found[2] or '').ljust(6, '0')}Z", text)
    return _NUMBER.sub(lambda found: repr(float(found[0])), text)


@dataclass(frozen=True, slots=True)
class Difference:
    """One value that is not the same."""

    expression: str
    spark: str
    record: int
    ours: object
    theirs: object

    def __str__(self) -> str:
        values = f"record {self.record}: {self.ours!r}, and Spark {self.theirs!r}"
        return f"{self.expression}\n    Spark: {self.spark}\n    {values}"


def _of_time(expression: Expression, answer: Mapping[str, Any]) -> bool:
    """Whether the result is a moment, or the text of one."""
    return answer.get("type") in {"date", "timestamp"} or expression.text.startswith(("CAST(", "string("))


def differences(
    expression: Expression,
    spark: str,
    answer: Mapping[str, Any],
    found: Sequence[object] | Refused,
    numbers: Sequence[int],
    *,
    declared: bool,
) -> Iterator[Difference]:
    """What differs in the records with these numbers.

    What Spark's analyser rejects has to be refused here if the types are declared, and without a schema the
    operation at fault gives NULL. What Spark fails at (a pattern that is wrong in one record fails the whole
    query) can be anything.
    """
    if "failed" in answer:
        return
    if isinstance(found, Refused):
        if "rejected" not in answer:
            yield Difference(expression.ours, spark, -1, found, answer["type"])
        return
    if "rejected" in answer:
        if declared and any(value is not None for value in found):
            yield Difference(expression.ours, spark, -1, found[0], answer["rejected"])
        if declared or not expression.flat or _LENIENT.search(expression.text):
            return
        if "CAST(" in expression.text[1:]:  # then it may be that, and not the whole
            return
    for number in numbers:
        theirs = None if "rejected" in answer else answer["values"][number]
        mine = found[number]
        if isinstance(theirs, str) and _FAR.fullmatch(theirs) and _of_time(expression, answer):
            theirs = None
        choice = not declared and _CHOICE.search(expression.text) is not None
        if not equal(mine, theirs, near=expression.near, inside=choice):
            yield Difference(expression.ours, spark, number, mine, answer.get("rejected", theirs))
