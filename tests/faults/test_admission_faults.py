"""What is let in and what is not, over real sockets: heads (P8), origins (S1), TLS hellos (C5, S10).

The whole matrices are tests/edge/test_request_head.py, test_origin.py, test_upgrade.py and test_tls.py; here
each kind goes through the door once, and the gateway is as before.
"""

from __future__ import annotations

import socket
import ssl
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import trio
import trustme

from tests.faults.attackers import attack
from tests.faults.stages import configuration, faulted_gateway
from tests.faults.test_hostile_clients import CUT_WITHIN, back_to, healthy
from tests.integration.wire import handshake

pytestmark = pytest.mark.integration

UPGRADE = handshake("gw.example")[0]


def with_headers(*lines: str) -> bytes:
    return UPGRADE.removesuffix(b"\r\n") + "".join(f"{line}\r\n" for line in lines).encode() + b"\r\n"


def get(*lines: str) -> bytes:
    return "".join(f"{line}\r\n" for line in ("GET /health HTTP/1.1", "Host: localhost", *lines, "")).encode()


HEADS = {
    "129 headers": (get(*[f"X-{n}: x" for n in range(129)]), 431),
    "a line of 9 KiB": (get("X: " + "x" * 9_216), 431),
    "a folded line": (get("X: a", " b"), 400),
    "TE and CL": (get("Transfer-Encoding: chunked", "Content-Length: 3"), 400),
    "no colon": (get("nonsense"), 400),
    "absolute form": (UPGRADE.replace(b"GET / ", b"GET ws://gw.example/ "), 101),
    "absolute form of elsewhere": (UPGRADE.replace(b"GET / ", b"GET http://127.0.0.1:1/ "), 101),
    "absolute form that is none": (UPGRADE.replace(b"GET / ", b"GET file:///etc/passwd "), 400),
    "close, Upgrade": (UPGRADE.replace(b"Connection: Upgrade", b"Connection: close, Upgrade"), 101),
    "no origin": (UPGRADE, 101),
    "same origin": (with_headers("Origin: http://gw.example"), 101),
    "foreign origin": (with_headers("Origin: http://evil.example"), 403),
    "origin null": (with_headers("Origin: null"), 403),
    "another port": (with_headers("Origin: http://gw.example:81"), 403),
    "a trailing dot": (with_headers("Origin: http://gw.example."), 403),
    "a longer name": (with_headers("Origin: http://gw.example.evil.example"), 403),
    "absolute form, and an origin of Host": (
        with_headers("Origin: http://gw.example").replace(b"GET / ", b"GET http://127.0.0.1:1/ "),
        403,
    ),
    "two origins": (with_headers("Origin: http://gw.example", "Origin: http://evil.example"), 403),
}


async def test_heads_and_origins(tmp_path: Path) -> None:
    async with healthy(tmp_path) as stage:
        tasks, descriptors = stage.beats.last["tasks"], stage.beats.last["descriptors"]
        got = {}
        for name, (head, _) in HEADS.items():
            async with await trio.open_tcp_stream("127.0.0.1", stage.gateway.port) as stream:
                await stream.send_all(head)
                answer = b""
                while b"\r\n" not in answer:
                    answer += await stream.receive_some()
                got[name] = int(answer.split()[1])
        assert got == {name: status for name, (_, status) in HEADS.items()}
        await back_to(stage, tasks, descriptors)


async def test_tls_hellos_of_one_byte_a_second(tmp_path: Path, figure: Callable[[str, object], None]) -> None:
    authority = trustme.CA()
    issued = authority.issue_cert("localhost")
    issued.cert_chain_pems[0].write_to_path(tmp_path / "cert.pem")
    issued.private_key_pem.write_to_path(tmp_path / "key.pem")
    context = ssl.create_default_context()
    authority.configure_trust(context)
    tls = {"cert": str(tmp_path / "cert.pem"), "key": str(tmp_path / "key.pem")}
    config = configuration(server={"address": "127.0.0.1:0", "tls": tls})
    async with faulted_gateway(tmp_path, config) as running, trio.open_nursery() as nursery:
        found = {}

        async def slowly() -> None:
            found.update(await attack("slow", running.port, count=300, what="hello", seconds=8))
            nursery.cancel_scope.cancel()

        nursery.start_soon(slowly)
        connects = []
        while True:
            connects.append(await trio.to_thread.run_sync(_connect, running.port, context))
            await trio.sleep(0.1)
    connects.sort()
    figure(
        "TLS connects beside 300 slow hellos, ms: median, slowest",
        (connects[len(connects) // 2], connects[-1]),
    )
    assert found["left"] == 0
    assert found["longest"] <= CUT_WITHIN
    assert connects[len(connects) // 2] <= 100


def _connect(port: int, context: ssl.SSLContext) -> float:
    """Return the milliseconds that a connection takes."""
    began = time.monotonic()
    with (
        socket.create_connection(("127.0.0.1", port), timeout=10) as sock,
        context.wrap_socket(sock, server_hostname="localhost"),
    ):
        return (time.monotonic() - began) * 1000
