"""One bounded HTTP request in a thread of its own, for plugins: import it only where something is fetched.

The thread makes the deadline hold: name resolution has no timeout, nor has a server that sends a byte now and
then. The caller goes on after the deadline and breaks the connection off.
"""

from __future__ import annotations

import contextlib
import http.client
import socket
import ssl
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

import trio

from kiwi_gw.loopback import is_loopback


@dataclass(frozen=True, slots=True)
class FetchAnswer:
    """Hold what came of a fetch.

    failure: why it brought nothing, in words that quote no secret; empty if it brought a document.
    status: of the answer, 0 if there was none. body: the document, or what was said beside a refusal.
    too_large: there was an answer, and more of it than was wanted.
    """

    failure: str
    status: int = 0
    body: bytes = b""
    too_large: bool = False


@dataclass(frozen=True, slots=True)
class FetchRequest:
    """Say what to fetch. deadline: in seconds. most_bytes: of the answer. headers: may hold secrets. context:
    of TLS; None: one that trusts whom the system trusts (`SSL_CERT_FILE`), made anew, which takes 20 ms or
    more. body: what is posted; None: it is a GET."""

    url: str
    deadline: float
    most_bytes: int
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    context: ssl.SSLContext | None = None
    body: bytes | None = field(default=None, repr=False)


class HttpFetch:
    """Fetch once. `arrived(fetch, answer)` is called in the fetching thread. Then `done` is set; `good` is
    for `arrived` to set.

    Redirects are not followed: what is trusted comes from the address in the configuration and from nowhere
    else. Proxies are taken from the environment.
    """

    def __init__(
        self, request: FetchRequest, arrived: Callable[[HttpFetch, FetchAnswer], None], name: str
    ) -> None:
        """Prepare it. name: of the thread."""
        parts = urlsplit(request.url)
        self.where = f"{parts.scheme}://{parts.netloc}{parts.path}"  # a query may hold a secret
        self.done = threading.Event()
        self.good = False
        self._request = request
        self._arrived = arrived
        self._name = name
        self._connection: http.client.HTTPConnection | None = None
        self._ends_at = 0.0

    def start(self) -> None:
        self._ends_at = time.monotonic() + self._request.deadline
        threading.Thread(target=self._run, name=self._name, daemon=True).start()

    def abort(self) -> None:
        """Break the connection off, if there is one yet; the thread ends by the error that this makes."""
        connection = self._connection
        if connection is not None and connection.sock is not None:
            with contextlib.suppress(OSError):  # it is closed already
                connection.sock.shutdown(socket.SHUT_RDWR)

    def _run(self) -> None:
        try:
            answer = self._get()
        except urllib.error.HTTPError as error:
            answer = self._refused(error)
        except http.client.HTTPException as error:
            answer = FetchAnswer(type(error).__name__)  # its message may quote the address
        except OSError as error:
            cause = getattr(error, "reason", error)  # urllib wraps that of connecting
            late = isinstance(cause, TimeoutError)
            answer = _late(self._request) if late else FetchAnswer(f"{type(error).__name__}: {error}")
        except ValueError as error:
            answer = FetchAnswer(str(error))
        try:
            self._arrived(self, answer)
        finally:
            self.done.set()

    def _get(self) -> FetchAnswer:
        wanted = self._request
        handlers: list[urllib.request.BaseHandler] = [
            _NoRedirect(),
            _Watched(self._connected, self._context()),
        ]
        if is_loopback(urlsplit(wanted.url).hostname):
            handlers.append(urllib.request.ProxyHandler({}))
        opener = urllib.request.build_opener(*handlers)
        headers = {"Accept": "application/json", "User-Agent": "kiwi-gw", **wanted.headers}
        request = urllib.request.Request(wanted.url, wanted.body, headers)  # noqa: S310  (the scheme is checked by the settings)
        with opener.open(request, timeout=wanted.deadline) as response:
            body, whole = self._read(response)
            if not whole:
                return FetchAnswer("it is too large", response.status, too_large=True)
            return FetchAnswer("" if body else "it is empty", response.status, body)

    def _context(self) -> ssl.SSLContext | None:
        if self._request.context is None and self._request.url.lower().startswith("https:"):
            return ssl.create_default_context()
        return self._request.context

    def _refused(self, error: urllib.error.HTTPError) -> FetchAnswer:
        """Read what a server says beside its refusal, as far as it can be had."""
        body = b""
        with contextlib.closing(error), contextlib.suppress(OSError, http.client.HTTPException):
            body, _ = self._read(error)
        return FetchAnswer(f"HTTP status {error.code}", error.code, body)

    def _read(self, response: Any) -> tuple[bytes, bool]:
        """Read the body; whether that was all of it. TimeoutError: it takes too long."""
        body = b""
        while chunk := response.read1(65_536):
            body += chunk
            if len(body) > self._request.most_bytes:
                return b"", False
            if time.monotonic() > self._ends_at:
                raise TimeoutError("it takes too long")
        return body, True

    def _connected(self, connection: http.client.HTTPConnection) -> None:
        self._connection = connection


async def fetch(request: FetchRequest, name: str) -> FetchAnswer:
    """Fetch without blocking the event loop. A fetch that is cancelled, or late, is broken off. name: of the
    thread."""
    answers: list[FetchAnswer] = []
    came, token = trio.Event(), trio.lowlevel.current_trio_token()

    def arrived(_: HttpFetch, answer: FetchAnswer) -> None:
        answers.append(answer)
        with contextlib.suppress(trio.RunFinishedError):
            token.run_sync_soon(came.set)

    running = HttpFetch(request, arrived, name)
    running.start()
    try:
        with trio.move_on_after(request.deadline):
            await came.wait()
    finally:
        answer = answers[0] if answers else None
        if answer is None:
            running.abort()  # of which another answer may come
    return answer or _late(request)


def _late(request: FetchRequest) -> FetchAnswer:
    """Say the same of one that took too long, whichever clock saw it first: the socket's or ours."""
    return FetchAnswer(f"no answer within {request.deadline:g} s")


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_: Any) -> None:
        return None


class _Watched(urllib.request.HTTPHandler, urllib.request.HTTPSHandler):
    """Open connections, and say of each that it was made, so that it can be broken off."""

    def __init__(
        self, connected: Callable[[http.client.HTTPConnection], None], context: ssl.SSLContext | None
    ) -> None:
        # What is made here by default costs as much as a request.
        super().__init__(context=context or ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT))
        self._connected = connected

    def do_open(self, http_class: Any, req: urllib.request.Request, **options: Any) -> Any:
        def connect(host: str, **more: Any) -> http.client.HTTPConnection:
            connection: http.client.HTTPConnection = http_class(host, **more)
            self._connected(connection)
            return connection

        return super().do_open(connect, req, **options)
