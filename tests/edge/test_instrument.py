"""The hot path, asserted: it wakes no task of a caught-up subscriber, and encodes once per wire key."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import AsyncExitStack

import pytest
import trio
import trio.testing

from kiwi_gw.dialects.kiwi import results
from kiwi_gw.model import Batch, Encoded, WireFormat
from kiwi_gw.testing import ScriptedSources, open_gateway
from tests.edge.wire import command, connect

pytestmark = pytest.mark.usefixtures("no_tracebacks")

CONFIG = json.dumps(
    {
        "plugins": ["scripted"],
        "sources": [{"type": "scripted", "id": "a"}, {"type": "scripted", "id": "b"}],
    }
)


class Schedule(trio.abc.Instrument):
    """Notes which tasks are run while it is `on`."""

    def __init__(self) -> None:
        self.ran: list[str] = []
        self.on = False

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        if self.on:
            self.ran.append(task.name)

    def of(self, part: str) -> list[str]:
        return [name for name in self.ran if part in name]


OF_A_CONNECTION = ("Listener._serve", "WebSocketWriter._drain")


@pytest.mark.parametrize("mode", ["push", "pull"])
async def test_a_batch_schedules_no_task_of_a_caught_up_subscriber(mode: str) -> None:
    sources = ScriptedSources()
    schedule = Schedule()
    async with open_gateway(CONFIG, plugins={"scripted": sources}) as gateway, AsyncExitStack() as stack:
        clients = [await stack.enter_async_context(connect(gateway)) for _ in range(50)]
        for client in clients:
            await client.subscribe("a", mode=mode)
            if mode == "pull":
                await client.ask("REQUEST", "a", n=10_000)
        # The tasks of the connections are all there, and wait for their clients.
        await trio.testing.wait_all_tasks_blocked()
        trio.lowlevel.add_instrument(schedule)
        try:
            schedule.on = True
            for _ in range(20):
                await sources["a"].publish([b"x" * 100] * 10)
            schedule.on = False
        finally:
            trio.lowlevel.remove_instrument(schedule)
        assert schedule.of("SourceRunner.run")
        assert [name for part in OF_A_CONNECTION for name in schedule.of(part)] == []
        for client in clients:
            offsets = [(await client.message())["data"]["offset"] for _ in range(200)]
            assert offsets == [*range(200)]


async def test_the_names_looked_for_above_are_those_of_a_connection() -> None:
    """What the test above would see if a subscriber's tasks ran."""
    sources = ScriptedSources()
    schedule = Schedule()
    async with open_gateway(CONFIG, plugins={"scripted": sources}) as gateway, connect(gateway) as client:
        await client.subscribe("a")
        trio.lowlevel.add_instrument(schedule)
        try:
            schedule.on = True
            await client.ask("UNSUBSCRIBE", "a")
            await client.subscribe("a")
            for _ in range(60):  # more than the socket takes: a drain task is needed
                await sources["a"].publish([b"x" * 10_000] * 20)
            while (await client.message())["data"].get("offset") != 1199:
                pass
            schedule.on = False
        finally:
            trio.lowlevel.remove_instrument(schedule)
        seen = {part for part in OF_A_CONNECTION if schedule.of(part)}
        assert seen == set(OF_A_CONNECTION)


@pytest.fixture
def fresh_formats() -> Iterator[None]:
    """Wire formats are made once per source and kept: here they are made anew, and not kept."""
    results._wire.cache_clear()
    yield
    results._wire.cache_clear()


@pytest.mark.usefixtures("fresh_formats")
async def test_the_encoder_is_called_once_per_batch_and_wire_key(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[tuple[object, int]] = []
    original = WireFormat.__init__

    def counting(self: WireFormat, key: object, encode: object, join: object = None) -> None:
        def counted(batch: Batch) -> Encoded:
            calls.append((key, len(batch)))
            answer: Encoded = encode(batch)  # type: ignore[operator]
            return answer

        original(self, key, counted, join)  # type: ignore[arg-type]

    monkeypatch.setattr(WireFormat, "__init__", counting)
    sources = ScriptedSources()
    async with open_gateway(CONFIG, plugins={"scripted": sources}) as gateway, AsyncExitStack() as stack:
        clients = [await stack.enter_async_context(connect(gateway)) for _ in range(20)]
        for number, client in enumerate(clients):
            for source in ("a", "b"):
                await client.subscribe(source, mode="pull" if number % 2 else "push")
                if number % 2:
                    await client.ask("REQUEST", source, n=3 if number % 4 == 3 else 1_000)
        for size in (1, 10, 100):
            await sources["a"].publish([b"x"] * size)
            await sources["b"].publish([b"y"] * size)
        # Those with little credit read on from the window: from what was encoded for the others.
        for client in clients[3::4]:
            for source in ("a", "b"):
                await client.send(command("REQUEST", source, n=1_000))
        for client in clients:
            seen: dict[str, list[int]] = {"a": [], "b": []}
            while len(seen["a"]) + len(seen["b"]) < 222:
                message = await client.message()
                if message["type"] == "RESULT":
                    seen[message["data"]["sourceId"]].append(message["data"]["offset"])
            assert seen == {"a": [*range(111)], "b": [*range(111)]}
        assert len({key for key, _ in calls}) == 2, "one wire key per source"
        assert sorted(size for _, size in calls) == [1, 1, 10, 10, 100, 100]
        memo = gateway.gateway.encodings
        assert memo.misses == len(calls)
        assert memo.events_encoded == 222
