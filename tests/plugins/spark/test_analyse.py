"""What Spark is asked when a query is only analysed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from types import SimpleNamespace
from typing import Any, cast

import msgspec
import pytest

from kiwi_spark.driver import analyse as module
from kiwi_spark.driver.analyse import analyse, whose_lines
from kiwi_spark.driver.checkpoints import CheckpointMeta
from kiwi_spark.driver.error_classification import QueryError
from kiwi_spark.protocol.query_spec import QuerySpec
from tests.plugins.spark.test_checkpoints import MemoryFiles

KNOWN = {"flights": "a BIGINT, seldom STRING"}


class LocalEngine:
    distributed = False
    real_time_partitions = 4
    version = "4.0.1"

    def session(self, query: QuerySpec) -> AbstractContextManager[Any]:
        raise AssertionError(f"{query.source} was to be run")

    @contextmanager
    def temporary_session(self) -> Iterator[Any]:
        yield SimpleNamespace(version="4.0.1")


@pytest.mark.parametrize("known", [KNOWN, {}], ids=["a checkpoint", "none"])
def test_a_query_is_analysed_with_the_schemas_with_which_it_would_run(
    monkeypatch: pytest.MonkeyPatch, known: dict[str, str]
) -> None:
    """Else a column that the newest records lack would have a reload refused that works."""
    files = MemoryFiles()
    if known:
        meta = CheckpointMeta(generation=0, parts={}, stateful=False, schemas=known)
        files.write("/c/s/meta.json", msgspec.json.encode(meta).decode())
    given: list[Mapping[str, str]] = []

    def build(spark: object, query: QuerySpec, known: Mapping[str, str], **_: object) -> object:
        given.append(known)
        schema = SimpleNamespace(fields=[])
        return SimpleNamespace(frame=SimpleNamespace(schema=schema), schemas=known, stateful=False)

    monkeypatch.setattr(module, "files_of", lambda spark: files)
    monkeypatch.setattr(module, "build", build)
    monkeypatch.setattr(module, "as_json", lambda frame, key: frame)
    monkeypatch.setattr(module, "check_streaming", lambda rows, query: None)
    answer = analyse(cast("Any", LocalEngine()), 1, QuerySpec(source="s", checkpoint="/c"), explain=False)
    assert answer.error == ""
    assert given == [known]


def test_what_is_about_another_key_than_the_query_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    def build(*_: object, **__: object) -> object:
        where = ("inputs", "p", "schema")
        raise QueryError("query", "the schema of input p: [NO_TYPE] x (line 2, pos 7)", where)

    monkeypatch.setattr(module, "files_of", lambda spark: MemoryFiles())
    monkeypatch.setattr(module, "build", build)
    answer = analyse(cast("Any", LocalEngine()), 1, QuerySpec(source="s", checkpoint="/c"), explain=False)
    assert (answer.where, answer.line) == (["inputs", "p", "schema"], 2)
    assert answer.error == "the schema of input p: [NO_TYPE] x (line 2 of the schema, position 7)"


@pytest.mark.parametrize(
    ("said", "shown"),
    [
        ("x; line 1 pos 11", "x; line 1 of the query, position 11"),
        ("x (line 3, pos 0)", "x (line 3 of the query, position 0)"),
        ("an online 1 pos 2 and a deadline", "an online 1 pos 2 and a deadline"),
    ],
)
def test_lines_are_those_of_the_query(said: str, shown: str) -> None:
    assert whose_lines(said, "query") == shown
