"""`kiwi-gw tail` as users have it: a process with pipes and signals, against a gateway on a real socket."""

from __future__ import annotations

import fcntl
import json
import os
import signal
import ssl
import subprocess
import sys
import termios
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from functools import partial
from pathlib import Path

import pytest
import trio
import trustme

from kiwi_gw.dialects.kiwi.messages import Lag, SubscriptionClosed
from kiwi_gw.testing import ScriptedSources, open_gateway
from tests.unit.client.scripted import Peer, Script, one_event, serve

pytestmark = pytest.mark.slow

KAFKA = {
    "sourceId": "flights",
    "sourceType": "kafka",
    "key": "UA",
    "value": "EWR\x1b[31m",
    "payload": "RVdSG1szMW0=",
    "partition": 1,
    "offset": 5,
    "timestamp": 1357017300000,
}


@asynccontextmanager
async def listening(script: Script) -> AsyncIterator[str]:
    """The address of a gateway whose every connection follows the script."""
    async with trio.open_nursery() as nursery:
        (listener,) = await nursery.start(
            partial(trio.serve_tcp, partial(serve, script=script), 0, host="127.0.0.1")
        )
        yield f"127.0.0.1:{listener.socket.getsockname()[1]}"
        nursery.cancel_scope.cancel()


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "kiwi_gw", "tail", *arguments]


async def tail(*arguments: str, **environ: str) -> subprocess.CompletedProcess[bytes]:
    return await trio.run_process(
        command(*arguments),
        capture_stdout=True,
        capture_stderr=True,
        check=False,
        env=os.environ | environ,
    )


async def counts(peer: Peer) -> None:
    await peer.subscribed()
    number = 0
    while True:
        await peer.count(number)
        number += 1


async def floods(peer: Peer) -> None:
    await peer.subscribed()
    while True:
        await peer.send("RESULT", text="x" * 16_384)


async def quiet(peer: Peer) -> None:
    await peer.subscribed()
    await peer.until_gone()


@pytest.mark.parametrize("given", [("s",), ("-n1", "s", "--raw"), ("127.0.0.1:1", "s")])
async def test_the_address_may_be_in_the_environment(given: tuple[str, ...]) -> None:
    async with listening(counts) as address:
        done = await tail(*given, "-n1", KIWI_GW_URL=address)
        assert done.returncode == (1 if len(given) == 2 else 0), done.stderr
        done = await tail("-n1", KIWI_GW_URL=address)
    assert b"Missing argument 'SOURCE'" in done.stderr


async def test_lines_for_people() -> None:
    async def script(peer: Peer) -> None:
        await peer.subscribed()
        await peer.send("RESULT", **KAFKA)
        await peer.notice(Lag("flights", 9, dropped=3))
        await peer.send("RESULT", **KAFKA)
        await peer.until_gone()

    async with listening(script) as address:
        done = await tail(address, "flights", "-n", "2")
    assert done.returncode == 0
    assert done.stdout.decode().splitlines() == ["2013-01-01 05:15:00.000Z  1:5  UA  EWR\\x1b[31m"] * 2
    assert done.stderr.decode().splitlines() == [
        f"kiwi-gw: connected to ws://{address}/, push subscription to flights",
        "kiwi-gw: lag: 9 events behind, 3 of them given up",
    ]


async def test_json_for_scripts_holds_the_notices_too() -> None:
    async def script(peer: Peer) -> None:
        await peer.subscribed()
        await peer.send("RESULT", **KAFKA)
        await peer.notice(Lag("flights", 9))
        await peer.notice(SubscriptionClosed("flights", "over", "ended"))
        await peer.until_gone()

    async with listening(script) as address:
        done = await tail(address, "flights", "--json", "--quiet")
    assert (done.returncode, done.stderr) == (0, b"")
    result, lag, closed = map(json.loads, done.stdout.splitlines())
    assert result == {"type": "RESULT", "data": KAFKA}
    assert (lag["type"], lag["data"]["type"], closed["data"]["reason"]) == ("NOTICE", "LAG", "ended")


