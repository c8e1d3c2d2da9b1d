"""A client that does not read, and one that reads slowly: what they get, and what the others get."""

from __future__ import annotations

import json
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import trio
import trustme

from kiwi_gw.testing import GatewayUnderTest, ScriptedSources, open_gateway
from tests.edge.wire import PING, Client, command, connect, frame

pytestmark = pytest.mark.usefixtures("no_tracebacks")

WINDOW = 400
BATCH = 50
VALUE = b"x" * 300
SMALL = 4 * 1024


@dataclass
class Bench:
    gateway: GatewayUnderTest
    sources: ScriptedSources
    tls: ssl.SSLContext | None
    produced: dict[int, int] = field(default_factory=lambda: {0: 0, 1: 0})

    def connect(self, receive_buffer: int | None = SMALL) -> Any:
        return connect(self.gateway, receive_buffer=receive_buffer, tls=self.tls)

    async def publish(self) -> None:
        """One batch, to the two partitions in turn."""
        partition = 0 if self.produced[0] <= self.produced[1] else 1
        await self.sources["a"].publish([VALUE] * BATCH, partition=partition)
        self.produced[partition] += BATCH

    def stalled(self) -> int:
        """How many connections have something to write that their clients do not take."""
        return sum(connection.writer.full for connection in self.gateway.gateway.connections)


@asynccontextmanager
async def running(
    kind: str, folder: Path, *, replayable: bool = False, **subscriber: object
) -> AsyncIterator[Bench]:
    server: dict[str, object] = {"limits": {"unsent_bytes": 16 * 1024}}
    tls = None
    if kind == "tls":
        authority = trustme.CA()
        certificate = authority.issue_cert("gateway.test")
        certificate.cert_chain_pems[0].write_to_path(folder / "cert.pem")
        certificate.private_key_pem.write_to_path(folder / "key.pem")
        server["tls"] = {"cert": str(folder / "cert.pem"), "key": str(folder / "key.pem")}
        tls = ssl.create_default_context()
        authority.configure_trust(tls)
    sources = ScriptedSources(replayable=replayable)
    sources["a"].positions.update({0: 0, 1: 0})
    config = {
        "plugins": ["scripted"],
        "server": server,
        "window": {"events": WINDOW},
        "subscriber": subscriber,
        "sources": [{"type": "scripted", "id": "a"}],
    }
    address = f"unix:{folder}/kiwi.sock" if kind == "unix" else "127.0.0.1:0"
    async with open_gateway(json.dumps(config), plugins={"scripted": sources}, address=address) as gateway:
        with trio.fail_after(60):
            yield Bench(gateway, sources, tls)


class Account:
    """Checks what one subscription is told: every event once and in order, or given up and announced.

    A notice of a loss begins where the client is, comes before the next event, and says how many.
    """

    def __init__(self) -> None:
        self.next = {0: 0, 1: 0}
        self.got = 0
        self.given_up = 0
        self.lags: list[dict[str, Any]] = []

    def add(self, message: dict[str, Any]) -> None:
        data = message["data"]
        if message["type"] == "RESULT":
            assert data["offset"] == self.next[data["partition"]], "left out without a word, or doubled"
            self.next[data["partition"]] += 1
            self.got += 1
            return
        assert message["type"] == "NOTICE", message
        assert data["type"] == "LAG", message
        self.lags.append(data)
        lost = 0
        for name, (first, last) in data["ranges"].items():
            assert first == self.next[int(name)], (message, self.next)
            self.next[int(name)] = last + 1
            lost += last + 1 - first
        assert data["dropped"] == lost
        assert data["count"] >= data["behind"]
        assert data["positions"] == {name: self.next[int(name)] for name in ("0", "1")}
        self.given_up += lost

    @property
    def total(self) -> int:
        return self.got + self.given_up


async def read(client: Client, account: Account, until: int) -> None:
    """Read until so many events are accounted for."""
    while account.total < until:
        account.add(await client.message())


KINDS = ["tcp", "unix", "tls"]


