"""More queries than cores, all busy: every one of them goes on, whatever its name."""

from __future__ import annotations

import json
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kiwi_demo.broker import Broker
from kiwi_spark.java.classes import jars_conf
from kiwi_spark.protocol.query_spec import QuerySpec, SessionSpec, StreamInput
from tests.integration.spark.driver_peer import DriverPeer, RowsTalk
from tests.integration.spark.shared_classes import small_jvm
from tests.topics import Record, Topics

pytestmark = [pytest.mark.integration, pytest.mark.extended, pytest.mark.timeout(300)]

NAMES = ("a", "b", "c", "d")
PARTITIONS = 4
BATCHES = 40
"""Of all queries together."""

WORK = "SELECT n, java_method('java.lang.Thread', 'sleep', 100L) AS slept FROM flights"
"""Holds Spark's one core for 100 ms a record, and no processor: what else this machine does is no matter."""


@pytest.fixture
def driver() -> Iterator[DriverPeer]:
    """With one core."""
    conf = {
        **jars_conf(),
        "spark.driver.memory": "1g",
        "spark.driver.extraJavaOptions": small_jvm(),
    }
    peer = DriverPeer(SessionSpec(master="local[1]", conf=conf))
    yield peer
    peer.close()


class Tally:
    """Batches by query, counted by a thread for each until there are enough."""

    def __init__(self, enough: int) -> None:
        self._enough = enough
        self._lock = threading.Lock()
        self.counts: Counter[str] = Counter()
        self.full = threading.Event()

    def take(self, name: str, rows: RowsTalk) -> None:
        while not self.full.is_set():
            try:
                rows.batch()
            except (EOFError, OSError):  # the driver is gone: the others had enough
                return
            with self._lock:
                self.counts[name] += 1
                if self.counts.total() >= self._enough:
                    self.full.set()


async def test_queries_that_are_all_busy_go_on_alike(
    driver: DriverPeer,
    broker: Broker,
    topics: Topics,
    new_topic: Callable[[], str],
    tmp_path: Path,
    figure: Callable[[str, object], None],
) -> None:
    topic = await topics.create(new_topic(), PARTITIONS)
    records = [Record(json.dumps({"n": n}).encode(), partition=n % PARTITIONS) for n in range(400)]
    await topics.produce(topic, records)
    item = StreamInput(
        source=topic,
        format="json",
        schema="n BIGINT",
        start="earliest",
        kafka={"kafka.bootstrap.servers": broker.bootstrap, "subscribe": topic},
        max_offsets=PARTITIONS,
    )
    tally = Tally(BATCHES)
    threads = []
    for run, name in enumerate(NAMES, 1):
        checkpoint = str(tmp_path / "state")
        query = QuerySpec(
            source=name, streams={"flights": item}, sql=WORK, checkpoint=checkpoint, trigger="0 milliseconds"
        )
        _, rows = driver.start(run, query)
        threads.append(threading.Thread(target=tally.take, args=(name, rows)))
    for thread in threads:
        thread.start()
    assert tally.full.wait(150)
    driver.kill()
    for thread in threads:
        thread.join()
    figure("batches of each of four busy queries on one core", dict(tally.counts))
    assert set(tally.counts) == set(NAMES)
    assert max(tally.counts.values()) <= 2 * min(tally.counts.values())
