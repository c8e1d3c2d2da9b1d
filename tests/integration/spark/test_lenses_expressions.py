"""Generated expressions as they are written for Spark: a real one finds what the gateway does."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest

from kiwi_gw.dialects.lenses.sql.grouped import root_of
from kiwi_gw.dialects.lenses.sql.spark_text import expression_text
from kiwi_gw.query import tree
from kiwi_gw.query.errors import QueryError
from kiwi_gw.query.schema import Schema
from kiwi_gw.query.sql import read
from kiwi_spark.java.home import java_home
from tests.differential import cases, spark_answers
from tests.differential.comparison import Difference, decoded, differences, ours
from tests.differential.expressions import Expression
from tests.integration.spark.shared_classes import small_jvm

pytestmark = [pytest.mark.integration, pytest.mark.extended, pytest.mark.timeout(600)]

CONF: Final = {
    "spark.sql.ansi.enabled": "false",
    "spark.sql.session.timeZone": "UTC",
    "spark.ui.enabled": "false",
    "spark.driver.memory": "1g",
}
EACH: Final = 3
"""One of so many expressions is tried."""


@dataclass(frozen=True, slots=True)
class Written:
    """An expression, and how it is written for Spark."""

    expression: Expression
    sql: str


def test_values_are_those_of_the_gateway(tmp_path: Path, figure: Callable[[str, object], None]) -> None:
    suite = cases.declared()
    tried = [each for case in suite.cases[::EACH] if (each := _written(case.expression)) is not None]
    file = tmp_path / "answers.json"
    table = {"read": suite.read, "records": suite.texts, "columns": [each.sql for each in tried]}
    conf = CONF | {"spark.driver.extraJavaOptions": small_jvm()}
    done = subprocess.run(
        [sys.executable, str(Path(spark_answers.__file__))],
        input=json.dumps({"conf": conf, "tables": {"t0": table}, "file": str(file)}),
        env={**os.environ, "JAVA_HOME": str(java_home())},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    answers = json.loads(file.read_text())["t0"]
    assert suite.schema is not None
    schema, values = Schema.parse(suite.schema), decoded(suite.texts)
    found: list[Difference] = []
    for each, answer in zip(tried, answers, strict=True):
        mine = ours(each.expression.ours, values, schema)
        numbers = range(len(values))
        found += differences(each.expression, each.sql, answer, mine, numbers, declared=True)
    figure("expressions written for Spark and compared", len(tried))
    assert not found, f"{len(found)} values differ:\n" + "\n".join(str(one) for one in found[:20])
    assert sum("values" in answer for answer in answers) > len(tried) // 2


def _written(expression: Expression) -> Written | None:
    """None: the gateway does not take it."""
    try:
        (column,) = read(None, f"{expression.ours} AS r").select or ()
        return Written(expression, expression_text(_of_table(column.value)))
    except QueryError:
        return None


def _of_table(node: tree.Node) -> tree.Node:
    match node:
        case tree.Path(root, steps):
            return tree.Path(root_of(0, root), steps)
        case tree.Cast(value, to):
            return tree.Cast(_of_table(value), to)
        case tree.FunctionCall(name, arguments):
            return tree.FunctionCall(name, tuple(map(_of_table, arguments)))
    return node