@pytest.mark.parametrize("kind", KINDS)
async def test_the_others_get_everything_and_the_slow_know_exactly_what_they_did_not_get(
    kind: str, tmp_path: Path
) -> None:
    async with (
        running(kind, tmp_path) as bench,
        bench.connect(None) as healthy,
        bench.connect() as never,
        bench.connect() as slow,
    ):
        for client in (healthy, never, slow):
            await client.subscribe("a")
        slow.read_bytes = 1024
        everything, little, nothing = Account(), Account(), Account()
        batches = 120
        for number in range(batches):
            await bench.publish()
            await read(healthy, everything, (number + 1) * BATCH)
            little.add(await slow.message())
        total = batches * BATCH
        assert (everything.got, everything.given_up, everything.lags) == (total, 0, [])
        assert bench.stalled() == 2
        slow.read_bytes = 64 * 1024
        async with trio.open_nursery() as nursery:
            nursery.start_soon(read, never, nothing, total)
            nursery.start_soon(read, slow, little, total)
        for account in (little, nothing):
            assert account.total == total
            assert account.given_up > total / 4, "it was far slower than the source"
            assert account.got >= WINDOW - BATCH, "at least what the window held is sent"
        # The two are as good as new.
        await bench.publish()
        for client, account in ((healthy, everything), (never, nothing), (slow, little)):
            lags = len(account.lags)
            await read(client, account, total + BATCH)
            assert len(account.lags) == lags
        for connection in bench.gateway.gateway.connections:
            assert not connection.writer.full
            assert connection.writer.writable


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
async def test_nobody_misses_anything_that_the_source_still_has(kind: str, tmp_path: Path) -> None:
    async with (
        running(kind, tmp_path, replayable=True, lag_notice_interval_ms=100) as bench,
        bench.connect(None) as healthy,
        bench.connect() as never,
        bench.connect() as slow,
        bench.connect() as pulling,
    ):
        for client in (healthy, never, slow):
            assert (await client.subscribe("a"))["overflow"] == "replay"
        await pulling.subscribe("a", mode="pull")
        slow.read_bytes = 1024
        everything, little, nothing, pulled = Account(), Account(), Account(), Account()
        batches = 120
        for number in range(batches):
            await bench.publish()
            await read(healthy, everything, (number + 1) * BATCH)
            little.add(await slow.message())
        total = batches * BATCH
        slow.read_bytes = 64 * 1024
        await pulling.send(command("REQUEST", "a", n=10 * total))

        async def read_answered(client: Client, account: Account) -> None:
            while account.total < total:
                message = await client.message()
                if message["type"] != "REQUEST_OK":
                    account.add(message)

        async with trio.open_nursery() as nursery:
            for client, account in ((never, nothing), (slow, little), (pulling, pulled)):
                nursery.start_soon(read_answered, client, account)
        for account in (everything, little, nothing, pulled):
            assert (account.got, account.given_up) == (total, 0)
        (runner,) = bench.gateway.gateway.runners()
        assert runner.hub.events_replayed > total
        await bench.publish()
        for client, account in ((healthy, everything), (never, nothing), (slow, little), (pulling, pulled)):
            await read(client, account, total + BATCH)
        assert runner.hub.replaying == runner.hub.behind == 0


@pytest.mark.parametrize("kind", KINDS)
async def test_commands_and_pings_of_a_stalled_client_work_once_it_reads(kind: str, tmp_path: Path) -> None:
    async with running(kind, tmp_path) as bench, bench.connect() as client:
        await client.subscribe("a")
        while not bench.stalled():
            await bench.publish()
        for _ in range(20):
            await bench.publish()
        await client.send(frame(PING, b"first"))
        await client.send(command("UNSUBSCRIBE", "a") + frame(PING, b"second"))
        account = Account()
        while (message := await client.message())["type"] != "UNSUBSCRIBE_OK":
            account.add(message)
        assert account.got > 0
        await bench.publish()
        reply = await client.ask("SUBSCRIBE", "a")  # and nothing of the old subscription before it
        assert reply["type"] == "SUBSCRIBE_OK"
        assert client.pongs[-1] == b"second"
        assert reply["data"]["positions"] == {str(p): n for p, n in bench.produced.items()}


async def test_a_stalled_client_may_send_commands_until_its_lane_is_full(tmp_path: Path) -> None:
    async with running("tcp", tmp_path) as bench, bench.connect() as client:
        await client.subscribe("a")
        while not bench.stalled():
            await bench.publish()
        (connection,) = bench.gateway.gateway.connections
        asked = 150  # within its burst
        with trio.move_on_after(5):
            await client.send(command("UNSUBSCRIBE", "nobody") * asked)
        replies = 0
        while replies < asked:
            message = await client.message()
            replies += message["type"] == "UNSUBSCRIBE_ERROR"
        assert connection.writer.close_code is None


async def test_the_policy_close_ends_a_subscription_and_says_how_much_it_did_not_get(tmp_path: Path) -> None:
    async with (
        running("tcp", tmp_path, overflow="close", buffer_capacity=100) as bench,
        bench.connect() as client,
        bench.connect(None) as healthy,
    ):
        everything, account = Account(), Account()
        await client.subscribe("a")
        await healthy.subscribe("a")
        batches = 0
        while sum(runner.hub.subscribers for runner in bench.gateway.gateway.runners()) == 2:
            await bench.publish()
            batches += 1
            await read(healthy, everything, batches * BATCH)
        while (message := await client.message())["data"].get("type") != "SUBSCRIPTION_CLOSED":
            account.add(message)
        data = message["data"]
        assert data["reason"] == "overflow"
        assert {int(name): offset for name, offset in data["positions"].items()} == account.next
        assert account.got + data["dropped"] >= everything.got - BATCH
        assert account.got + data["dropped"] <= everything.got
        await client.subscribe("a")


async def test_memory_of_a_stalled_connection_is_bounded(tmp_path: Path) -> None:
    async with running("tcp", tmp_path) as bench, bench.connect() as client:
        await client.subscribe("a")
        for _ in range(200):
            await bench.publish()
        (connection,) = bench.gateway.gateway.connections
        writer: Any = connection.writer
        waiting = len(writer._partial_frame) + writer._control_bytes + len(writer._pong or b"")
        assert waiting < 1024, "the rest of one frame"
