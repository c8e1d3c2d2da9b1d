"""A connection that is over leaves nothing that only a collection of garbage would find.

What is old is as good as never looked at for that (`kiwi_gw.app`): everybody would wait.
"""

from __future__ import annotations

import gc
import json
from collections import Counter
from collections.abc import Iterator

import pytest
import trio

from tests.edge.bench import Bench, running
from tests.edge.wire import TEXT, command, frame

pytestmark = pytest.mark.usefixtures("no_tracebacks")


def topic(text: str) -> bytes:
    return frame(TEXT, json.dumps({"type": "subscribe", "topic": text}).encode())


@pytest.fixture
def garbage() -> Iterator[list[object]]:
    """What a collection finds is put here, and nothing is collected before."""
    gc.collect()
    gc.disable()
    gc.set_debug(gc.DEBUG_SAVEALL)
    yield gc.garbage
    gc.set_debug(0)
    gc.garbage.clear()
    gc.enable()


async def come_and_go(bench: Bench, path: str, messages: list[bytes]) -> None:
    async with bench.connect(path) as client:
        for message in messages:
            await client.send(message)
            await client.message()
    while bench.gateway.gateway.connections:
        await trio.lowlevel.checkpoint()


@pytest.mark.parametrize(
    ("path", "messages"),
    [
        ("/", []),
        ("/", [command("SUBSCRIBE", "a"), command("SUBSCRIBE", "b", mode="pull")]),
        ("/", [command("SUBSCRIBE", "a", where="offset > 5"), command("UNSUBSCRIBE", "a")]),
        ("/", [command("SUBSCRIBE", "a", select="offset AS x", where="offset > 5")]),
        ("/events", [topic("**")]),
        (
            "/events",
            [topic("**?where data.a > 1")],
        ),
    ],
)
async def test_a_connection_leaves_no_cycle(garbage: list[object], path: str, messages: list[bytes]) -> None:
    async with running() as bench:
        await come_and_go(bench, path, messages)  # what is made once, is
        gc.collect()
        garbage.clear()
        for _ in range(3):
            await come_and_go(bench, path, messages)
        for _ in range(10):
            await trio.lowlevel.checkpoint()
        gc.collect()
        left = Counter(f"{type(item).__module__}.{type(item).__qualname__}" for item in garbage)
        assert not left
