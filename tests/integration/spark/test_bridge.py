"""Sources of the gateway as inputs of real Spark queries, through the bridge."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kiwi_gw.demo.broker import Broker
from kiwi_gw.demo.topics import Record, Topics
from tests.integration.spark.bridging import QueryDriver, bridged
from tests.unit.runtime.listening import config, listening

pytestmark = [pytest.mark.integration, pytest.mark.extended, pytest.mark.timeout(600)]

COUNTER = "  - {type: counter, id: ticks, min: 1, max: 3000, interval_ms: 1, lazy: true}\n"
SUM = """
SELECT sum(count) AS total, count(*) AS counted, max(count) AS most
FROM (SELECT from_json(CAST(value AS STRING), 'count BIGINT').count AS count FROM events)
"""


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Iterator[QueryDriver]:
    """The one that all tests share."""
    running = QueryDriver(tmp_path_factory.mktemp("bridge-driver"))
    yield running
    running.end()


async def test_a_counter_is_summed_exactly(driver: QueryDriver, tmp_path: Path) -> None:
    text = config().replace("[scripted", "[counter, scripted") + COUNTER
    async with (
        listening(text) as (_, _, read),
        bridged(tmp_path, read) as (bridge, _),
        bridge.query(driver, "sum", "ticks", {"max": 500}, sql=SUM, mode="complete"),
    ):
        rows = await bridge.until("sum", lambda rows: bool(rows) and rows[-1].get("most") == 3000)
    assert rows[-1] == {"total": 3000 * 3001 // 2, "counted": 3000, "most": 3000}
    assert bridge.losses == []
    for row in rows:  # and at every moment before
        counted = row["counted"]
        assert (row.get("most", 0), row.get("total", 0)) == (counted, counted * (counted + 1) // 2)


async def test_a_topic_read_through_the_gateway_is_exact_across_the_death_of_the_driver(
    driver: QueryDriver, tmp_path: Path, broker: Broker, topics: Topics, new_topic: Callable[[], str]
) -> None:
    topic = await topics.create(new_topic(), 3)
    records = [Record(b"%d" % n, key=b"k%d" % n, partition=n % 3) for n in range(4_000)]
    await topics.produce(topic, records[:3_000])
    text = config().replace("[scripted", "[kafka, scripted")
    text += f"  - {{type: kafka, id: all, topic: {topic}}}\n"
    text += f"kafka: {{bootstrap_servers: '{broker.bootstrap}'}}\nwindow: {{events: 100}}\n"
    async with listening(text) as (_, _, read), bridged(tmp_path, read) as (bridge, _):
        doomed = QueryDriver(tmp_path)
        try:
            async with bridge.query(doomed, "topic", "all", {"max": 700}, die_in=2):
                # With its rows kept, before Spark knew of it.
                assert await bridge.ended("topic") == "killed"
        finally:
            doomed.end()
        await topics.produce(topic, records[3_000:])
        async with bridge.query(driver, "topic", "all", {"max": 700}):
            rows = await bridge.until("topic", lambda rows: len(rows) >= 4_000)
    assert bridge.losses == []
    found = sorted((int(row["v"]), row["k"], row["_partition"]) for row in rows)
    assert found == [(n, f"k{n}", n % 3) for n in range(4_000)]
    attempts = {
        batch: [sorted(map(str, rows)) for rows in tries] for batch, tries in bridge.batches("topic").items()
    }
    assert [batch for batch, tries in attempts.items() if len(tries) > 1] == [2]
    first, second = attempts[2]
    assert first == second != []


async def test_whatever_happens_to_the_source_meanwhile_is_survived_without_loss(
    driver: QueryDriver, tmp_path: Path
) -> None:
    news = "id: news"
    async with (
        listening(config(news)) as (gateway, scripted, read),
        bridged(tmp_path, read) as (bridge, nursery),
    ):

        async def publish(first: int, size: int) -> None:
            await scripted["news"].publish([b"%d" % n for n in range(first, first + size)])

        async def arrive(count: int) -> None:
            rows = await bridge.until("news", lambda rows: len(rows) >= count)
            assert sorted(int(row["v"]) for row in rows) == list(range(count))

        async def apply(text: str) -> None:
            gateway.file.write_text(text)
            assert await gateway.reloader.reload()

        async with bridge.query(driver, "news", "news"):
            await publish(0, 100)
            await arrive(100)
            await publish(100, 50)
            await apply(config("id: news, note: altered"))
            await publish(150, 50)
            await arrive(200)
            await apply(config())
            await apply(config(news))
            await publish(200, 50)
            await arrive(250)
            await bridge.close()
            await publish(250, 50)
            await bridge.open(nursery)
            await arrive(300)
    assert bridge.losses == []


async def test_a_query_that_runs_once_takes_all_there_is(driver: QueryDriver, tmp_path: Path) -> None:
    text = config("id: news", more="window: {events: 100}\n")
    async with (
        listening(text, replayable=True) as (_, scripted, read),
        bridged(tmp_path, read) as (bridge, _),
    ):
        for first in range(0, 2_000, 100):
            await scripted["news"].publish([b"%d" % n for n in range(first, first + 100)])
        async with bridge.query(driver, "once", "news", {"max": 0}, once=True):
            assert await bridge.ended("once") == "", bridge.log("once")
        assert sorted(int(row["v"]) for row in bridge.rows("once")) == list(range(2_000))
