"""Slow is not dead: clients that read little or nothing while 200,000 records flow through a small window.

The producer waits for the healthy clients, as a live topic at a moderate rate would: at most `AHEAD`
records are on their way, less than the window holds. What is asked of the gateway is that the slow ones
change nothing for the others, cost no memory, and are told exactly what they did not get.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import trio

from kiwi_demo.broker import Broker
from tests.faults.checker import Lag, Verdict, judge, produced
from tests.integration.client import Client, client
from tests.integration.crowd import Crowd, crowd
from tests.integration.feeder import PARTITIONS, Feeder, feeder
from tests.integration.gateway import gateway, kafka_config
from tests.integration.recording import Reader
from tests.offsets_of import offsets_of
from tests.topics import Topics

pytestmark = pytest.mark.integration

RECORDS = 200_000
WARM_UP = 20_000
STEP = 1_000
AHEAD = 4_000
MIB = 2**20
WINDOW = {"events": 10_000, "bytes": "8MiB", "encodings_bytes": "8MiB"}

WINDOW_BYTES = 8 * MIB
ENCODINGS_BYTES = 8 * MIB
FETCHED_BYTES = 4 * MIB  # what the Kafka client has read ahead: max_partition_fetch_bytes of 4 partitions
KERNEL_BYTES = 200 * 1024  # of one client that reads nothing
CONNECTION_BYTES = 256 * 1024 + 16 * 1024  # one offer that is being sent, and the control queue
MARGIN = 16 * MIB  # what the allocator keeps, and everything else


async def test_they_are_told_exactly_what_they_missed_and_cost_nothing(
    broker: Broker,
    topics: Topics,
    new_topic: Callable[[], str],
    tmp_path: Path,
    figure: Callable[[str, object], None],
) -> None:
    topic = await topics.create(new_topic(), partitions=PARTITIONS)
    # Kafka's own default is to read on from its history, where nothing is missed.
    dropping = {"overflow": "drop_oldest"}
    config = kafka_config(broker.bootstrap, topic, window=WINDOW, subscriber=dropping)
    async with gateway(tmp_path, config) as running:
        address = running.address
        healthy = [Reader(f"push {n}", address, topic) for n in range(5)]
        healthy += [Reader(f"pull {n}", address, topic, "pull", 5_000) for n in range(5)]
        async with (
            crowd("raw", healthy, RECORDS) as many,
            feeder(broker.bootstrap, topic) as producer,
            client(address, topic, receive_buffer=16_384) as stalled,
            client(address, topic, receive_buffer=16_384) as quitter,
            client(address, topic, receive_buffer=4_096) as slow,
        ):
            await _feed(producer, many, WARM_UP)
            before, _ = running.memory()
            begins = [offsets_of((await one.subscribe())["positions"]) for one in (stalled, quitter, slow)]
            async with trio.open_nursery() as nursery:
                nursery.start_soon(_read_slowly, slow)
                await _feed(producer, many, RECORDS)
                nursery.cancel_scope.cancel()
            recordings = await many.finished()
            _, peak = running.memory()

            kernel = _unsent(running.port)
            # Said while nothing is read, answered when something is.
            await quitter.ping(b"still there?")
            await quitter.say("UNSUBSCRIBE")
            await quitter.reply("UNSUBSCRIBE_OK")
            assert quitter.pongs == [b"still there?"]
            await quitter.leave()

            first, quitter_first, slow_first = ({int(p): at for p, at in one.items()} for one in begins)
            for one, since in ((stalled, first), (slow, slow_first)):
                await _read_rest(one, RECORDS - sum(since.values()))
            # They were behind, not broken: what comes now they get at once.
            await producer.send(STEP)
            for one in (stalled, slow):
                await one.events(STEP)
                await one.leave()

    ends = await topics.end_offsets(topic)
    assert sum(ends.values()) == RECORDS + STEP
    all_of_them = produced({p: end - STEP // PARTITIONS for p, end in ends.items()})
    for recording in recordings:
        assert recording.faults == [], recording.name
        assert judge(recording.history, all_of_them) == Verdict(), recording.name
        assert recording.missed == 0, recording.name

    for one, since in ((stalled, first), (slow, slow_first)):
        assert one.recording.faults == []
        assert judge(one.recording.history, produced(ends, since)) == Verdict()
        assert one.recording.missed > RECORDS // 2
    # The quitter has had, or was told that it missed, everything up to a place in each partition.
    had = quitter.recording
    assert had.faults == []
    not_reached = judge(had.history, produced(ends, quitter_first)).lost
    reached = {p: next(iter(offsets))[0] for p, offsets in not_reached.items()}
    assert judge(had.history, produced(reached, quitter_first)) == Verdict()

    bound = WINDOW_BYTES + ENCODINGS_BYTES + FETCHED_BYTES + 13 * CONNECTION_BYTES
    figure(
        "growth of the gateway's resident size with three slow clients, MiB", round((peak - before) / MIB, 1)
    )
    figure("bound of that growth, MiB, without and with the margin", (bound / MIB, (bound + MARGIN) / MIB))
    figure("most unsent bytes that the kernel held for a slow client, KiB", round(kernel / 1024, 1))
    assert peak - before <= bound + MARGIN
    assert kernel <= KERNEL_BYTES


async def _feed(producer: Feeder, many: Crowd, upto: int) -> None:
    while producer.sent < upto:
        await many.passed(producer.sent - AHEAD)
        await producer.send(STEP)
    if upto < RECORDS:
        await many.passed(upto - STEP)


async def _read_slowly(slow: Client) -> None:
    """1 KB a second."""
    while True:
        await slow.read(1_000)
        await trio.sleep(1)


async def _read_rest(one: Client, total: int) -> None:
    while one.recording.events + one.recording.missed < total:
        assert await one.read()
    lags = [item for item in one.recording.history if isinstance(item, Lag)]
    assert all(lag.dropped is not None for lag in lags)
    assert lags[0].behind > 0
    # `count`: behind, and everything given up since it was last caught up, which it never was.
    given_up = 0
    for lag in lags:
        given_up += lag.dropped or 0
        assert lag.count == lag.behind + given_up


def _unsent(port: int) -> int:
    """The longest send queue of the connections that this port of 127.0.0.1 has accepted, in bytes."""
    rows = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    return max(int(row[4].split(":")[0], 16) for row in rows if row[1] == f"0100007F:{port:04X}")
