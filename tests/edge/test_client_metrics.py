"""What `/metrics` says of clients: what they sent, what they were told off for, how long they waited."""

from __future__ import annotations

import json
import uuid
from typing import Any

import pytest
import trio

from kiwi_gw.edge.metrics.catalog import CATALOG
from kiwi_gw.edge.metrics.snapshot import MetricsSnapshot
from kiwi_gw.testing import ScriptedSources, open_gateway
from tests.edge.admin import Samples, ask, scrape, value
from tests.edge.wall import Arrivals
from tests.edge.wire import BINARY, CLOSE, CONTINUATION, PING, PONG, TEXT, Client, command, connect, frame

pytestmark = pytest.mark.usefixtures("no_tracebacks")


def gateway_on(**limits: int) -> Any:
    config = {
        "plugins": ["scripted"],
        "server": {"limits": limits},
        "sources": [{"type": "scripted", "id": "news"}],
    }
    return open_gateway(json.dumps(config), plugins={"scripted": ScriptedSources()}, admin="127.0.0.1:0")


async def test_what_clients_send_is_counted() -> None:
    pieces = [
        frame(TEXT, b'{"type": "SUBSCRIBE", ', fin=False),
        frame(CONTINUATION, b'"sourceId": "news"}'),
        frame(PING, b"x"),
        frame(PONG),
        command("UNSUBSCRIBE", "news"),
        frame(CLOSE, b"\x03\xe8"),
    ]
    async with gateway_on() as gateway:
        async with connect(gateway) as client:
            for piece in pieces:
                await client.send(piece)
            assert (await client.over()).code == 1000
        found = await scrape(gateway.admin_address)
    opcodes = {"text": 2, "continuation": 1, "ping": 1, "pong": 1, "close": 1, "binary": 0}
    for opcode, count in opcodes.items():
        assert value(found, "frames_received_total", dialect="kiwi", opcode=opcode) == count, opcode
    assert value(found, "received_bytes_total", transport="ws") == sum(map(len, pieces))
    for name in ("subscribe", "unsubscribe"):
        assert value(found, "command_duration_seconds_count", dialect="kiwi", command=name) == 1
    assert value(found, "ping_rtt_seconds_count", transport="ws") == 0, "nobody had asked for that pong"
    assert not [name for name, _ in found if "protocol_errors" in name]


@pytest.mark.parametrize(
    ("data", "kind"),
    [
        (frame(BINARY, b"{}"), "binary"),
        (frame(TEXT, b"no JSON"), "message"),
        (frame(TEXT, b"\xff"), "not_utf8"),
        (frame(TEXT, bytes(65 * 1024)), "too_large"),
        (frame(TEXT, b"x", mask=None), "framing"),
        (frame(TEXT, b"", fin=False) + frame(CONTINUATION, b"", fin=False) * 2, "too_many_fragments"),
    ],
)
async def test_what_breaks_the_protocol(data: bytes, kind: str) -> None:
    async with gateway_on(max_fragments=2) as gateway:
        async with connect(gateway) as client:
            await client.send(data)
            await client.over()
        found = await scrape(gateway.admin_address)
        assert value(found, "protocol_errors_total", dialect="kiwi", kind=kind) == 1
        assert len([name for name, _ in found if "protocol_errors" in name]) == 1
        assert not [name for name, _ in found if "rate_limited" in name]


@pytest.mark.parametrize(
    ("limits", "kind", "sent"),
    [
        ({"commands_per_second": 1, "commands_burst": 2}, "commands", command("UNSUBSCRIBE", "news")),
        ({"requests_per_second": 1, "requests_burst": 2}, "requests", command("REQUEST", "news", n=1)),
    ],
)
async def test_what_comes_too_often(
    limits: dict[str, int], kind: str, sent: bytes, arrivals: Arrivals
) -> None:
    async with gateway_on(**limits) as gateway, connect(gateway) as client:
        await client.send(sent * 5)
        for _ in range(5):
            await client.message()
        found = await scrape(gateway.admin_address)
        assert value(found, "rate_limited_total", kind=kind) == 3
        assert not [name for name, _ in found if "protocol_errors" in name]


