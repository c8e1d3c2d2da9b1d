"""A real driver process with a real Spark and a real broker, and a gateway that is this test."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, Literal

import msgspec
import pytest

from kiwi_demo.broker import Broker
from kiwi_spark.gateway.resolve import prepare
from kiwi_spark.gateway.settings import SparkSettings
from kiwi_spark.protocol.messages import BatchProgress, BatchTaken
from kiwi_spark.protocol.query_spec import QuerySpec, StreamInput
from tests.integration.spark.driver_peer import DriverPeer, runs, usual_session
from tests.topics import Record, Topics

pytestmark = [pytest.mark.integration, pytest.mark.timeout(600)]

LIMIT: Final = "spark.driver.maxResultSize"


@pytest.fixture
async def topic(topics: Topics, new_topic: Callable[[], str]) -> str:
    """100 good records with a = 0..99 and two bad ones, in one partition."""
    name = await topics.create(new_topic())
    good = [Record(b'{"a":%d,"s":"x%d"}' % (one, one)) for one in range(100)]
    await topics.produce(name, [*good, Record(b"{nope"), Record(b'{"a":"no number"}')])
    return name


@pytest.fixture
def query(topic: str, broker: Broker, tmp_path: Path) -> QuerySpec:
    item = StreamInput(
        source=topic,
        format="json",
        schema="a INT, s STRING",
        start="earliest",
        kafka={"kafka.bootstrap.servers": broker.bootstrap, "subscribe": topic},
    )
    checkpoint = str(tmp_path / "state")
    return QuerySpec(
        source=topic, streams={"flights": item}, sql="SELECT a FROM flights", checkpoint=checkpoint
    )


def altered(query: QuerySpec, **fields: Any) -> QuerySpec:
    return msgspec.structs.replace(query, **fields)


def with_input(query: QuerySpec, **fields: Any) -> QuerySpec:
    return altered(query, streams={"flights": msgspec.structs.replace(query.streams["flights"], **fields)})


def values(rows: list[dict[str, Any]]) -> list[Any]:
    return [json.loads(row["value"]) for row in rows]


async def test_rows_of_a_query_and_what_was_bad(driver: DriverPeer, query: QuerySpec) -> None:
    run = next(runs)
    started, rows = driver.start(run, altered(query, sql="SELECT a, s FROM flights WHERE a >= 98", key=["s"]))
    begin, got = rows.batch()
    assert (begin.query, begin.batch, started.next_batch) == (started.query, 0, 0)
    assert [row["key"] for row in got] == ['{"s":"x98"}', '{"s":"x99"}']
    assert values(got) == [{"a": 98, "s": "x98"}, {"a": 99, "s": "x99"}]
    progress = driver.control.expect(BatchProgress, run=run)
    assert (progress.batch, progress.input_rows, progress.bad) == (0, 102, 2)
    assert "offset 10" in progress.bad_sample
    assert progress.bad_because == "it is not JSON"
    assert driver.stop(run).error_kind is None


@pytest.mark.parametrize(
    ("schema", "because"),
    [
        ("s STRING, amount STRUCT<value: INT>", "amount.value: INT, but the record has 10.5"),
        ("amount INT", 'amount: INT, but the record has {"value": 10.5}'),
        (
            "amount STRUCT<value: DOUBLE>, items ARRAY<STRUCT<n: INT>>",
            'items: array<struct<n:int>>, but the record has [{"n": 1}, {"n": "two"}]',
        ),
        ("amount STRUCT<value: DOUBLE>, at TIMESTAMP", 'at: TIMESTAMP, but the record has "noon"'),
    ],
)
async def test_it_is_said_which_member_does_not_fit(
    topics: Topics,
    new_topic: Callable[[], str],
    driver: DriverPeer,
    query: QuerySpec,
    schema: str,
    because: str,
) -> None:
    name = await topics.create(new_topic())
    record = Record(b'{"s":"x","amount":{"value":10.5},"items":[{"n":1},{"n":"two"}],"at":"noon"}')
    await topics.produce(name, [record])
    kafka = query.streams["flights"].kafka | {"subscribe": name}
    run = next(runs)
    _, rows = driver.start(
        run, altered(with_input(query, schema=schema, kafka=kafka), sql="SELECT _offset FROM flights")
    )
    rows.batch()
    progress = driver.control.expect(BatchProgress, run=run)
    assert progress.bad_because == because
    assert driver.stop(run).error_kind is None


async def test_a_batch_that_a_join_makes_too_large_ends_its_query_and_not_the_driver(
    query: QuerySpec,
) -> None:
    """`max_offsets` bounds what it reads; of 750 MB that come of it Spark collects no more than it may."""
    session = await prepare(SparkSettings())
    limit = {LIMIT: session[0].conf[LIMIT]}
    usual = usual_session()
    driver = DriverPeer(msgspec.structs.replace(usual, conf={**usual.conf, **limit}))
    try:
        words = (
            "SELECT /*+ REPARTITION(30) */ a, r.id, repeat('x', 200) AS s FROM flights CROSS JOIN range(%d) r"
        )
        ended = driver.fail(next(runs), altered(query, sql=words % 30_000))
        assert ended.error_kind == "query", ended
        assert "more bytes than `spark.batch_bytes` allows (268,435,456)" in ended.message
        run = next(runs)
        _, rows = driver.start(run, altered(query, source="small", sql=words % 10))
        assert len(rows.batch()[1]) == 1000
        assert driver.stop(run).error_kind is None
    finally:
        driver.close()


async def test_two_queries_at_once_that_are_stopped_while_they_wait(
    driver: DriverPeer, query: QuerySpec
) -> None:
    one, two = next(runs), next(runs)
    grouped = "SELECT a % 2 AS odd, count(*) AS n FROM flights GROUP BY a % 2"
    _, first = driver.start(one, altered(query, source="first"))
    _, second = driver.start(two, altered(query, source="second", sql=grouped, output_mode="update"))
    assert len(first.batch(ack=False)[1]) == 100
    assert sorted(one["n"] for one in values(second.batch(ack=False)[1])) == [50, 50]
    assert driver.stop(one).error_kind is None
    assert driver.stop(two).error_kind is None


async def test_a_batch_that_was_not_taken_comes_again_with_its_id(
    driver: DriverPeer, query: QuerySpec
) -> None:
    run, again = next(runs), next(runs)
    started, rows = driver.start(run, query)
    before, got = rows.batch(ack=False)
    rows.close()
    assert driver.ended(run).error_kind == "gone"
    repeated, rows = driver.start(again, query)
    after, same = rows.batch()
    assert (repeated.query, after.batch) == (started.query, before.batch)
    assert values(same) == values(got)
    assert driver.stop(again).error_kind is None


@pytest.mark.parametrize(
    ("fields", "trouble", "words"),
    [
        ({"sql": "SELECT nope FROM flights"}, "query", "nope"),
        ({"sql": "SELEC"}, "query", "Syntax error"),
        ({"sql": "SELECT a, count(*) FROM flights GROUP BY a"}, "query", "output mode"),
        ({"sql": "SELECT a, a FROM flights"}, "query", "more than one column"),
        ({"sql": "", "transform": "pipelines_of_tests:unwise"}, "query", "KeyError: 'trains'"),
        ({"sql": "", "transform": "pipelines_of_tests:nothing"}, "query", "nothing"),
    ],
)
async def test_a_query_that_is_wrong(
    driver: DriverPeer, query: QuerySpec, fields: dict[str, Any], trouble: str, words: str
) -> None:
    ended = driver.fail(next(runs), altered(query, **fields))
    assert ended.error_kind == trouble
    assert words in ended.message


@pytest.mark.parametrize(
    ("fields", "trouble", "words"),
    [
        ({"sql": "", "transform": "pipelines_of_tests:failing"}, "user", "ValueError: it is 50"),
        ({"sql": "SELECT 1 / (a - 5) AS x FROM flights"}, "user", "DIVIDE_BY_ZERO"),
    ],
)
async def test_a_function_that_raises(
    driver: DriverPeer, query: QuerySpec, fields: dict[str, Any], trouble: str, words: str
) -> None:
    ended = driver.fail(next(runs), altered(query, **fields))
    assert ended.error_kind == trouble
    assert words in ended.message


@pytest.mark.parametrize("bad", ["drop", "null", "fail"])
async def test_each_record_is_decoded_once(
    driver: DriverPeer, query: QuerySpec, bad: Literal["drop", "null", "fail"]
) -> None:
    """However many filters and columns read what is decoded."""
    wanted = with_input(query, on_bad_record=bad)
    found = driver.analyse(altered(wanted, sql="SELECT a, s FROM flights WHERE a % 10 = 3"), explain=True)
    assert found.plan.partition("Optimized Logical Plan")[2].count("from_json(") == 1


async def test_a_bad_record_ends_the_query_if_it_must(driver: DriverPeer, query: QuerySpec) -> None:
    ended = driver.fail(next(runs), with_input(query, on_bad_record="fail"))
    assert ended.error_kind == "bad_record"
    assert "input flights, partition 0 offset 10" in ended.message


async def test_bad_records_as_nulls(driver: DriverPeer, query: QuerySpec) -> None:
    run = next(runs)
    _, rows = driver.start(run, with_input(query, on_bad_record="null"))
    assert [one["a"] for one in values(rows.batch()[1])] == [*range(100), None, None]
    assert driver.stop(run).error_kind is None


async def test_a_checkpoint_of_another_query_is_refused(driver: DriverPeer, query: QuerySpec) -> None:
    run = next(runs)
    _, rows = driver.start(run, query)
    rows.batch()
    driver.control.expect(BatchProgress, run=run)
    driver.stop(run)
    ended = driver.fail(next(runs), altered(query, sql="SELECT s FROM flights"))
    assert ended.error_kind == "checkpoint"
    assert "sql" in ended.message


async def test_offsets_that_are_gone(driver: DriverPeer, query: QuerySpec, topics: Topics) -> None:
    run = next(runs)
    _, rows = driver.start(run, query)
    rows.batch()
    driver.control.expect(BatchProgress, run=run)
    driver.stop(run)
    name = query.source
    await topics.delete(name)
    await topics.create(name)
    await topics.produce(name, [Record(b'{"a":1}')])
    assert driver.fail(next(runs), query).error_kind == "data_loss"


async def test_kafka_that_is_not_there(driver: DriverPeer, query: QuerySpec) -> None:
    patience = {f"kafka.{what}.timeout.ms": "2000" for what in ("request", "default.api")}
    away = {"kafka.bootstrap.servers": "127.0.0.1:1", "subscribe": "x", **patience}
    ended = driver.fail(next(runs), with_input(query, kafka=away))
    assert ended.error_kind == "unreachable"


async def test_what_spark_says_of_a_query(driver: DriverPeer, query: QuerySpec) -> None:
    wrong = driver.analyse(altered(query, sql="SELECT a,\n  nope\nFROM flights"))
    assert "`nope` cannot be resolved" in wrong.error
    assert "Project" not in wrong.error
    assert wrong.line == 2
    right = driver.analyse(with_input(query, schema=""), explain=True)
    assert right.error == ""
    assert right.columns == [("a", "string")]  # one of the records has text there
    assert right.schemas == {"flights": "`a` string, `s` string"}
    assert "Optimized Logical Plan" in right.plan


async def test_a_query_that_may_run_in_real_time_does_not_where_threads_are_few(
    driver: DriverPeer, query: QuerySpec, topics: Topics
) -> None:
    """Also one that ran so, and whose topic has got another partition."""
    query = altered(query, real_time="auto", sql="SELECT a FROM flights WHERE a > 97")
    run = next(runs)
    started, _ = driver.start(run, query)
    assert started.real_time
    assert driver.stop(run).error_kind is None
    await topics.grow(query.source, 2)
    run = next(runs)
    started, rows = driver.start(run, query)
    assert not started.real_time
    assert "it runs in micro-batches: the query would read 2 partitions in real time" in started.notes[-1]
    assert values(rows.batch()[1]) == [{"a": 98}, {"a": 99}]
    assert driver.stop(run).error_kind is None
    ended = driver.fail(next(runs), altered(query, real_time="only", source=f"{query.source}-only"))
    assert ended.error_kind == "query"
    assert "there are threads for 1: raise `spark.real_time_partitions`" in ended.message


async def test_a_stream_that_is_sent_to_every_task_cannot_run_in_real_time(
    driver: DriverPeer, query: QuerySpec
) -> None:
    """Its rows would not be those of the record that a task reads."""
    sent = (
        "SELECT /*+ BROADCAST(flights) */ b FROM flights JOIN (SELECT explode(array(1, 2)) AS b) t ON a = b"
    )
    for real_time, kept in (("only", sent), ("auto", sent.replace("BROADCAST(flights)", "BROADCAST(t)"))):
        found = driver.analyse(altered(query, real_time=real_time, sql=kept))
        assert (found.error, found.real_time) == (
            ("the query cannot run in real time: it sends a stream to every task", False)
            if real_time == "only"
            else ("", True)
        )


@pytest.mark.extended
async def test_a_driver_killed_before_its_batch_was_taken_repeats_it(
    driver: DriverPeer, query: QuerySpec
) -> None:
    """By another one: the one that all tests share."""
    first = DriverPeer(usual_session())
    started, rows = first.start(1, query)
    before, got = rows.batch(ack=False)
    first.kill()
    run = next(runs)
    again, rows = driver.start(run, query)
    after, same = rows.batch(ack=False)
    assert (again.query, after.batch) == (started.query, before.batch)
    assert sorted(map(str, values(same))) == sorted(map(str, values(got)))
    rows.say(BatchTaken(batch=after.batch))
    assert driver.stop(run).error_kind is None


@pytest.mark.extended
async def test_rows_of_a_task_that_is_tried_again_count_once(query: QuerySpec) -> None:
    """Towards the bytes that a batch may have: the first attempt had most of them."""
    usual = usual_session()
    conf = {**usual.conf, "spark.sql.execution.arrow.maxRecordsPerBatch": "10"}
    driver = DriverPeer(msgspec.structs.replace(usual, master="local[2,3]", conf=conf))
    try:
        large = altered(query, sql="", transform="pipelines_of_tests:large_at_second", batch_bytes=150_000)
        _, rows = driver.start(1, large)
        assert sorted(row["a"] for row in values(rows.batch()[1])) == [*range(100)]
        assert driver.stop(1).error_kind is None
    finally:
        driver.close()
