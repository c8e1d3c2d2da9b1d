"""A gateway is killed with -9; its clients go on with another one, exactly behind their last event."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trio

from kiwi_demo.broker import Broker
from tests.integration.client import client
from tests.integration.gateway import gateway, kafka_config
from tests.integration.test_node import ROOT, node
from tests.offsets_of import offsets_of
from tests.topics import Topics

pytestmark = pytest.mark.integration

CLIENTS = ROOT / "docs" / "guides" / "clients.md"
PARTITIONS = 4
BEFORE, AFTER = 12_000, 4_000
EVERYTHING = {p: list(range((BEFORE + AFTER) // PARTITIONS)) for p in range(PARTITIONS)}
KILL_AT = 3_000
SMALL_WINDOW = {"events": 500}
"""Of the second gateway: what its clients ask for is not in it."""

NewTopic = Callable[[], str]


class Resuming:
    """A client that knows its positions and nothing else. seen: offsets by partition, as they came.

    It stands still after KILL_AT events, until `killed` is set.
    """

    def __init__(self, mode: str, killed: trio.Event) -> None:
        self.mode = mode
        self.seen: dict[int, list[int]] = {p: [] for p in range(PARTITIONS)}
        self.count = 0
        self.subscribed = trio.Event()
        self.halfway = trio.Event()
        self.resumed_at: dict[str, Any] | None = None
        self._killed = killed
        self._positions: dict[str, Any] | None = None

    async def run(self, topic: str, *addresses: str) -> None:
        for address in addresses:
            with suppress(OSError, trio.BrokenResourceError):  # what a killed process leaves behind
                await self._once(topic, address)

    async def _once(self, topic: str, address: str) -> None:
        async with client(address, topic) as one:
            begin = {"from": {"positions": self._positions}} if self._positions else {}
            opened = await one.subscribe(self.mode, **begin)
            if self._positions is not None:
                assert offsets_of(opened["positions"]) == offsets_of(self._positions)
                self.resumed_at = offsets_of(opened["positions"])
            self._positions = opened["positions"]
            self.subscribed.set()
            if self.mode == "pull":
                await one.say("REQUEST", n=10**6)
            more = True
            while more and self.count < BEFORE + AFTER:
                more = await one.read()
                self._take(one.results)
                if self.count >= KILL_AT:
                    self.halfway.set()
                    await self._killed.wait()

    def _take(self, results: list[dict[str, int]]) -> None:
        assert self._positions is not None
        for data in results:
            partition, offset = data["partition"], data["offset"]
            self.seen[partition].append(offset)
            self._positions[str(partition)] = offset + 1
        self.count += len(results)
        results.clear()


def folder(parent: Path, name: str) -> Path:
    made = parent / name
    made.mkdir()
    return made


async def test_nothing_is_lost_and_nothing_comes_twice(
    broker: Broker, topics: Topics, new_topic: NewTopic, tmp_path: Path
) -> None:
    topic = await topics.create(new_topic(), PARTITIONS)
    killed = trio.Event()
    clients = [Resuming(mode, killed) for mode in ("push", "pull") for _ in range(3)]
    config = kafka_config(broker.bootstrap, topic)
    async with (
        gateway(folder(tmp_path, "first"), config, killed=True) as first,
        gateway(folder(tmp_path, "second"), {**config, "window": SMALL_WINDOW}) as second,
    ):
        with trio.fail_after(50):
            async with trio.open_nursery() as nursery:
                for one in clients:
                    nursery.start_soon(one.run, topic, first.address, second.address)
                for one in clients:
                    await one.subscribed.wait()
                await topics.fill(topic, BEFORE, PARTITIONS)
                for one in clients:
                    await one.halfway.wait()
                first.process.kill()
                killed.set()
                await topics.fill(topic, AFTER, PARTITIONS)
    for one in clients:
        assert one.seen == EVERYTHING
        assert one.resumed_at is not None


async def test_who_asks_is_told_where_it_is(
    broker: Broker, topics: Topics, new_topic: NewTopic, tmp_path: Path
) -> None:
    topic = await topics.create(new_topic(), 1)
    await topics.fill(topic, BEFORE, 1)
    async with (
        gateway(tmp_path, kafka_config(broker.bootstrap, topic, window=SMALL_WINDOW)) as running,
        client(running.address, topic) as one,
    ):
        with trio.fail_after(30):
            wish: dict[str, Any] = {"from": "earliest", "positionsEveryMs": 100}
            opened = await one.subscribe(**wish)
            assert offsets_of(opened["positions"]) == {"0": 0}
            await topics.fill(topic, AFTER, 1)
            while not one.standings or one.standings[-1][0] < BEFORE + AFTER:
                assert await one.read(4_096)
    assert all(positions == {"0": events} for events, positions in one.standings)


class Lines:
    """What a process writes, line by line."""

    def __init__(self, stream: trio.abc.ReceiveStream) -> None:
        self._stream = stream
        self._rest = b""

    async def next(self) -> str:
        while b"\n" not in self._rest:
            chunk = await self._stream.receive_some()
            assert chunk, "the process has ended"
            self._rest += chunk
        line, self._rest = self._rest.split(b"\n", 1)
        return line.decode()


@asynccontextmanager
async def lines_of(command: list[str]) -> AsyncIterator[Lines]:
    run = partial(trio.run_process, command, stdout=subprocess.PIPE, check=False)
    async with trio.open_nursery() as nursery:
        process = await nursery.start(run)
        yield Lines(process.stdout)
        nursery.cancel_scope.cancel()


async def test_the_lines_of_the_documentation_in_node(
    broker: Broker, topics: Topics, new_topic: NewTopic, tmp_path: Path
) -> None:
    topic = await topics.create(new_topic(), PARTITIONS)
    seen: dict[int, list[int]] = {p: [] for p in range(PARTITIONS)}
    config = kafka_config(broker.bootstrap, topic)
    async with (
        gateway(folder(tmp_path, "first"), config, killed=True) as first,
        gateway(folder(tmp_path, "second"), {**config, "window": SMALL_WINDOW}) as second,
    ):
        harness = Path(__file__).parent / "resume_in_node.mjs"
        urls = [f"ws://{one.address}/" for one in (first, second)]
        with trio.fail_after(50):
            async with lines_of([node(), str(harness), str(CLIENTS), topic, *urls]) as lines:
                assert await lines.next() == "subscribed"
                count = again = 0
                await topics.fill(topic, BEFORE, PARTITIONS)
                while count < BEFORE + AFTER:
                    line = await lines.next()
                    if line == "subscribed":
                        again += 1
                        continue
                    if line == "dropped 0":  # it is behind
                        continue
                    partition, offset = map(int, line.split())
                    seen[partition].append(offset)
                    count += 1
                    if count == KILL_AT:
                        first.process.kill()
                        await topics.fill(topic, AFTER, PARTITIONS)
    assert again >= 1
    assert seen == EVERYTHING


async def test_the_lines_of_the_documentation_in_node_where_events_have_no_offsets(tmp_path: Path) -> None:
    config = {"sources": [{"type": "counter", "id": "ticks", "min": 0, "interval_ms": 5, "lazy": True}]}
    config["server"] = {"address": "127.0.0.1:0"}  # type: ignore[assignment]
    async with (
        gateway(folder(tmp_path, "first"), config, killed=True) as first,
        gateway(folder(tmp_path, "second"), config) as second,
    ):
        harness = Path(__file__).parent / "resume_in_node.mjs"
        urls = [f"ws://{one.address}/" for one in (first, second)]
        with trio.fail_after(50):
            async with lines_of([node(), str(harness), str(CLIENTS), "ticks", *urls]) as lines:
                assert await lines.next() == "subscribed"
                # Far enough that its place means nothing to the other gateway, where the counter begins anew.
                assert [await lines.next() for _ in range(100)] == [f"count {n}" for n in range(100)]
                first.process.kill()
                while (line := await lines.next()).startswith("count "):
                    pass
                assert line == "subscribed", "and not refused"
                assert await lines.next() == "count 0"


async def test_tail_resumes_by_itself(
    broker: Broker, topics: Topics, new_topic: NewTopic, tmp_path: Path
) -> None:
    topic = await topics.create(new_topic(), PARTITIONS)
    await topics.fill(topic, BEFORE, PARTITIONS)
    seen: dict[int, list[int]] = {p: [] for p in range(PARTITIONS)}
    config = kafka_config(broker.bootstrap, topic)
    with trio.fail_after(55):
        async with gateway(folder(tmp_path, "first"), config, killed=True) as first:
            options = ["--json", "--from", "earliest", "-n", str(BEFORE + AFTER)]
            command = [sys.executable, "-m", "kiwi_gw", "tail", first.address, topic, *options]
            async with lines_of(command) as lines:
                await read_into(seen, lines, KILL_AT)
                first.process.kill()
                await first.process.wait()
                await topics.fill(topic, AFTER, PARTITIONS)
                config["server"] = {"address": first.address}
                async with gateway(folder(tmp_path, "second"), config):
                    await read_into(seen, lines, BEFORE + AFTER - KILL_AT)
    assert seen == EVERYTHING


async def read_into(seen: dict[int, list[int]], lines: Lines, count: int) -> None:
    while count:
        message = json.loads(await lines.next())
        if message["type"] == "RESULT":
            seen[message["data"]["partition"]].append(message["data"]["offset"])
            count -= 1
        else:
            assert not message["data"].get("dropped"), message
