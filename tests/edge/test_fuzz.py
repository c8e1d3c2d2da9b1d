"""Random commands and random bytes at a live connection.

Commands are checked against a model of the protocol: every frame gets exactly one answer, in the order in
which they were sent; balances and events add up. Bytes are only checked for what must never happen: a hang,
a traceback, an answer that is no frame.
"""

from __future__ import annotations

import json
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest
import trio

from kiwi_gw.testing import GatewayUnderTest, ScriptedSources, open_gateway
from tests.edge.wire import (
    BINARY,
    CLOSE,
    CONTINUATION,
    PING,
    PONG,
    TEXT,
    Client,
    Over,
    command,
    connect,
    frame,
)

pytestmark = pytest.mark.usefixtures("no_tracebacks")

SOURCES = ("a", "b", "c", "held")
LARGEST = 2**53 - 1


@asynccontextmanager
async def running() -> AsyncIterator[tuple[GatewayUnderTest, ScriptedSources]]:
    """Three sources that run and one that never starts; no limit of rates, so that all is counted."""
    sources = ScriptedSources()
    sources["held"].hold()
    lots = 1_000_000
    limits = {
        "commands_per_second": lots,
        "commands_burst": lots,
        "requests_per_second": lots,
        "requests_burst": lots,
        "close_timeout_ms": 200,
    }
    config = {
        "plugins": ["scripted"],
        "server": {"limits": limits},
        "subscriber": {"subscribe_timeout_ms": 600_000},
        "sources": [{"type": "scripted", "id": name} for name in SOURCES],
    }
    async with open_gateway(json.dumps(config), plugins={"scripted": sources}) as gateway:
        yield gateway, sources


# --- commands -------------------------------------------------------------------------------------


@dataclass
class Subscription:
    """What the model knows of one: how much credit it was given, and what it was sent."""

    pull: bool
    opened_at: int
    granted: int = 0
    saturated: bool = False
    next: int = 0
    received: int = 0


@dataclass
class Model:
    """What the client must see. `published`: events so far, by source."""

    random: random.Random
    published: dict[str, int] = field(default_factory=lambda: dict.fromkeys(SOURCES, 0))
    subscriptions: dict[str, Subscription] = field(default_factory=dict)
    waiting: dict[str, list[str]] = field(default_factory=dict)  # of `held`: its commands without an answer

    def command(self) -> tuple[bytes, list[dict[str, Any]]]:
        """A command, and the answers that follow it: the parts of each that can be foretold."""
        pick = self.random.choice
        source = pick((*SOURCES, "a", "b", "nobody"))
        kind = pick(("SUBSCRIBE", "UNSUBSCRIBE", "REQUEST", "REQUEST"))
        if kind == "SUBSCRIBE":
            return self._subscribe(source)
        if kind == "UNSUBSCRIBE":
            return self._unsubscribe(source)
        return self._request(source)

    def _subscribe(self, source: str) -> tuple[bytes, list[dict[str, Any]]]:
        mode = self.random.choice(("push", "pull", "pull", "wrong", None))
        members: dict[str, object] = {} if mode is None else {"mode": mode}
        sent = command("SUBSCRIBE", source, **members)
        if source in self.subscriptions or source in self.waiting:
            return sent, [reply("SUBSCRIBE_ERROR", source)]
        if mode == "wrong" or source == "nobody":
            return sent, [reply("SUBSCRIBE_ERROR", source)]
        if source == "held":
            self.waiting[source] = [mode or "push"]
            return sent, []
        at = self.published[source]
        self.subscriptions[source] = Subscription(mode == "pull", at, next=at)
        return sent, [reply("SUBSCRIBE_OK", source)]

    def _unsubscribe(self, source: str) -> tuple[bytes, list[dict[str, Any]]]:
        sent = command("UNSUBSCRIBE", source)
        if source in self.waiting:
            _, *requests = self.waiting.pop(source)
            errors = [reply("REQUEST_ERROR", source) for _ in requests]
            # The REQUESTs are answered before or behind the SUBSCRIBE that they waited for.
            return sent, [reply("SUBSCRIBE_ERROR", source), *errors, reply("UNSUBSCRIBE_OK", source)]
        if self.subscriptions.pop(source, None) is None:
            return sent, [reply("UNSUBSCRIBE_ERROR", source)]
        return sent, [reply("UNSUBSCRIBE_OK", source)]

    def _request(self, source: str) -> tuple[bytes, list[dict[str, Any]]]:
        n = self.random.choice((1, 2, 7, 50, LARGEST, 0, -1, 1.5, True, None, "1", LARGEST + 1))
        sent = command("REQUEST", source, n=n)
        good = type(n) is int and 1 <= n <= LARGEST
        if source in self.waiting:
            if self.waiting[source][0] == "pull" and good:
                self.waiting[source].append("REQUEST")
                return sent, []
            return sent, [reply("REQUEST_ERROR", source)]
        subscription = self.subscriptions.get(source)
        if subscription is None or not subscription.pull or not good:
            return sent, [reply("REQUEST_ERROR", source)]
        assert isinstance(n, int)
        subscription.granted += n
        subscription.saturated = subscription.saturated or subscription.granted > LARGEST
        return sent, [reply("REQUEST_OK", source, n=n)]

    def result(self, data: dict[str, Any]) -> None:
        """An event has arrived: of a subscription that may get it, and the next one."""
        subscription = self.subscriptions[data["sourceId"]]
        assert data["offset"] == subscription.next, "no event is left out or doubled"
        assert data["offset"] < self.published[data["sourceId"]]
        subscription.next += 1
        subscription.received += 1
        if subscription.pull:
            assert subscription.received <= subscription.granted, "never more than was asked for"

    def due(self, source: str) -> int:
        """How many events a subscription still has to get."""
        subscription = self.subscriptions[source]
        there = self.published[source] - subscription.next
        if not subscription.pull:
            return there
        return min(there, subscription.granted - subscription.received)


