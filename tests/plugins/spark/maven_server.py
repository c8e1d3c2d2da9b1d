"""A Maven repository on loopback that does what a test tells it to."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from kiwi_spark.java.jar_set import Locked

Behaviour = Callable[["Handler", bytes], None]


class Handler(BaseHTTPRequestHandler):
    """One request; `server.told` says how it is answered."""

    server: MavenServer

    def do_GET(self) -> None:
        name = self.path.rpartition("/")[2]
        self.server.paths.append(self.path)
        self.server.asked[name] += 1
        self.server.authorizations.append(self.headers["Authorization"])
        content = self.server.files.get(self.path.removeprefix("/m2/"))
        behave = self.server.told.get(name)
        if behave is not None:
            behave(self, content or b"")
        elif content is None:
            self.send_error(404)
        else:
            whole(self, content)

    def log_message(self, *_: Any) -> None:
        pass


class MavenServer(ThreadingHTTPServer):
    """Serves `files` (by path) below `/m2`.

    told: how a file is answered, by its name, if not as it should be. asked: how often each was, by name.
    ending: set when the test is over, for those that wait.
    """

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.files: dict[str, bytes] = {}
        self.told: dict[str, Behaviour] = {}
        self.asked: Counter[str] = Counter()
        self.paths: list[str] = []
        self.authorizations: list[str | None] = []
        self.ending = threading.Event()
        self.address = f"http://127.0.0.1:{self.server_port}/m2"

    def holds(self, *files: tuple[Locked, bytes]) -> None:
        self.files |= {file.path: content for file, content in files}

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Nothing: a client that hangs up is what some tests are about."""


def whole(handler: Handler, content: bytes) -> None:
    """As it should be."""
    head(handler, len(content))
    handler.wfile.write(content)


def head(handler: Handler, length: int | None) -> None:
    handler.send_response(200)
    if length is not None:
        handler.send_header("Content-Length", str(length))
    handler.end_headers()


def half(handler: Handler, content: bytes) -> None:
    """Ends in the middle."""
    head(handler, len(content))
    handler.wfile.write(content[: len(content) // 2])


def endless(handler: Handler, content: bytes) -> None:
    """Says no length, and never ends by itself."""
    head(handler, None)
    while not handler.server.ending.is_set():
        handler.wfile.write(content)


def silent(handler: Handler, _: bytes) -> None:
    """Takes the request and answers nothing."""
    handler.server.ending.wait()


def stuck(handler: Handler, content: bytes) -> None:
    """Sends half and then nothing more."""
    head(handler, len(content))
    handler.wfile.write(content[: len(content) // 2])
    handler.server.ending.wait()


def dripping(handler: Handler, content: bytes) -> None:
    """Sends a byte now and then, which no socket's timeout notices."""
    head(handler, len(content))
    while not handler.server.ending.wait(0.01):
        handler.wfile.write(content[:1])


def status(code: int, **headers: str) -> Behaviour:
    """Answers a status."""

    def behave(handler: Handler, _: bytes) -> None:
        handler.send_response(code)
        for name, value in headers.items():
            handler.send_header(name, value)
        handler.send_header("Content-Length", "0")
        handler.end_headers()

    return behave


def first(times: int, other: Behaviour) -> Behaviour:
    """`other` for so many times, and then as it should be."""
    left = threading.Semaphore(times)

    def behave(handler: Handler, content: bytes) -> None:
        (other if left.acquire(blocking=False) else whole)(handler, content)

    return behave