async def test_raw_values_are_bytes() -> None:
    async def script(peer: Peer) -> None:
        await peer.subscribed()
        await peer.send("RESULT", **KAFKA)
        await peer.until_gone()

    async with listening(script) as address:
        done = await tail(address, "flights", "--raw", "-q", "-n1")
    assert done.stdout == b"EWR\x1b[31m\n"


async def test_a_unix_socket(tmp_path: Path) -> None:
    path = tmp_path / "kiwi.sock"
    with trio.socket.socket(trio.socket.AF_UNIX) as server:
        await server.bind(str(path))
        server.listen()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(
                trio.serve_listeners, partial(serve, script=one_event), [trio.SocketListener(server)]
            )
            done = await tail(f"unix:{path}", "s", "-n", "1")
            nursery.cancel_scope.cancel()
    assert (done.returncode, done.stdout) == (0, b'{"count":1}\n')


@pytest.mark.parametrize("where", ["option", "environment", "file"])
async def test_the_token(where: str, tmp_path: Path) -> None:
    seen: list[str | None] = []

    async def script(peer: Peer) -> None:
        seen.append(peer.headers.get("authorization"))
        await peer.subscribed()
        await peer.count(1)
        await peer.until_gone()

    file = tmp_path / "token"
    file.write_text("geheim\n")
    async with listening(script) as address:
        if where == "option":
            done = await tail(address, "s", "-n1", "--token", "geheim")
        elif where == "environment":
            done = await tail(address, "s", "-n1", KIWI_GW_TOKEN="geheim")
        else:
            done = await tail(address, "s", "-n1", KIWI_GW_TOKEN_FILE=str(file))
    assert seen == ["Bearer geheim"]
    assert b"geheim" not in done.stdout + done.stderr


async def test_refused() -> None:
    async def script(peer: Peer) -> None:
        await peer.command()
        await peer.send("SUBSCRIBE_ERROR", sourceId="s", error="No source exists \x1b[31m")
        await peer.until_gone()

    async with listening(script) as address:
        done = await tail(address, "s")
    assert (done.returncode, done.stdout) == (1, b"")
    assert done.stderr.decode() == "kiwi-gw: s: No source exists \\x1b[31m\n"


async def test_nobody_there() -> None:
    with trio.socket.socket() as unused:
        await unused.bind(("127.0.0.1", 0))
        done = await tail(f"127.0.0.1:{unused.getsockname()[1]}", "s")
    assert done.returncode == 1
    assert b"Connection refused (--wait" in done.stderr
    assert b"Traceback" not in done.stderr


