"""What is done to the parts of the demo, how it comes out, and how that looks."""

from __future__ import annotations

import io
from pathlib import Path
from typing import cast

import pytest
import trio
import trio.testing
from rich.console import Console

from kiwi_demo.broker import Broker
from kiwi_demo.gateway import Gateway
from kiwi_demo.loopback import BrokerError
from kiwi_demo.screen import Screen
from kiwi_demo.stage import Act, Stage
from kiwi_gw.client.address import parse_address
from kiwi_gw.client.messages import Event, Noticed
from kiwi_gw.dialects.kiwi.messages import Lag


class Part:
    """Stands for the broker and for the gateway: a process that is started and ended."""

    def __init__(self) -> None:
        self.log = Path("/dev/null")
        self.starts = 1
        self._over = trio.Event()

    async def start(self) -> None:
        self.starts += 1
        self._over = trio.Event()

    async def end(self) -> None:
        self._over.set()
        await trio.lowlevel.checkpoint()

    kill = end

    async def wait(self) -> int:
        await self._over.wait()
        return -9

    async def raise_when_ended(self) -> None:
        await self._over.wait()
        raise BrokerError("the gateway ended")


class Parts:
    def __init__(self, *, spark: bool = False) -> None:
        self.said: list[str] = []
        self.broker, self.gateway = Part(), Part()
        address = parse_address("127.0.0.1:1")
        broker, gateway = cast(Broker, self.broker), cast(Gateway, self.gateway)
        self.stage = Stage(broker, gateway, address, self.said.append, spark=spark, events=False)


def flight(partition: int, offset: int) -> Event:
    return Event("", {"partition": partition, "offset": offset, "value": "{}"})


async def test_a_part_that_is_ended_here_ends_nothing_else(autojump_clock: object) -> None:
    parts = Parts()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(parts.stage.raise_when_ended)
        await trio.testing.wait_all_tasks_blocked()
        await parts.stage.act(Act.RESTART)
        await parts.stage.act(Act.BREAK)
        await trio.testing.wait_all_tasks_blocked()
        nursery.cancel_scope.cancel()
    assert (parts.broker.starts, parts.gateway.starts) == (2, 2)
    assert parts.said == [
        "the gateway is restarted under its clients",
        "the gateway is there again",
        "kill -9 of the broker",
        "the broker is there again",
    ]


@pytest.mark.parametrize("name", ["broker", "gateway"])
async def test_a_part_that_ends_by_itself_ends_all(name: str, autojump_clock: object) -> None:
    parts = Parts()
    with pytest.RaisesGroup(BrokerError, flatten_subgroups=True):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(parts.stage.raise_when_ended)
            await trio.testing.wait_all_tasks_blocked()
            await parts.stage.act(Act.RESTART)
            await trio.testing.wait_all_tasks_blocked()
            await getattr(parts, name).end()
            await trio.sleep(60)


async def test_only_the_slow_ones_stall() -> None:
    stage = Parts().stage
    await stage.act(Act.STALL)
    assert ["stalled" in client.state for client in stage.clients] == [False, False, True, True]
    await stage.act(Act.GO_ON)
    assert not any("stalled" in client.state for client in stage.clients)


async def test_the_accounts() -> None:
    stage = Parts().stage
    stage.on_produced(3)
    for client in stage.clients[:3]:
        await client.take(flight(0, 0))
    await stage.clients[0].take(flight(0, 1))
    await stage.clients[0].take(flight(1, 0))
    await stage.clients[2].take(Noticed("", Lag("flights", 1, dropped=1)))
    await stage.clients[2].take(flight(0, 2))
    assert stage.account() == [
        "  3 flights were produced",
        "                     received  missed  announced  doubled  to come",
        "  push                      3       0          0        0        0",
        "  pull                      1       0          0        0        2",
        "  slow, drop_oldest         2       1          1        0        0",
        "  slow, replay              0       0          0        0        3",
    ]
    assert stage.mistakes() == []
    await stage.clients[3].take(flight(0, 2))
    assert stage.mistakes() == ["slow, replay: 2 flights were missed, 0 announced, and 0 came twice"]


async def test_caught_up_are_those_who_are_pushed_to() -> None:
    stage = Parts().stage
    stage.on_produced(1)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(stage.caught_up, 0)
        for client in stage.clients:
            await trio.testing.wait_all_tasks_blocked()
            assert nursery.child_tasks
            if client.plan.mode == "push":
                await client.take(flight(0, 0))


@pytest.mark.parametrize("spark", [False, True])
@pytest.mark.parametrize("width", [100, 200])
async def test_the_picture(width: int, spark: bool) -> None:
    stage = Parts(spark=spark).stage
    stage.on_produced(2)
    await stage.clients[0].take(flight(0, 0))
    await stage.act(Act.STALL)
    screen = Screen(stage, ["gateway ws://127.0.0.1:1/"])
    screen.story.append("both slow clients stop")
    console = Console(width=width, height=40, record=True, file=io.StringIO())
    console.print(screen.picture(width))
    picture = console.export_text()
    for words in ("push", "1 received, 1 to come", "slow, replay", "stalled", "both slow", "q quit", "ws://"):
        assert words in picture
    assert ("by Spark" in picture) == spark
    assert max(map(len, picture.splitlines())) <= width


async def test_a_restart_that_is_cut_off_is_no_end_of_a_part(autojump_clock: object) -> None:
    parts = Parts()

    async def never() -> None:
        await trio.sleep_forever()

    parts.gateway.start = never  # type: ignore[method-assign]
    async with trio.open_nursery() as nursery:
        nursery.start_soon(parts.stage.raise_when_ended)
        await trio.testing.wait_all_tasks_blocked()
        with trio.move_on_after(1):
            await parts.stage.act(Act.RESTART)
        await trio.testing.wait_all_tasks_blocked()
        nursery.cancel_scope.cancel()
    assert parts.said == ["the gateway is restarted under its clients"]
