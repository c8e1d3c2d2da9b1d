"""What a driver does of a query over ranges before and behind what Spark does: ranges, types, words, ends."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any, cast

import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession
from pyspark.sql.types import LongType, NullType, StructField, StructType

from kiwi_spark.driver import range_inputs, range_schemas, range_stream
from kiwi_spark.driver.error_classification import QueryError
from kiwi_spark.driver.range_errors import classify_range_error
from kiwi_spark.driver.range_inputs import TopicRange, fix_range
from kiwi_spark.driver.range_schemas import kinds_of
from kiwi_spark.driver.range_stream import scratch_folder
from kiwi_spark.driver.range_thread import RangeThread
from kiwi_spark.driver.session import LocalEngine
from kiwi_spark.protocol.messages import Message, QueryEnded
from kiwi_spark.protocol.range_query import RangeQuery, TopicTable

NUMBERS = StructType([StructField("n", LongType())])


def table(**more: Any) -> TopicTable:
    return TopicTable(source="s", topic="t", kafka={}, **more)


def query(**more: Any) -> RangeQuery:
    values = {"sql": "SELECT 1", "tables": {"t0": table()}, "result_bytes": 1000, "offsets": 100, **more}
    return RangeQuery(source="q", **values)


@pytest.fixture
def topic(monkeypatch: pytest.MonkeyPatch) -> SparkSession:
    """A session whose topic has three partitions: offsets 0 to 9, none, and 5 to 19."""
    monkeypatch.setattr(range_inputs, "client_options", lambda options: options)
    offsets = SimpleNamespace(of=lambda options, topic, start: "0 0 10,1 5 5,2 5 20")
    jvm = SimpleNamespace(kiwigw=SimpleNamespace(spark=SimpleNamespace(TopicOffsets=offsets)))
    return cast(SparkSession, SimpleNamespace(_jvm=jvm))


@pytest.mark.parametrize(
    ("narrowed", "begin", "end"),
    [
        ({}, {0: 0, 2: 5}, {0: 10, 2: 20}),
        ({"first_offset": 7}, {0: 7, 2: 7}, {0: 10, 2: 20}),
        ({"last_offset": 6}, {0: 0, 2: 5}, {0: 7, 2: 7}),
        ({"first_offset": 12, "last_offset": 12}, {2: 12}, {2: 13}),
        ({"partitions": [0, 1]}, {0: 0}, {0: 10}),
        ({"first_offset": 9, "last_offset": 3}, {}, {}),
        ({"first_time": 1}, {0: 0, 2: 5}, {0: 10, 2: 20}),
    ],
)
def test_a_range_is_what_there_is_and_what_is_asked_for(
    topic: SparkSession, narrowed: dict[str, Any], begin: dict[int, int], end: dict[int, int]
) -> None:
    found = fix_range(topic, table(**narrowed))
    assert (found.begin, found.end) == (begin, end)
    assert found.offsets == sum(end.values()) - sum(begin.values())


def test_types_are_inferred_once_for_a_range(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def inferred(spark: object, table: object, found: object, column: str, cores: int) -> StructType | None:
        asked.append(column)
        return NUMBERS if column == "value" else None

    monkeypatch.setattr(range_schemas, "_inferred", inferred)
    monkeypatch.setattr(range_schemas, "_KEPT", 2)
    monkeypatch.setattr(range_schemas, "_known", type(range_schemas._known)())
    spark = cast(SparkSession, None)
    both, one = table(key="json"), TopicRange({0: 0}, {0: 5})
    sql = "SELECT t0.value.n, t0.key.a FROM t0"
    found = kinds_of(spark, both, one, sql)
    assert found["value"] == NUMBERS
    assert found["key"] == StructType([StructField("a", NullType())])  # which is nowhere
    assert kinds_of(spark, both, one, sql) == found
    assert asked == ["value", "key"]
    for end in (6, 7, 8):  # others, which take its place
        kinds_of(spark, table(), TopicRange({0: 0}, {0: end}), "SELECT t0.value.n FROM t0")
    kinds_of(spark, both, one, "SELECT t0.value.n FROM t0")
    assert asked == ["value", "key", *["value"] * 4]


def test_types_are_not_asked_for_where_they_are_known_or_nobody_reads_them() -> None:
    spark, anything = cast(SparkSession, None), TopicRange({0: 0}, {0: 5})
    assert kinds_of(spark, table(value="string"), anything, "SELECT t0.value AS x FROM t0") == {}
    assert kinds_of(spark, table(), anything, "SELECT count(1) AS x FROM t0") == {}


class NamedError(AnalysisException):
    """An error of Spark with a name of its own."""

    def __init__(self, name: str, **parameters: str) -> None:
        super().__init__(f"[{name}] words of Spark\nand more")
        self._name, self._parameters = name, parameters

    def getCondition(self) -> str:  # noqa: N802
        return self._name

    def getMessageParameters(self) -> dict[str, str]:  # noqa: N802
        return self._parameters


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (
            NamedError("FIELD_NOT_FOUND", fieldName="`x`", fields="`a`, `b`"),
            ("query", "there is no member `x` (there are: `a`, `b`)"),
        ),
        (NamedError("FIELD_NOT_FOUND", other="y"), ("query", "words of Spark")),
        (NamedError("DIVIDE_BY_ZERO"), ("query", "words of Spark")),
        (QueryError("query", "too much"), ("query", "too much")),
        (QueryError("unreachable", "no broker"), ("unreachable", "no broker")),
    ],
)
def test_why_it_failed_is_said_plainly(error: Exception, said: tuple[str, str]) -> None:
    assert classify_range_error(error, query()) == said


def ended(thread: RangeThread, told: list[Message]) -> QueryEnded:
    thread.start()
    thread.stop()
    (message,) = told
    assert isinstance(message, QueryEnded)
    return message


def made(engine: object, told: list[Message], **more: Any) -> RangeThread:
    def no_rows(run: int) -> Any:
        raise AssertionError("nothing is to be sent")

    return RangeThread(7, query(**more), cast(Any, engine), no_rows, told.append)


def test_behind_spark_connect_there_are_none() -> None:
    told: list[Message] = []
    thread = made(object(), told)
    thread.start()
    thread._thread.join()
    assert told == [
        QueryEnded(run=7, error_kind="query", message="over Spark Connect there are no such queries")
    ]


@pytest.fixture
def engine() -> LocalEngine:
    """One whose session is lent, and that has no Spark behind it."""
    found = object.__new__(LocalEngine)

    @contextmanager
    def lent() -> Iterator[object]:
        yield SimpleNamespace(sparkContext=None)

    for name, value in (("cores", 1), ("lent_session", lent)):
        object.__setattr__(found, name, value)
    return found


def test_one_that_is_stopped_before_it_has_begun_asks_spark_for_nothing(engine: LocalEngine) -> None:
    told: list[Message] = []
    thread = made(engine, told)
    thread._stopping = True
    assert ended(thread, told) == QueryEnded(run=7)


def test_too_many_offsets_are_not_read(
    engine: LocalEngine, topic: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    thread = made(engine, [], offsets=24)
    with pytest.raises(QueryError, match="the query reads 25 offsets, and 24 is the most"):
        thread._ranges(topic)
    assert made(engine, [], offsets=25)._ranges(topic)["t0"].offsets == 25


@pytest.mark.parametrize("distributed", [False, True])
def test_the_state_of_a_stream_is_removed(distributed: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    removed: list[str] = []
    files = SimpleNamespace(remove=removed.append)
    monkeypatch.setattr(range_stream, "files_of", lambda spark: files)
    monkeypatch.setattr(shutil, "rmtree", lambda folder, **options: removed.append(folder))
    asked = query(checkpoint="hdfs://state")
    with scratch_folder(cast(SparkSession, None), asked, distributed=distributed) as folder:
        assert folder.startswith("hdfs://state/queries/") is distributed
        assert removed == []
    assert removed == [folder]