async def test_a_reader_that_has_had_enough_while_events_flow() -> None:
    async with listening(counts) as address:
        process = await trio.lowlevel.open_process(
            command(address, "s"), stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        assert process.stdout is not None
        assert process.stderr is not None
        async with process.stderr:
            assert (await process.stdout.receive_some(12)).startswith(b'{"count":0}')
            await process.stdout.aclose()
            complaints = await _rest(process.stderr)
            assert await process.wait() == 0
    assert complaints.count(b"\n") == 1, complaints


async def test_a_reader_that_has_had_enough_of_a_quiet_source() -> None:
    async with listening(quiet) as address:
        process = await trio.lowlevel.open_process(
            command(address, "s"), stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        assert process.stdout is not None
        assert process.stderr is not None
        async with process.stderr:
            assert b"connected" in await process.stderr.receive_some()
            await process.stdout.aclose()
            assert await _rest(process.stderr) == b""
            assert await process.wait() == 0


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
@pytest.mark.parametrize("script", [quiet, floods])
async def test_interrupted(script: Callable[[Peer], object], number: int, code: int) -> None:
    """Also while its reader does not read: the pipe is full, and the process ends all the same."""
    closed = trio.Event()

    async def closing(peer: Peer) -> None:
        try:
            await script(peer)  # type: ignore[misc]
        finally:
            closed.set()

    async with listening(closing) as address:
        process = await trio.lowlevel.open_process(
            command(address, "s"), stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        assert isinstance(process.stdout, trio.lowlevel.FdStream)
        assert process.stderr is not None
        async with process.stdout, process.stderr:
            assert b"connected" in await process.stderr.receive_some()
            # A pipe holds 64 KiB, less what its pages lose between two writes; nobody tells when.
            while script is floods and _filled(process.stdout.fileno()) < 45_000:  # noqa: ASYNC110
                await trio.sleep(0.01)
            process.send_signal(number)
            with trio.fail_after(10):
                assert await process.wait() == code
                await closed.wait()
            assert await _rest(process.stderr) == b""


def _filled(pipe: int) -> int:
    """How many bytes wait in a pipe."""
    answer = bytearray(4)
    fcntl.ioctl(pipe, termios.FIONREAD, answer)
    return int.from_bytes(answer, sys.byteorder)


async def _rest(stream: trio.abc.ReceiveStream) -> bytes:
    return b"".join([bytes(chunk) async for chunk in stream])


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["kafka://x", "s"], "not an address of a gateway"),
        (["x", "s", "--rate", "3", "--mode", "push"], "--rate needs --mode pull"),
        (["x", "s", "--rate", "0"], "--rate"),
        (["x", "s", "-n", "0"], "--number"),
        (["x", "s", "--token", "a b"], "one word"),
        (["x", "s", "--token", "a", "--token-file", "/dev/null"], "two tokens"),
        (["x"], "SOURCE"),
    ],
)
async def test_wrong_usage(arguments: list[str], words: str) -> None:
    done = await tail(*arguments)
    assert done.returncode == 2
    assert words in done.stderr.decode()


async def test_tls(tmp_path: Path) -> None:
    authority = trustme.CA()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("localhost").configure_cert(context)
    ca = tmp_path / "ca.pem"
    authority.cert_pem.write_to_path(ca)

    async def secure(stream: trio.SocketStream) -> None:
        with suppress(trio.BrokenResourceError):  # a client that does not trust us hangs up
            await serve(trio.SSLStream(stream, context, server_side=True, https_compatible=True), one_event)

    async with trio.open_nursery() as nursery:
        (listener,) = await nursery.start(partial(trio.serve_tcp, secure, 0, host="127.0.0.1"))
        url = f"wss://localhost:{listener.socket.getsockname()[1]}"
        trusted = await tail(url, "s", "-n1", "--cacert", str(ca))
        insecure = await tail(url, "s", "-n1", "-k")
        refused = await tail(url, "s", "-n1", "--wait")
        nursery.cancel_scope.cancel()
    assert (trusted.returncode, trusted.stdout) == (0, b'{"count":1}\n')
    assert (insecure.returncode, insecure.stdout) == (0, b'{"count":1}\n')
    assert refused.returncode == 1, "a certificate does not get better by waiting"
    assert b"its certificate is not good: unable to get local issuer certificate" in refused.stderr


async def test_a_source_that_is_not_there_and_those_that_are() -> None:
    config = "sources:\n  - {type: counter, id: ticks, min: 0, interval_ms: 1000}\n"
    async with open_gateway(config) as gateway:
        done = await tail(gateway.address, "tciks")
    assert done.returncode == 1
    words = "No source exists with the specified ID; did you mean 'ticks'? There is: ticks (counter)"
    assert done.stderr.decode() == f"kiwi-gw: tciks: {words}\n"


async def test_what_there_is_by_then_and_no_more() -> None:
    scripted = ScriptedSources(replayable=True)
    config = "plugins: [scripted]\nsources: [{type: scripted, id: news}]"
    async with open_gateway(config, plugins={"scripted": scripted}) as gateway:
        await scripted["news"].publish([b"a", b"b"])
        done = await tail(gateway.address, "news", "--from", "earliest", "--until-end", "--raw")
        assert (done.returncode, done.stdout.split()) == (0, [b"a", b"b"])
        assert b"the end that was asked for is reached" in done.stderr
        done = await tail(gateway.address, "news", "--until-end", "--raw")
        assert (done.returncode, done.stdout) == (0, b"")
