"""Which expressions are compared with Spark, over which records, and as which columns of Spark."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from tests.differential import records
from tests.differential.expressions import DECLARED, LOOSE, Expression, Generator, signature

_RECORDS: Final = 40
_SEED: Final = 7
_DEEP: Final = 120
_TYPES: Final = 3
"""Of a flat expression without schema: so many combinations of types of its members, the most frequent ones.
Of others, one."""


@dataclass(frozen=True, slots=True)
class Case:
    """An expression as Spark is asked for it, and the records that this is about."""

    expression: Expression
    spark: str
    records: Sequence[int]


@dataclass(frozen=True, slots=True)
class Suite:
    """read: Spark's SQL for `value` out of the text `json`. schema: the declared one, for both."""

    read: str
    schema: str | None
    texts: Sequence[str]
    cases: Sequence[Case]

    @property
    def task(self) -> Mapping[str, Any]:
        """What `spark_answers` is asked; the columns are in the order of `columns`."""
        return {"read": self.read, "records": self.texts, "columns": self.columns}

    @property
    def columns(self) -> Sequence[str]:
        return list(dict.fromkeys(case.spark for case in self.cases))


def declared() -> Suite:
    """Values with a schema: the same text in both, and a type for every member."""
    generator = Generator(DECLARED, _SEED)
    found = [*generator.of_templates(1, 0), *generator.of_templates(1, 1), *generator.of_casts(1)]
    found += generator.deep(_DEEP, 3)
    cases = [Case(one, one.declared, range(_RECORDS)) for one in dict.fromkeys(found)]
    texts = [json.dumps(record) for record in records.typed(_RECORDS, _SEED)]
    return Suite(f"from_json(json, '{records.SCHEMA}')", records.SCHEMA, texts, cases)


def loose() -> Suite:
    """Values without one: Spark's are VARIANT, read as what they are in the records in question."""
    generator = Generator(LOOSE, _SEED)
    made = records.loose(_RECORDS, _SEED)
    found = [*generator.of_templates(1, 0), *generator.of_templates(1, 1), *generator.of_casts(1)]
    found += generator.deep(_DEEP // 3, 2)
    cases = [case for one in dict.fromkeys(found) for case in _by_type(one, made)]
    return Suite("parse_json(json)", None, [json.dumps(record) for record in made], cases)


def _by_type(expression: Expression, made: Sequence[Mapping[str, Any]]) -> Sequence[Case]:
    groups: dict[tuple[str, ...], list[int]] = {}
    for number, record in enumerate(made):
        groups.setdefault(signature(expression, record), []).append(number)
    frequent = sorted(groups.items(), key=lambda group: -len(group[1]))[: _TYPES if expression.flat else 1]
    return [
        Case(expression, expression.variant(dict(zip(expression.paths, types, strict=True))), numbers)
        for types, numbers in frequent
    ]