def reply(kind: str, source: str, **members: object) -> dict[str, Any]:
    return {"type": kind, "data": {"sourceId": source, **members}}


async def commands(gateway: GatewayUnderTest, sources: ScriptedSources, seed: int, count: int) -> None:
    """Send commands in bursts, with batches in between; read everything, and compare."""
    model = Model(random.Random(seed))
    for name in SOURCES:
        model.published[name] = sources[name].positions[0]
    async with connect(gateway) as client:
        left = count
        while left:
            burst = min(left, model.random.choice((1, 1, 3, 10)))
            left -= burst
            for _ in range(burst):
                sent, expected = model.command()
                await client.send(sent)
                for item in expected:
                    await expect(client, model, item)
            if model.random.random() < 0.5:
                name = model.random.choice(SOURCES[:3])
                size = model.random.choice((1, 2, 20))
                await sources[name].publish([b"x"] * size)
                model.published[name] += size
        # At last everybody has had what is due, and nothing else comes.
        for name in model.subscriptions:
            while model.due(name):
                message = await client.message()
                assert message["type"] == "RESULT", message
                model.result(message["data"])
        assert await client.ask("UNSUBSCRIBE", "last") == {
            "type": "UNSUBSCRIBE_ERROR",
            "data": {
                "sourceId": "last",
                "error": "Source does not have an active subscription",
                "code": "not_subscribed",
            },
        }


async def expect(client: Client, model: Model, item: dict[str, Any]) -> None:
    """The next answer is this one; events may come before it."""
    while True:
        message = await client.message()
        if message["type"] == "RESULT":
            if message["data"]["sourceId"] in model.subscriptions:
                model.result(message["data"])
            else:  # it was on its way when its subscription was given up, but not behind the answer
                assert item["type"] == "UNSUBSCRIBE_OK"
            continue
        assert message["type"] == item["type"], (message, item)
        for name, value in item["data"].items():
            assert message["data"][name] == value, (message, item)
        if message["type"] == "REQUEST_OK":
            subscription = model.subscriptions[item["data"]["sourceId"]]
            if not subscription.saturated:
                assert message["data"]["credits"] == subscription.granted - subscription.received
        return


# --- bytes ----------------------------------------------------------------------------------------


