"""`kiwi-gw produce` as users have it: a process with pipes, against a gateway on a real socket."""

from __future__ import annotations

import subprocess
import sys

import pytest
import trio

from kiwi_gw.testing import Script, ScriptedSources, open_gateway

pytestmark = pytest.mark.slow

CONFIG = """
plugins: [scripted]
lenses: {enabled: true}
sources: [{type: scripted, id: orders}]
"""
TOKENS = """
tokens:
  roles:
    writer: {sources: ["*"], actions: [publish]}
  static: [{name: machine, token: a-token-of-a-machine, roles: [writer]}]
"""


async def produce(lines: bytes, *arguments: str) -> subprocess.CompletedProcess[bytes]:
    command = [sys.executable, "-m", "kiwi_gw", "produce", *arguments]
    return await trio.run_process(command, stdin=lines, capture_stdout=True, capture_stderr=True, check=False)


def written(script: Script) -> list[tuple[object, object]]:
    """Keys and values of what the source has published, which is what was written to it."""
    found: list[tuple[object, object]] = []
    for batch in script.history.batches:
        found += zip(batch.column("key"), batch.column("value"), strict=True)
    return found


@pytest.mark.cost
async def test_lines_are_records_in_their_order() -> None:
    sources = ScriptedSources(writable=True)
    async with open_gateway(CONFIG, plugins={"scripted": sources}) as gateway:
        lines = b"".join(b"%d\n" % number for number in range(2_000)) + b"\n\xc3\xa9"
        done = await produce(lines, gateway.address, "orders")
        assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"2002 written\n")
        values = [str(number).encode() for number in range(2_000)] + [b"", b"\xc3\xa9"]
        assert written(sources["orders"]) == [(None, value) for value in values]


async def test_keys_and_json() -> None:
    sources = ScriptedSources(writable=True)
    async with open_gateway(CONFIG + TOKENS, plugins={"scripted": sources}) as gateway:
        token = ("--token", "a-token-of-a-machine")
        done = await produce(b"a:1\nb\n:x:y\n", gateway.address, "orders", "--key-separator", ":", *token)
        assert done.returncode == 0, done.stderr
        lines = b'{"key":"k","value":{"n":1.10}}\n{}\n{"value":null,"topic":"other"}\n'
        done = await produce(lines, gateway.address, "orders", "--json", *token)
        assert done.returncode == 0, done.stderr
        assert written(sources["orders"]) == [
            (b"a", b"1"),
            (None, b"b"),
            (b"", b"x:y"),
            (b"k", b'{"n":1.10}'),
            (None, None),
            (None, None),
        ]


@pytest.mark.parametrize(
    ("lines", "arguments", "code", "words"),
    [
        (b"x\ny\n", ("nowhere",), 1, b"line 2: no such topic: `nowhere`\n0 written, 2 not\n"),
        (b"x\n\xff\n", ("orders",), 1, b"line 2 is no UTF-8"),
        (b"x\ny\n\xff\n", ("orders",), 1, b"invalid start byte; 2 were written\n"),
        (b'{"value":' + b"[" * 100_000, ("orders", "--json"), 1, b"line 1 is no JSON: "),
        (b"x" * (1 << 20) + b"\ny\n", ("orders",), 1, b"has more than 1048576 bytes\n1 written, 1 not\n"),
        (b"x" * (2 << 20), ("orders",), 1, b"line 1 has more than 1048576 bytes; 0 were written\n"),
        (b"[]\n", ("orders", "--json"), 1, b"line 1 is no JSON object"),
        (b'{"vtype":"INT","value":"x"}\n', ("orders", "--json"), 1, b"line 1: value: it must be an integer"),
        (b"", ("orders", "--json", "--key-separator", ":"), 2, b"--key-separator is for plain lines"),
    ],
)
async def test_what_is_not_written(lines: bytes, arguments: tuple[str, ...], code: int, words: bytes) -> None:
    sources = ScriptedSources(writable=True)
    async with open_gateway(CONFIG, plugins={"scripted": sources}) as gateway:
        done = await produce(lines, gateway.address, *arguments)
        assert done.returncode == code
        assert words in done.stderr


async def test_who_may_not_is_told_so() -> None:
    sources = ScriptedSources(writable=True)
    async with open_gateway(CONFIG + TOKENS, plugins={"scripted": sources}) as gateway:
        done = await produce(b"x\n", gateway.address, "orders")
        assert done.returncode == 1
        assert b"a token is needed (--token)" in done.stderr
        done = await produce(b"x\n", gateway.address, "orders", "--token", "wrong-wrong-wrong")
        assert done.returncode == 1
        assert b"invalid_token" in done.stderr


async def test_a_line_of_many_bytes_in_other_letters() -> None:
    sources = ScriptedSources(writable=True)
    async with open_gateway(CONFIG, plugins={"scripted": sources}) as gateway:
        line = "é".encode() * 400_000
        done = await produce(line, gateway.address, "orders")
        assert (done.returncode, done.stderr) == (0, b"1 written\n")
        assert written(sources["orders"]) == [(None, line)]


async def test_a_gateway_that_goes_is_noticed_though_no_line_comes() -> None:
    sources = ScriptedSources(writable=True)
    with trio.fail_after(30):
        async with open_gateway(CONFIG, plugins={"scripted": sources}) as gateway:
            command = [sys.executable, "-m", "kiwi_gw", "produce", gateway.address, "orders"]
            process = await trio.lowlevel.open_process(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
            )
            assert process.stdin is not None
            await process.stdin.send_all(b"x\n")
            while not written(sources["orders"]):  # noqa: ASYNC110
                await trio.sleep(0.01)
        assert await process.wait() == 1
        assert process.stderr is not None
        heard = b"".join([data async for data in process.stderr])
    # Whether its answer was faster than the end is not settled; nobody is told what is not known.
    unknown = b"; 0 were written, and of 1 more nobody knows"
    assert heard in {b"kiwi-gw: connection lost" + rest + b"\n" for rest in (b"", unknown)}
