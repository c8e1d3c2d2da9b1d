"""What a client may send at all, before and below the commands of the Kiwi protocol."""

from __future__ import annotations

import json

import pytest
import trio

from tests.edge.bench import running, text
from tests.edge.wall import Arrivals
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
        (frame(TEXT, b'{"a":' * 10_000), "bad_request: the message is "),
    ],
)
async def test_what_is_no_json_object_closes_with_the_reason(sent: bytes, reason: str) -> None:
    async with running() as bench, bench.connect() as client:
        await client.send(sent)
        over = await client.over()
        assert over.code == 1008
        assert over.reason.startswith(reason)


NO_TYPE = "the type is none of SUBSCRIBE, UNSUBSCRIBE, REQUEST"


@pytest.mark.parametrize(
    ("said", "command", "words"),
    [
        ({"sourceId": "a"}, None, "the message has no type"),
        ({"type": "PING", "sourceId": "a"}, "PING", NO_TYPE),
        ({"type": "subscribe", "sourceId": "a"}, "subscribe", NO_TYPE),
        ({"type": None, "sourceId": "a"}, None, NO_TYPE),
        ({"type": "x" * 9_000, "sourceId": "a"}, "x" * 32 + "...", NO_TYPE),
        ({"type": "SUBSCRIBE"}, "SUBSCRIBE", "SUBSCRIBE has no sourceId"),
        (
            {"type": "REQUEST", "sourceId": 7, "n": 1},
            "REQUEST",
            "the sourceId of REQUEST is not a string of 1 or more characters",
        ),
        (
            {"type": "UNSUBSCRIBE", "sourceID": "a"},
            "UNSUBSCRIBE",
            'UNSUBSCRIBE has no sourceId; UNSUBSCRIBE has no member "sourceID" (did you mean "sourceId"?); '
            "it has type, sourceId",
        ),
        ({"type": "SUBSCRIBE", "sourceId": "\ud800"}, None, "the message has half of a surrogate pair in it"),
    ],
    ids=range(9),
)
async def test_what_is_no_command_gets_a_notice_and_the_connection_lives(
    said: dict[str, object], command: str | None, words: str
) -> None:
    async with running() as bench, bench.connect() as client:
        await client.send(text(said))
        notice = {"type": "ERROR", "message": words, "command": command}
        assert await client.message() == {"type": "NOTICE", "data": notice}
        await client.subscribe("a")


async def test_members_that_there_are_not_are_carried_out_where_the_configuration_says_so() -> None:
    for unknown_members in ("refuse", "ignore"):
        async with running(unknown_members=unknown_members) as bench, bench.connect() as client:
            reply = await client.ask("SUBSCRIBE", "a", mod="pull")
            assert reply["type"] == ("SUBSCRIBE_OK" if unknown_members == "ignore" else "SUBSCRIBE_ERROR")
            assert reply["data"].get("mode", "push") == "push"


async def test_what_is_no_command_counts_against_the_rate_of_commands(arrivals: Arrivals) -> None:
    limits = {"commands_per_second": 5, "commands_burst": 10, "flood_ms": 300}
    async with running(limits) as bench, bench.connect() as client:
        await client.send(text({"type": "PING"}) * 30)
        words = [(await client.message())["data"]["message"] for _ in range(30)]
        assert words == [NO_TYPE] * 10 + ["Too many commands: at most 5 a second"] * 20
        over = None
        with trio.fail_after(10):
            while over is None:
                try:
                    arrivals.now += 0.1
                    await client.send(text({"type": "PING"}) * 5)
                    for _ in range(5):
                        await client.message()
                except Over as reason:
                    over = reason
        assert (over.code, over.reason) == (1008, "rate_limited")


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
            reply = await client.message()
            assert reply["type"] == "SUBSCRIBE_ERROR"
            assert reply["data"]["error"].startswith('SUBSCRIBE has no member "ours"; it has type, ')
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
            connection.send_close(4402, "token_expired")
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
        (hub, _) = [runner.hub for runner in bench.gateway.gateway.runners()]
        assert hub.subscribers == 0


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
