"""Every row of the table of the Kiwi protocol, over a real socket and with the bytes written by hand."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trio
import websockets.exceptions
import websockets.sync.client
from structlog.typing import EventDict

from kiwi_gw.errors import SourceFailed
from kiwi_gw.testing import GatewayUnderTest, ScriptedSources, open_gateway
from tests.edge.wire import (
    BINARY,
    CLOSE,
    CONTINUATION,
    PING,
    TEXT,
    Client,
    Over,
    command,
    connect,
    frame,
    upgrade,
)

pytestmark = pytest.mark.usefixtures("no_tracebacks")


class Bench:
    """A gateway with two scripted sources, `a` and `b`."""

    def __init__(self, gateway: GatewayUnderTest, sources: ScriptedSources) -> None:
        self.gateway = gateway
        self.sources = sources

    def connect(self, path: str = "/") -> Any:
        return connect(self.gateway, path)


@asynccontextmanager
async def running(
    limits: dict[str, int] | None = None,
    *,
    server: dict[str, object] | None = None,
    subscriber: dict[str, int] | None = None,
    envelope: str = "flat",
    address: str = "127.0.0.1:0",
    hold: bool = False,
) -> AsyncIterator[Bench]:
    """hold: source `a` does not start before it is released."""
    sources = ScriptedSources()
    if hold:
        sources["a"].hold()
    config = {
        "plugins": ["scripted"],
        "server": {**(server or {}), "limits": limits or {}},
        "subscriber": subscriber or {},
        "kiwi": {"envelope": envelope},
        "sources": [{"type": "scripted", "id": "a"}, {"type": "scripted", "id": "b"}],
    }
    plugins = {"scripted": sources}
    async with open_gateway(json.dumps(config), plugins=plugins, address=address) as gateway:
        with trio.fail_after(20):
            yield Bench(gateway, sources)


def text(message: object) -> bytes:
    return frame(TEXT, json.dumps(message).encode())


def error(reply: dict[str, Any], kind: str) -> str:
    assert reply["type"] == f"{kind}_ERROR", reply
    words: str = reply["data"]["error"]
    return words


# --- before the handshake is answered --------------------------------------------------------------


@pytest.mark.parametrize("surplus", [0, 7, 10_000])
async def test_commands_sent_before_our_101_are_carried_out(surplus: int) -> None:
    """A client may send frames as early as it likes. surplus: how many bytes of them come with the head."""
    early = command("SUBSCRIBE", "a") + frame(PING, b"early") + command("SUBSCRIBE", "b")
    async with running() as bench, connect(bench.gateway, early=early[:surplus]) as client:
        await client.send(early[surplus:])
        replies = [await client.message() for _ in range(2)]
        assert [reply["data"]["sourceId"] for reply in replies] == ["a", "b"]
        await client.send(frame(TEXT, b"nonsense"))
        assert (await client.over()).code == 1008
        assert client.pongs == [b"early"]


# --- frames that end the connection ---------------------------------------------------------------


@pytest.mark.parametrize(
    ("sent", "reason"),
    [
        (frame(TEXT, b"nonsense"), "bad_request: the message is not JSON"),
        (frame(TEXT, b""), "bad_request: the message is not JSON"),
        (frame(TEXT, b"\xef\xbb\xbf{}"), "bad_request: the message is not JSON"),
        (text(["SUBSCRIBE"]), "bad_request: the message is not a JSON object"),
        (text({"sourceId": "a"}), "bad_request: the message has no type"),
        (
            text({"type": "PING", "sourceId": "a"}),
            'bad_request: the type is none of SUBSCRIBE, UNSUBSCRIBE, REQUEST: "PING"',
        ),
        (
            text({"type": None, "sourceId": "a"}),
            "bad_request: the type is none of SUBSCRIBE, UNSUBSCRIBE, REQUEST: null",
        ),
        (text({"type": "SUBSCRIBE"}), "bad_request: SUBSCRIBE has no sourceId"),
        (text({"type": "REQUEST", "sourceId": 7, "n": 1}), "bad_request: sourceId is not a string"),
        (frame(TEXT, b'{"a":' * 10_000), "bad_request: the message is "),
    ],
)
async def test_what_is_no_command_closes_with_the_reason(sent: bytes, reason: str) -> None:
    async with running() as bench, bench.connect() as client:
        await client.send(sent)
        over = await client.over()
        assert over.code == 1008
        assert over.reason.startswith(reason)


async def test_a_binary_frame_closes_with_1003() -> None:
    async with running() as bench, bench.connect() as client:
        await client.send(frame(BINARY, b'{"type":"SUBSCRIBE","sourceId":"a"}'))
        assert (await client.over()).code == 1003


async def test_a_frame_of_64_kib_passes_and_one_more_byte_closes_with_1009() -> None:
    async with running() as bench:
        blank = json.dumps({"type": "SUBSCRIBE", "sourceId": "a", "ours": ""})
        largest = blank.replace('""', '"%s"' % ("x" * (64 * 1024 - len(blank))))
        async with bench.connect() as client:
            await client.send(frame(TEXT, largest.encode()))
            assert (await client.message())["type"] == "SUBSCRIBE_OK"
        async with bench.connect() as client:
            await client.send(frame(TEXT, largest.encode() + b" "))
            assert (await client.over()).code == 1009
        async with bench.connect() as client:  # told as soon as its header says so
            await client.send(frame(TEXT, bytes(1 << 20))[:10])
            assert (await client.over()).code == 1009


async def test_1024_fragments_pass_and_one_more_closes_with_1008() -> None:
    def fragments(count: int) -> bytes:
        words = json.dumps({"type": "SUBSCRIBE", "sourceId": "a"}).encode()
        empty = [frame(CONTINUATION, b"", fin=False)] * (count - 2)
        return b"".join([frame(TEXT, words, fin=False), *empty, frame(CONTINUATION, b"")])

    async with running() as bench:
        async with bench.connect() as client:
            await client.send(fragments(1024))
            assert (await client.message())["type"] == "SUBSCRIBE_OK"
        async with bench.connect() as client:
            await client.send(fragments(1025))
            assert (await client.over()).code == 1008


@pytest.mark.parametrize(
    ("sent", "code"),
    [
        (frame(TEXT, b"\xff\xfe"), 1007),
        (frame(0x3, b""), 1002),
        (frame(TEXT, b"{}", mask=None), 1002),
        (frame(PING, bytes(126)), 1002),
        (frame(CONTINUATION, b"x"), 1002),
        (b"\xc1\x80" + bytes(4), 1002),
        (frame(CLOSE, b"\x03\xe8bye"), 1000),
        (frame(CLOSE, b""), 1005),
        (frame(CLOSE, b"\x03\xe7"), 1002),
    ],
)
async def test_the_websocket_protocol_itself(sent: bytes, code: int) -> None:
    async with running() as bench, bench.connect() as client:
        await client.send(sent)
        assert (await client.over()).code == code


@pytest.mark.parametrize("how", ["by the dialect", "from outside"])
async def test_a_client_that_does_not_answer_our_close_frame_is_left_behind(how: str) -> None:
    async with running({"close_timeout_ms": 100}) as bench, bench.connect() as client:
        client.answers_close = False
        await client.subscribe("a")
        if how == "by the dialect":
            await client.send(frame(TEXT, b"nonsense"))
        else:
            (connection,) = bench.gateway.gateway.connections
            connection.hang_up(4402, "token_expired")
        assert (await client.over()).code in (1008, 4402)
        begun = trio.current_time()
        assert await client.stream.receive_some() == b""
        assert trio.current_time() - begun < 5
        while bench.gateway.gateway.connections:
            await trio.lowlevel.checkpoint()


async def test_a_client_that_just_leaves_is_let_go() -> None:
    async with running() as bench:
        async with bench.connect() as client:
            await client.subscribe("a")
            assert len(bench.gateway.gateway.connections) == 1
        while bench.gateway.gateway.connections:
            await trio.lowlevel.checkpoint()
        (feed, _) = [runner.feed for runner in bench.gateway.gateway.runners()]
        assert feed.subscribers == 0


async def test_what_follows_a_close_frame_is_ignored() -> None:
    async with running() as bench, bench.connect() as client:
        await client.send(frame(CLOSE, b"\x03\xe8") + frame(PING, b"x") + command("SUBSCRIBE", "a"))
        assert (await client.over()).code == 1000
        assert client.pongs == []


async def test_pings_are_answered_in_between() -> None:
    async with running() as bench, bench.connect() as client:
        words = json.dumps({"type": "SUBSCRIBE", "sourceId": "a"}).encode()
        await client.send(frame(TEXT, words[:9], fin=False) + frame(PING, b"mark"))
        await client.send(frame(CONTINUATION, words[9:]))
        assert (await client.message())["type"] == "SUBSCRIBE_OK"
        assert client.pongs == [b"mark"]


async def test_a_client_may_talk_before_it_has_read_the_answer_to_its_handshake() -> None:
    async with running() as bench:
        stream = await bench.gateway.connect()
        async with stream:
            client = Client(stream)
            status, _, rest = await client.request(upgrade() + command("SUBSCRIBE", "a"))
            assert status == 101
            client._frames += client._reader.feed(rest)
            assert (await client.message())["type"] == "SUBSCRIBE_OK"


# --- SUBSCRIBE ------------------------------------------------------------------------------------


async def test_an_id_that_is_too_long_for_any_source_is_an_unknown_one() -> None:
    async with running() as bench, bench.connect() as client:
        for length in (256, 60_000):
            refused = await client.ask("SUBSCRIBE", "x" * length)
            assert refused == {
                "type": "SUBSCRIBE_ERROR",
                "data": {"sourceId": "x" * length, "error": "No source exists with the specified ID"},
            }
        await client.subscribe("a")


@pytest.mark.parametrize("path", ["/", "/kiwi", "/?token=none"])
async def test_push_on_every_path(path: str) -> None:
    async with running() as bench, connect(bench.gateway, path) as client:
        opened = await client.ask("SUBSCRIBE", "a", unknown=[1, {"x": None}])
        assert opened == {
            "type": "SUBSCRIBE_OK",
            "data": {
                "sourceId": "a",
                "mode": "push",
                "positions": {"0": 0},
                "overflow": "drop_oldest",
                "bufferCapacity": 65536,
            },
        }
        await bench.sources["a"].publish([b"one", None], keys=[b"k", None])
        results = [await client.message() for _ in range(2)]
        assert results == [
            {
                "type": "RESULT",
                "data": {
                    "sourceId": "a",
                    "sourceType": "scripted",
                    "key": key,
                    "value": value,
                    "partition": 0,
                    "offset": offset,
                },
            }
            for offset, (key, value) in enumerate([("k", "one"), (None, None)])
        ]
        assert await client.ask("UNSUBSCRIBE", "a") == {"type": "UNSUBSCRIBE_OK", "data": {"sourceId": "a"}}


async def test_subscribe_errors() -> None:
    async with running({"max_subscriptions": 1}) as bench, bench.connect() as client:
        words = error(await client.ask("SUBSCRIBE", "nobody"), "SUBSCRIBE")
        assert words == "No source exists with the specified ID"
        for mode in ("both", "", None, 1, ["pull"]):
            assert "mode" in error(await client.ask("SUBSCRIBE", "a", mode=mode), "SUBSCRIBE")
        for capacity in (0, -1, 1.5, "9", None, 2**53):
            reply = await client.ask("SUBSCRIBE", "a", bufferCapacity=capacity)
            assert "bufferCapacity" in error(reply, "SUBSCRIBE")
        for overflow in ("never", 3, None):
            assert "overflow" in error(await client.ask("SUBSCRIBE", "a", overflow=overflow), "SUBSCRIBE")
        assert "drop_oldest, close" in error(
            await client.ask("SUBSCRIBE", "a", overflow="replay"), "SUBSCRIBE"
        )
        await client.subscribe("a")
        words = error(await client.ask("SUBSCRIBE", "a"), "SUBSCRIBE")
        assert words == "Source already has an active subscription"
        assert "at most 1" in error(await client.ask("SUBSCRIBE", "b"), "SUBSCRIBE")
        assert (await client.ask("UNSUBSCRIBE", "a"))["type"] == "UNSUBSCRIBE_OK"
        await client.subscribe("b", mode="pull", overflow="close", bufferCapacity=10)


async def test_the_129th_subscription_is_refused() -> None:
    sources = ScriptedSources()
    ids = [f"s{number}" for number in range(129)]
    config = {"plugins": ["scripted"], "sources": [{"type": "scripted", "id": name} for name in ids]}
    async with (
        open_gateway(json.dumps(config), plugins={"scripted": sources}) as gateway,
        connect(gateway) as client,
    ):
        for name in ids[:128]:
            await client.subscribe(name)
        assert "at most 128" in error(await client.ask("SUBSCRIBE", ids[128]), "SUBSCRIBE")
        await sources[ids[127]].publish([b"x"])
        assert (await client.message())["data"]["sourceId"] == ids[127]


@pytest.mark.parametrize("how", ["ended", "failed"])
async def test_a_source_that_is_over_is_refused(how: str, log_lines: list[EventDict]) -> None:
    async with running() as bench, bench.connect() as client:
        await client.subscribe("a")
        if how == "ended":
            await bench.sources["a"].end()
        else:
            await bench.sources["a"].fail(SourceFailed("the disk is gone"))
        notice = await client.message()
        assert (notice["type"], notice["data"]["reason"]) == ("NOTICE", how)
        words = error(await client.ask("SUBSCRIBE", "a"), "SUBSCRIBE")
        assert words == ("the source has ended" if how == "ended" else "the disk is gone")
    log_lines[:] = [line for line in log_lines if line["event"] != "source failed"]  # it was wanted


async def test_a_source_that_is_starting_is_waited_for() -> None:
    async with running(hold=True) as bench, bench.connect() as client:
        # All three in one segment: the REQUEST is answered when the subscription is open.
        await client.send(
            command("SUBSCRIBE", "a", mode="pull")
            + command("REQUEST", "a", n=2)
            + command("REQUEST", "a", n=3)
            + command("SUBSCRIBE", "b")
        )
        assert (await client.message())["data"]["sourceId"] == "b"
        bench.sources["a"].release()
        replies = [await client.message() for _ in range(3)]
        assert [reply["type"] for reply in replies] == ["SUBSCRIBE_OK", "REQUEST_OK", "REQUEST_OK"]
        assert [reply["data"]["credits"] for reply in replies[1:]] == [2, 5]
        await bench.sources["a"].publish([b"x"] * 9)
        assert [(await client.message())["data"]["offset"] for _ in range(5)] == [0, 1, 2, 3, 4]


async def test_waiting_for_a_source_has_an_end() -> None:
    async with (
        running(hold=True, subscriber={"subscribe_timeout_ms": 100}) as bench,
        bench.connect() as client,
    ):
        await client.send(command("SUBSCRIBE", "a", mode="pull") + command("REQUEST", "a", n=2))
        assert "has not started within 0.1 s" in error(await client.message(), "SUBSCRIBE")
        assert "active" in error(await client.message(), "REQUEST")
        words = error(await client.ask("UNSUBSCRIBE", "a"), "UNSUBSCRIBE")
        assert words == "Source does not have an active subscription"
        bench.sources["a"].release()
        await client.subscribe("a")


async def test_unsubscribe_cancels_a_subscription_that_waits() -> None:
    async with running(hold=True) as bench, bench.connect() as client:
        await client.send(
            command("SUBSCRIBE", "a", mode="pull")
            + command("REQUEST", "a", n=2)
            + command("UNSUBSCRIBE", "a")
        )
        replies = [(await client.message())["type"] for _ in range(3)]
        assert replies == ["SUBSCRIBE_ERROR", "REQUEST_ERROR", "UNSUBSCRIBE_OK"]
        bench.sources["a"].release()
        await bench.sources["a"].publish([b"x"])
        await client.subscribe("b")  # and nothing of `a` comes before its answer


# --- UNSUBSCRIBE and REQUEST ----------------------------------------------------------------------


async def test_unsubscribe_and_request_want_a_subscription() -> None:
    async with running() as bench, bench.connect() as client:
        none = "Source does not have an active subscription"
        assert error(await client.ask("UNSUBSCRIBE", "a"), "UNSUBSCRIBE") == none
        assert error(await client.ask("UNSUBSCRIBE", "nobody"), "UNSUBSCRIBE") == none
        assert error(await client.ask("REQUEST", "a", n=1), "REQUEST") == none
        await client.subscribe("a")
        assert error(await client.ask("REQUEST", "a", n=1), "REQUEST") == "Source is not in pull mode"
        await client.ask("UNSUBSCRIBE", "a")
        assert error(await client.ask("UNSUBSCRIBE", "a"), "UNSUBSCRIBE") == none


async def test_credit_is_added_and_what_is_no_number_leaves_it_as_it_is() -> None:
    async with running() as bench, bench.connect() as client:
        await client.subscribe("a", mode="pull")
        assert await client.ask("REQUEST", "a", n=2) == {
            "type": "REQUEST_OK",
            "data": {"sourceId": "a", "n": 2, "credits": 2},
        }
        for n in (0, -1, 1.0, 10.0, True, "5", None, [1], 2**53, 10**30):
            assert "integer" in error(await client.ask("REQUEST", "a", n=n), "REQUEST")
        for written in (b"1e3", b"01", b"0x1", b"NaN"):
            await client.send(frame(TEXT, b'{"type":"REQUEST","sourceId":"a","n":' + written + b"}"))
            if written in (b"1e3",):
                assert "integer" in error(await client.message(), "REQUEST")
            else:
                assert (await client.over()).code == 1008  # not JSON at all
                break
    async with running() as bench, bench.connect() as client:
        await client.subscribe("a", mode="pull")
        await client.send(frame(TEXT, b'{"type":"REQUEST","sourceId":"a"}'))
        assert "integer" in error(await client.message(), "REQUEST")
        assert (await client.ask("REQUEST", "a", n=3))["data"]["credits"] == 3
        await bench.sources["a"].publish([b"x"] * 5)
        assert [(await client.message())["data"]["offset"] for _ in range(3)] == [0, 1, 2]
        largest = 2**53 - 1
        assert (await client.ask("REQUEST", "a", n=1))["data"]["credits"] == 1
        assert (await client.message())["data"]["offset"] == 3
        await client.send(command("REQUEST", "a", n=largest) + command("REQUEST", "a", n=largest))
        first = await client.message()
        assert first["data"] == {"sourceId": "a", "n": largest, "credits": largest}
        rest = [await client.message() for _ in range(2)]
        (second,) = [item for item in rest if item["type"] == "REQUEST_OK"]
        assert second["data"]["credits"] in (largest, largest - 1)


async def test_a_reply_comes_before_the_events_that_it_sets_free() -> None:
    async with running() as bench, bench.connect() as client:
        await client.subscribe("a", mode="pull")
        await bench.sources["a"].publish([b"x"] * 3)
        await client.send(command("REQUEST", "a", n=2) + command("UNSUBSCRIBE", "a"))
        kinds = [(await client.message())["type"] for _ in range(4)]
        assert kinds[0] == "REQUEST_OK"
        assert sorted(kinds[1:]) == ["RESULT", "RESULT", "UNSUBSCRIBE_OK"]
        assert kinds[3] == "UNSUBSCRIBE_OK"


async def test_nothing_follows_unsubscribe_ok_or_subscription_closed() -> None:
    async with running() as bench, bench.connect() as client:
        for _ in range(20):
            await client.subscribe("a")
            await bench.sources["a"].publish([b"x"] * 100)
            await client.send(command("UNSUBSCRIBE", "a"))
            while (await client.message())["type"] != "UNSUBSCRIBE_OK":
                pass
            await bench.sources["a"].publish([b"x"])
        await client.subscribe("b")
        await bench.sources["b"].publish([b"last"])
        await bench.sources["b"].end()
        kinds = [(await client.message())["type"] for _ in range(2)]
        assert kinds == ["RESULT", "NOTICE"]
        await client.subscribe("a")
        await bench.sources["a"].publish([b"y"])
        assert (await client.message())["data"]["value"] == "y"


async def test_a_finite_source_gives_a_pull_subscription_the_rest_before_it_closes() -> None:
    async with running() as bench, bench.connect() as client:
        await client.subscribe("a", mode="pull")
        await bench.sources["a"].publish([b"x"] * 3)
        await bench.sources["a"].end()
        await client.ask("REQUEST", "a", n=2)
        assert [(await client.message())["data"]["offset"] for _ in range(2)] == [0, 1]
        await client.ask("REQUEST", "a", n=5)
        assert (await client.message())["data"]["offset"] == 2
        closed = await client.message()
        assert closed == {
            "type": "NOTICE",
            "data": {
                "type": "SUBSCRIPTION_CLOSED",
                "sourceId": "a",
                "message": "the source has ended",
                "reason": "ended",
                "positions": {"0": 3},
                "dropped": 0,
            },
        }
        assert "active" in error(await client.ask("REQUEST", "a", n=1), "REQUEST")


# --- rates ----------------------------------------------------------------------------------------


async def test_too_many_commands_are_refused_and_then_the_connection_is_closed() -> None:
    limits = {"commands_per_second": 5, "commands_burst": 10, "flood_ms": 300}
    async with running(limits) as bench, bench.connect() as client:
        await client.send(command("UNSUBSCRIBE", "a") * 30)
        words = [error(await client.message(), "UNSUBSCRIBE") for _ in range(30)]
        too_many = "Too many commands: at most 5 a second"
        assert words[:10] == ["Source does not have an active subscription"] * 10
        assert words.count(too_many) >= 19
        assert too_many == words[-1]
        # REQUEST has a bucket of its own.
        assert "active" in error(await client.ask("REQUEST", "a", n=1), "REQUEST")
        with trio.fail_after(10):
            over = None
            while over is None:
                try:
                    await client.send(command("UNSUBSCRIBE", "a") * 5)
                    for _ in range(5):
                        await client.message()
                except Over as reason:
                    over = reason
        assert (over.code, over.reason) == (1008, "rate_limited")


async def test_too_many_requests_are_refused_apart_from_the_rest() -> None:
    async with (
        running({"requests_per_second": 5, "requests_burst": 4}) as bench,
        bench.connect() as client,
    ):
        await client.subscribe("a", mode="pull")
        await client.send(command("REQUEST", "a", n=1) * 10)
        replies = [await client.message() for _ in range(10)]
        assert [reply["type"] for reply in replies] == ["REQUEST_OK"] * 4 + ["REQUEST_ERROR"] * 6
        assert replies[3]["data"]["credits"] == 4
        assert "at most 5 a second" in replies[9]["data"]["error"]
        assert (await client.ask("UNSUBSCRIBE", "a"))["type"] == "UNSUBSCRIBE_OK"


# --- before the upgrade ---------------------------------------------------------------------------


async def answer(bench: Bench, head: bytes) -> tuple[int, dict[str, str], bytes]:
    stream = await bench.gateway.connect()
    async with stream:
        return await Client(stream).request(head)


async def test_a_head_that_does_not_come_is_408_and_one_that_is_too_large_431() -> None:
    async with running({"head_timeout_ms": 150, "head_bytes": 2048}) as bench:
        assert (await answer(bench, b"GET / HTTP/1.1\r\nHost: "))[0] == 408
        large = upgrade(headers=[(f"X-{number}", "x" * 100) for number in range(30)])
        assert (await answer(bench, large))[0] == 431
        assert bench.gateway.listener.rejected == {"timeout": 1, "bad_request": 1}
    async with running() as bench:
        assert (await answer(bench, upgrade("/" + "x" * 9_000)))[0] == 431


@pytest.mark.parametrize(
    ("head", "status"),
    [
        (upgrade("/nothing"), 404),
        (b"GET /nothing HTTP/1.1\r\nHost: x\r\n\r\n", 404),
        (b"DELETE / HTTP/1.1\r\nHost: x\r\n\r\n", 405),
        (b"POST /health HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n", 405),
        (upgrade().replace(b"GET", b"POST", 1), 405),
        (b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", 426),
        (upgrade().replace(b"Version: 13", b"Version: 12"), 426),
        (upgrade().replace(b"Sec-WebSocket-Key: ", b"Sec-WebSocket-Key: x"), 400),
        (b"\x16\x03\x01\x02\x00", 400),
    ],
)
async def test_what_is_not_served(head: bytes, status: int) -> None:
    async with running() as bench:
        assert (await answer(bench, head))[0] == status


@pytest.mark.parametrize(
    ("origin", "status"),
    [
        ("http://gateway.test", 101),
        ("https://gateway.test", 403),
        ("http://gateway.test:81", 403),
        ("http://evil.test", 403),
        ("null", 403),
        ("https://app.example", 101),
        ("https://www.app.example", 403),
    ],
)
async def test_pages_of_foreign_origins_are_refused_before_the_upgrade(origin: str, status: int) -> None:
    async with running(server={"allowed_origins": ["https://app.example"]}) as bench:
        assert (await answer(bench, upgrade(headers=[("Origin", origin)])))[0] == status
        if status == 403:
            assert bench.gateway.listener.rejected == {"origin": 1}
            assert not bench.gateway.gateway.connections


async def test_over_max_connections_is_503_with_retry_after_and_health_still_answers() -> None:
    async with running({"max_connections": 2}) as bench:
        async with bench.connect() as first, bench.connect():
            status, headers, _ = await answer(bench, upgrade())
            assert status == 503
            assert int(headers["retry-after"]) > 0
            assert bench.gateway.listener.rejected["limit_total"] == 1
            status, _, _ = await answer(bench, b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n")
            assert status == 200, "an orchestrator must not restart a gateway because it is full"
            await first.subscribe("a")  # who is inside does not notice
            await first.send(frame(CLOSE, b"\x03\xe8"))
            assert (await first.over()).code == 1000
        with trio.fail_after(5):
            while (await answer(bench, upgrade()))[0] != 101:
                pass


@pytest.mark.parametrize(
    ("address", "loud"),
    [("127.0.0.1:0", False), ("0.0.0.0:0", True), ("[::1]:0", False), ("unix", False)],
)
async def test_a_loud_warning_where_anyone_can_reach_it(
    address: str, loud: bool, tmp_path: Path, log_lines: list[EventDict]
) -> None:
    if address == "unix":
        address = f"unix:{tmp_path}/kiwi.sock"
    async with running(address=address) as bench:
        warnings = [line["event"] for line in log_lines if line["log_level"] == "warning"]
        assert len(warnings) == loud
        assert all("can read every source" in words for words in warnings)
        if not loud:
            async with bench.connect() as client:
                await client.subscribe("a")
    log_lines[:] = [line for line in log_lines if line["log_level"] != "warning"]  # it was wanted


async def test_an_independent_client_understands_it() -> None:
    """The `websockets` library, in a thread."""
    async with running() as bench:

        def talk() -> list[str]:
            with websockets.sync.client.connect(f"ws://{bench.gateway.address}/kiwi") as client:
                client.send(json.dumps({"type": "SUBSCRIBE", "sourceId": "a", "mode": "pull"}))
                kinds = [json.loads(client.recv(10))["type"]]
                client.send(json.dumps({"type": "REQUEST", "sourceId": "a", "n": 2}))
                kinds += [json.loads(client.recv(10))["type"] for _ in range(3)]
                client.ping().wait(10)
                client.send("nonsense")
                with pytest.raises(websockets.exceptions.ConnectionClosedError, match="1008"):
                    client.recv(10)
            return kinds

        await bench.sources["a"].publish([b"before"])
        async with trio.open_nursery() as nursery:

            async def produce() -> None:
                while True:
                    await bench.sources["a"].publish([b"x"])
                    await trio.sleep(0.01)

            nursery.start_soon(produce)
            kinds = await trio.to_thread.run_sync(talk)
            assert kinds == ["SUBSCRIBE_OK", "REQUEST_OK", "RESULT", "RESULT"]
            nursery.cancel_scope.cancel()


# --- the silent -----------------------------------------------------------------------------------


@pytest.mark.integration
async def test_a_peer_that_is_gone_is_found_on_an_idle_connection_and_counted() -> None:
    limits = {"ping_interval_ms": 200, "dead_after_ms": 1000}
    async with running(limits) as bench, bench.connect() as silent, bench.connect() as alive:
        silent.quiet = True
        async with trio.open_nursery() as nursery:
            nursery.start_soon(alive.frame)  # reads, and answers pings
            begun = trio.current_time()
            over = await silent.over()
            waited = trio.current_time() - begun
            assert (over.code, over.reason) == (4408, "unresponsive")
            assert silent.pings >= 1
            assert 1.0 <= waited < 4.0  # dead_after_ms, and the second in which everybody is looked at
            assert bench.gateway.gateway.keepalive.unresponsive == 1
            assert alive.pings >= 1
            assert len(bench.gateway.gateway.connections) == 1
            nursery.cancel_scope.cancel()


# --- the original's envelope ----------------------------------------------------------------------


async def test_the_nested_envelope() -> None:
    async with running(envelope="nested") as bench, bench.connect() as client:

        def response(kind: str, **members: object) -> dict[str, object]:
            return {"type": "COMMAND_RESPONSE", "data": {"type": kind, "sourceId": "a", **members}}

        assert await client.ask("SUBSCRIBE", "a", mode="pull") == response("SUBSCRIBE_OK")
        assert await client.ask("REQUEST", "a", n=1) == response("REQUEST_OK", requests=1)
        assert await client.ask("REQUEST", "a", n=1) == response("REQUEST_OK", requests=2)
        assert await client.ask("SUBSCRIBE", "a") == response(
            "SUBSCRIBE_ERROR", error="Source already has an active subscription"
        )
        await bench.sources["a"].publish([b"x"])
        assert (await client.message())["type"] == "RESULT"
        assert await client.ask("UNSUBSCRIBE", "a") == response("UNSUBSCRIBE_OK")
        await client.ask("SUBSCRIBE", "a")
        await bench.sources["a"].end()
        assert await client.message() == {
            "type": "NOTICE",
            "data": {"type": "SUBSCRIPTION_CLOSED", "sourceId": "a", "message": "the source has ended"},
        }