def noise(dice: random.Random) -> bytes:
    """Something like a frame: mostly legal, sometimes not."""
    kind = dice.randrange(14)
    words = json.dumps(
        {
            "type": dice.choice(("SUBSCRIBE", "UNSUBSCRIBE", "REQUEST", "RESULT", 7, None)),
            "sourceId": dice.choice(("a", "b", "held", "nobody", "\x00", "é" * 200, 5)),
            dice.choice(("mode", "n", "x")): dice.choice(("pull", "push", 5, -1, 2**60, [1], {}, "\ud800")),
        }
    ).encode()
    whole = frame(TEXT, words)
    cut = dice.randrange(1, len(words))
    legal = (
        whole,
        whole,
        whole,
        frame(PING, dice.randbytes(dice.randrange(126))),
        frame(PONG, dice.randbytes(dice.randrange(126))),
        frame(TEXT, words[:cut], fin=False) + frame(PING, b"!") + frame(CONTINUATION, words[cut:]),
        frame(TEXT, b"", fin=False) + frame(CONTINUATION, b"", fin=False) * 20 + frame(CONTINUATION, words),
        whole * 30,
    )
    odd = (
        frame(TEXT, dice.randbytes(30)),
        frame(TEXT, words[:cut]),
        frame(BINARY, words),
        frame(CLOSE, dice.choice((b"", b"\x03", b"\x03\xe8", b"\x03\xe8\xff", b"\x13\x88ok"))),
        frame(dice.choice((3, 7, 11, 15)), b"x"),
        dice.choice(
            (
                dice.randbytes(40),
                frame(TEXT, words, mask=None),
                frame(PING, bytes(200)),
                whole[:3] + b"\xff" * 9,
            )
        ),
    )
    return dice.choice(legal) if kind < 12 else dice.choice(odd)


async def bytes_at_random(gateway: GatewayUnderTest, seed: int, count: int) -> None:
    """Send noise until the gateway has had enough, or `count` times. It must end, or answer a last ping."""
    dice = random.Random(seed)
    async with connect(gateway) as client:
        over = None
        answered = trio.Event()
        last = b"last%d" % seed

        async def read() -> None:
            nonlocal over
            try:
                while True:
                    item = await client.frame()
                    assert item.opcode == TEXT
                    message = json.loads(item.payload)
                    assert message["type"] in KINDS, message
            except Over as reason:
                over = reason
                answered.set()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(read)
            try:
                for _ in range(count):
                    await client.send(noise(dice))
                    if over is not None:
                        break
                await client.send(frame(PING, last))
            except trio.BrokenResourceError:
                pass
            while over is None and last not in client.pongs:
                await trio.lowlevel.checkpoint()
            nursery.cancel_scope.cancel()
        assert over is None or over.code in (None, 1000, 1002, 1003, 1005, 1007, 1008, 1009, 5000), over


KINDS = {
    f"{kind}_{outcome}" for kind in ("SUBSCRIBE", "UNSUBSCRIBE", "REQUEST") for outcome in ("OK", "ERROR")
} | {"RESULT", "NOTICE"}


# --- the tests ------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(4))
async def test_every_command_gets_exactly_one_answer(seed: int) -> None:
    async with running() as (gateway, sources):
        with trio.fail_after(30):
            await commands(gateway, sources, seed, 120)


async def test_noise_never_hangs_a_connection() -> None:
    async with running() as (gateway, _):
        with trio.fail_after(30):
            for seed in range(12):
                await bytes_at_random(gateway, seed, 20)
        await nothing_is_left(gateway)


@pytest.mark.integration
async def test_ten_thousand_commands() -> None:
    async with running() as (gateway, sources):
        with trio.fail_after(90):
            for seed in range(100, 120):
                await commands(gateway, sources, seed, 500)
        await nothing_is_left(gateway)


@pytest.mark.integration
async def test_ten_thousand_pieces_of_noise() -> None:
    async with running() as (gateway, sources):
        with trio.fail_after(90):
            async with trio.open_nursery() as nursery:
                scope = nursery.cancel_scope

                async def feed() -> None:
                    while True:
                        await sources["a"].publish([b"x" * 300] * 20)
                        await trio.sleep(0.005)

                nursery.start_soon(feed)
                sent = 0
                async with trio.open_nursery() as clients:
                    slots = trio.CapacityLimiter(8)

                    async def one(seed: int) -> None:
                        async with slots:
                            await bytes_at_random(gateway, seed, 30)

                    for seed in range(1_000, 2_000):
                        sent += 30
                        clients.start_soon(one, seed)
                assert sent >= 10_000
                scope.cancel()
        await nothing_is_left(gateway)


async def nothing_is_left(gateway: GatewayUnderTest) -> None:
    """Every connection is gone and has let go of its subscriptions."""
    with trio.fail_after(5):
        while gateway.gateway.connections:
            await trio.lowlevel.checkpoint()
    assert [runner.hub.subscribers for runner in gateway.gateway.runners()] == [0] * len(SOURCES)
