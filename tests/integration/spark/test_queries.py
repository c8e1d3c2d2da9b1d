"""Generated expressions over generated records, by the gateway and by a real Spark: the same values."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from kiwi_gw.query.schema import Schema
from kiwi_spark.java.home import java_home
from tests.differential import cases, spark_answers
from tests.differential.cases import Suite
from tests.differential.comparison import Difference, Refused, decoded, differences, kept, ours
from tests.integration.spark.shared_classes import small_jvm

pytestmark = [pytest.mark.integration, pytest.mark.extended, pytest.mark.timeout(600)]

SUITES: Mapping[str, Callable[[], Suite]] = {"declared": cases.declared, "loose": cases.loose}

CONF = {
    "spark.sql.ansi.enabled": "false",
    "spark.sql.session.timeZone": "UTC",
    "spark.ui.enabled": "false",
    "spark.driver.memory": "1g",
}

Answers = Mapping[str, Mapping[str, Any]]


@pytest.fixture(scope="module")
def suites() -> Mapping[str, Suite]:
    return {name: make() for name, make in SUITES.items()}


@pytest.fixture(scope="module")
def answers(suites: Mapping[str, Suite], tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Answers]:
    """What Spark says, by suite and column; one Spark for all of them."""
    file = tmp_path_factory.mktemp("answers") / "answers.json"
    tables = {name: suite.task for name, suite in suites.items()}
    conf = CONF | {"spark.driver.extraJavaOptions": small_jvm()}
    done = subprocess.run(
        [sys.executable, str(Path(spark_answers.__file__))],
        input=json.dumps({"conf": conf, "tables": tables, "file": str(file)}),
        env={**os.environ, "JAVA_HOME": str(java_home())},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    found = json.loads(file.read_text())
    return {name: dict(zip(suite.columns, found[name], strict=True)) for name, suite in suites.items()}


@pytest.mark.parametrize("name", SUITES)
def test_values_are_those_of_spark(
    name: str,
    suites: Mapping[str, Suite],
    answers: Mapping[str, Answers],
    figure: Callable[[str, object], None],
) -> None:
    suite = suites[name]
    schema = None if suite.schema is None else Schema.parse(suite.schema)
    values = decoded(suite.texts)
    made: dict[str, Sequence[object] | Refused] = {}
    found: list[Difference] = []
    compared = 0
    for case in suite.cases:
        text = case.expression.ours
        if text not in made:
            made[text] = ours(text, values, schema)
        answer = answers[name][case.spark]
        compared += len(case.records) if "values" in answer else 0
        found += differences(
            case.expression, case.spark, answer, made[text], case.records, declared=schema is not None
        )
    figure(f"expressions compared with Spark, {name}", len(made))
    figure(f"values compared with Spark, {name}", compared)
    assert not found, f"{len(found)} values differ:\n" + "\n".join(str(one) for one in found[:20])
    answered = sum("values" in answer for answer in answers[name].values())
    assert answered > len(answers[name]) // 2


@pytest.mark.parametrize("name", SUITES)
def test_conditions_keep_what_spark_finds_true(
    name: str, suites: Mapping[str, Suite], answers: Mapping[str, Answers]
) -> None:
    suite = suites[name]
    schema = None if suite.schema is None else Schema.parse(suite.schema)
    values = decoded(suite.texts)
    tried = 0
    for case in suite.cases:
        answer = answers[name][case.spark]
        if answer.get("type") != "boolean":
            continue
        expected = [number for number in case.records if answer["values"][number] is True]
        passed = [number for number in kept(case.expression.ours, values, schema) if number in case.records]
        assert passed == expected, case.expression.ours
        tried += 1
    assert tried > 100
