"""The broker is killed with -9 and started again while 200,000 records flow to 20 push, 20 pull readers."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest
import trio

from kiwi_demo.broker import Broker
from tests.faults.checker import Verdict, judge, produced
from tests.integration.crowd import crowd
from tests.integration.feeder import PARTITIONS, Feeder, feeder
from tests.integration.gateway import gateway, kafka_config
from tests.integration.recording import Reader, Recording
from tests.topics import Topics

pytestmark = pytest.mark.integration

RECORDS = 200_000
STEP = 2_000
KILL_AFTER = 80_000
WINDOW = {"events": 250_000, "bytes": "256MiB", "memory_bytes": "1GiB", "encodings_bytes": "256MiB"}
CREDIT = 5_000
SERVED_AGAIN_WITHIN = 5.0
"""Seconds from the broker's return, which is when it answers, to the first event at every client."""


async def test_nothing_is_lost_doubled_or_reordered(
    own_broker: Broker, tmp_path: Path, figure: Callable[[str, object], None]
) -> None:
    topics = Topics(own_broker.bootstrap)
    topic = await topics.create("killed", partitions=PARTITIONS)
    config = kafka_config(own_broker.bootstrap, topic, window=WINDOW)
    config["server"] = {"address": ["127.0.0.1:0", f"unix:{tmp_path}/socket"]}

    async with gateway(tmp_path, config) as running:
        readers = [
            Reader(f"{mode} {n} on {address}", address, topic, mode, CREDIT)
            for address in running.addresses
            for mode in ("push", "pull")
            for n in range(10)
        ]
        fast, careful = readers[1:-1], [readers[0], readers[-1]]
        async with (
            crowd("raw", fast, RECORDS) as many,
            crowd("library", careful, RECORDS) as few,
            feeder(own_broker.bootstrap, topic, size=32) as producer,
            trio.open_nursery() as nursery,
        ):
            halfway = trio.Event()
            nursery.start_soon(_feed, producer, halfway)
            await halfway.wait()
            killed_at = time.monotonic()
            await own_broker.kill()
            await own_broker.start()
            back_at = time.monotonic()
            recordings = [*await many.finished(), *await few.finished()]

    everything = produced(await topics.end_offsets(topic))
    assert sum(map(len, everything.values())) == RECORDS, "the producer is idempotent"
    for recording in recordings:
        assert recording.faults == [], recording.name
        assert judge(recording.history, everything) == Verdict(), recording.name
    served = [_served_again(recording, killed_at, back_at) for recording in recordings]
    figure(
        "seconds from the broker's return to the first event, slowest of 40 readers", round(max(served), 2)
    )
    figure("seconds that the broker was away", round(back_at - killed_at, 1))
    assert max(served) < SERVED_AGAIN_WITHIN


async def _feed(producer: Feeder, halfway: trio.Event) -> None:
    """Step by step, so that the kill comes in the middle whatever the machine's speed."""
    while producer.sent < RECORDS:
        await producer.send(STEP)
        if producer.sent >= KILL_AFTER:
            halfway.set()


def _served_again(recording: Recording, killed_at: float, back_at: float) -> float:
    """Seconds; 0 for one that had an event before the broker's starter knew that it was back."""
    outages = [(end - start, end) for start, end in recording.pauses if start < back_at and end > killed_at]
    assert outages, f"{recording.name} did not notice that the broker was away: {recording.pauses}"
    return max(0.0, max(outages)[1] - back_at)
