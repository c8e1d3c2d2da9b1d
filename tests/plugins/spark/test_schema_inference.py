"""Inferring the schema of a topic, without a Spark."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from kiwi_spark.driver import inputs
from kiwi_spark.driver.error_classification import QueryError
from kiwi_spark.driver.inputs import infer
from kiwi_spark.protocol.query_spec import StreamInput

SECONDS = 30
SPARK: Any = None


def topic(name: str) -> StreamInput:
    return StreamInput(source=name, format="json", kafka={"subscribe": name})


def test_queries_that_begin_together_look_at_a_topic_once(monkeypatch: pytest.MonkeyPatch) -> None:
    looks: list[str] = []
    looking, go_on = threading.Event(), threading.Event()

    def look(spark: object, name: str, item: StreamInput) -> str:
        looks.append(item.source)
        looking.set()
        assert go_on.wait(SECONDS)
        return f"{item.source} INT"

    monkeypatch.setattr(inputs, "_infer", look)
    with ThreadPoolExecutor(4) as threads:
        first = threads.submit(infer, SPARK, "a", topic("shared"))
        assert looking.wait(SECONDS)
        others = [threads.submit(infer, SPARK, name, topic("shared")) for name in "bc"]
        other = threads.submit(infer, SPARK, "d", topic("other"))
        go_on.set()
        assert [one.result(SECONDS) for one in (first, *others)] == ["shared INT"] * 3
        assert other.result(SECONDS) == "other INT"
    assert sorted(looks) == ["other", "shared"]


def test_who_comes_after_a_failure_looks_again(monkeypatch: pytest.MonkeyPatch) -> None:
    answers = [QueryError("unreachable", "no record yet")]

    def look(spark: object, name: str, item: StreamInput) -> str:
        if answers:
            raise answers.pop()
        return "n INT"

    monkeypatch.setattr(inputs, "_infer", look)
    with pytest.raises(QueryError, check=lambda error: error.error_kind == "unreachable"):
        infer(SPARK, "a", topic("late"))
    assert infer(SPARK, "a", topic("late")) == "n INT"