async def test_an_idle_client_is_pinged_and_its_pong_measured() -> None:
    async with (
        gateway_on(ping_interval_ms=1, dead_after_ms=60_000) as gateway,
        connect(gateway) as client,
        trio.open_nursery() as nursery,
    ):
        nursery.start_soon(client.over)  # which answers pings
        with trio.fail_after(20):
            while not value(await scrape(gateway.admin_address), "ping_rtt_seconds_count", transport="ws"):
                await trio.lowlevel.checkpoint()
        nursery.cancel_scope.cancel()


async def test_plain_requests_by_route_method_and_status() -> None:
    name = "http_server_request_duration_seconds_count"

    def seen(found: Samples, route: str, method: str, status: str) -> float:
        labels = {
            "http_route": route,
            "http_request_method": method,
            "http_response_status_code": status,
        }
        return found[name, tuple(sorted(labels.items()))]

    async with gateway_on() as gateway:
        for address, method, path in (
            (gateway.address, "GET", "/health"),
            (gateway.address, "GET", "/health"),
            (gateway.address, "HEAD", "/health"),
            (gateway.address, "BREW", f"/{uuid.uuid4()}"),
            (gateway.address, "GET", f"/{uuid.uuid4()}"),
            (gateway.admin_address, "GET", "/sources?limit=nonsense"),
            (gateway.admin_address, "DELETE", "/api/v1/connections/17"),
            (gateway.admin_address, "DELETE", "/api/v1/connections/18"),
        ):
            await ask(address, path, method)
        found = await scrape(gateway.admin_address)
        assert seen(found, "/health", "GET", "200") == 2
        assert seen(found, "/health", "HEAD", "200") == 1
        assert seen(found, "", "_OTHER", "404") == 1
        assert seen(found, "", "GET", "404") == 1
        assert seen(found, "/sources", "GET", "400") == 1
        assert seen(found, "/api/v1/connections/{id}", "DELETE", "404") == 2


async def test_nothing_that_clients_invent_adds_series() -> None:
    async def odd(client: Client) -> None:
        await client.send(frame(CLOSE, (3_000 + uuid.uuid4().int % 1_000).to_bytes(2, "big")))
        await client.over()

    async with gateway_on() as gateway:
        counts = []
        for _ in range(2):
            for number in range(20):
                async with connect(gateway) as client:
                    await client.ask("SUBSCRIBE", uuid.uuid4().hex)
                    await odd(client)
                await ask(gateway.address, f"/{uuid.uuid4()}?{uuid.uuid4()}", f"M{number}")
            counts.append(len(await scrape(gateway.admin_address)))
            counts[-1] = len(await scrape(gateway.admin_address))  # with the first scrape in it
        assert counts[0] == counts[1]


def test_of_several_workers_they_add_up() -> None:
    one, other = MetricsSnapshot(), MetricsSnapshot()
    labels = {
        "received_bytes_total": ("ws",),
        "frames_received_total": ("kiwi", "text"),
        "protocol_errors_total": ("kiwi", "framing"),
        "rate_limited_total": ("commands",),
        "events_replayed_total": ("a",),
        "source_decode_errors_total": ("a", "damaged"),
    }
    histograms = {
        "command_duration_seconds": ("kiwi", "subscribe"),
        "write_stall_seconds": ("ws",),
        "ping_rtt_seconds": ("ws",),
        "http_server_request_duration_seconds": ("/metrics", "GET", "200"),
    }
    for snapshot, worth in ((one, 3), (other, 4)):
        for name, row in labels.items():
            snapshot.put(name, worth, *row)
        for name, row in histograms.items():
            snapshot.put_histogram(name, (0.1,), (worth, 0), worth / 10, *row)
    one.add(MetricsSnapshot.load(other.dump()))
    kept = one.counted()
    for name, row in labels.items():
        assert kept.values[f"kiwigw_{name}"] == {row: 7}
    for name, row in histograms.items():
        full = name if name in CATALOG else f"kiwigw_{name}"
        assert (kept.histograms[full][row].counts, kept.histograms[full][row].sum) == ([7, 0], 0.7)
