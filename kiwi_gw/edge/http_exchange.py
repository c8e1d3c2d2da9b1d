"""One HTTP request and its response, between an ASGI application and a stream.

h11 frames the bodies; this adds what it leaves open: sizes, deadlines, and what a failing application or a
vanished client means. Every exchange has its own h11 connection, so a request is only ever read by
`kiwi_gw.edge.request_head` under its limits, and h11 sees one request at a time.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from http.client import responses
from urllib.parse import unquote

import h11
import structlog
import trio

from kiwi_gw.edge.asgi import App, Message, Scope
from kiwi_gw.edge.http_errors import HttpError, http_date
from kiwi_gw.edge.paths import NO_PARAMETERS
from kiwi_gw.edge.request_head import HeadLimits, RequestHead

_log = structlog.get_logger(__name__)

_READ = 8 * 1024
_WRITE = 8 * 1024  # what counts as progress of a send
_PIPELINED = 64 * 1024
_SMALL_CHUNKS = 1024  # so many chunks may be small; beyond them 64 bytes on average are wanted
_SMALL = 64


@dataclass(frozen=True, slots=True)
class HttpLimits:
    """What a client may ask of a plain HTTP connection. Times are in seconds.

    body_seconds: how long we wait for a request body in all; each `body_bytes_per_second` bytes that
    arrive add one second. idle_seconds: between requests. send_seconds: for each 8 KiB of a response.
    """

    head: HeadLimits = field(default_factory=HeadLimits)
    body_bytes: int = 1024 * 1024
    body_seconds: float = 5.0
    body_bytes_per_second: int = 16 * 1024
    idle_seconds: float = 60.0
    send_seconds: float = 10.0


@dataclass(frozen=True, slots=True)
class ConnectionEnds:
    """The two ends of a connection, as ASGI names them; None where they have no address."""

    client: tuple[str, int] | None = None
    server: tuple[str, int | None] | None = None
    secure: bool = False


class ClientGone(OSError):  # noqa: N818  (ASGI 2.4 wants an OSError from `send`)
    """Raised by `send`: the client left, or did not read for too long."""


class HttpExchange:
    """Give it the request head, then `run` it with an application.

    last: the response says `Connection: close`. Set it any time before the response begins. status: of the
    response, 0 as long as there is none.
    """

    def __init__(
        self,
        stream: trio.abc.Stream,
        head: RequestHead,
        limits: HttpLimits,
        closing: trio.Event,
        ends: ConnectionEnds,
    ) -> None:
        self.last = False
        self.status = 0
        self._stream = stream
        self._head = head
        self._limits = limits
        self._closing = closing
        self._ends = ends
        self._h11 = h11.Connection(h11.SERVER)
        self._h11.receive_data(head.raw)
        self._h11.next_event()  # the Request, which `parse_head` has had from h11 before
        if head.surplus:
            self._h11.receive_data(head.surplus)
        self._start: Message | None = None  # sent with the first piece of the body, as ASGI asks
        self._finished = trio.Event()
        self._body_over = not (
            head.header("transfer-encoding") or (head.header("content-length") or "").strip("0")
        )
        if self._body_over:
            self._h11.next_event()  # the EndOfMessage: whether bytes are left is then known without asking
        self._told_over = False
        self._body_bytes = 0
        self._received = 0
        self._chunks = 0
        self._waited = 0.0
        self._gone = False
        self._fault: HttpError | None = None

    # --- what serve_http uses ------------------------------------------------------------------

    async def run(self, app: App, parameters: Mapping[str, str] = NO_PARAMETERS) -> None:
        """Run the application to the end of its response. parameters: of the path. Raises ClientGone."""
        try:
            self._check_length()
            await app({**self._scope(), "path_params": parameters}, self.receive, self.send)
            if not self._finished.is_set():
                raise RuntimeError("the application returned before its response was whole")  # noqa: TRY301
        except Exception as error:
            # Whatever an application raises ends its own request only.
            if self._gone:
                raise ClientGone from error
            fault = self._fault or (error if isinstance(error, HttpError) else None)
            if fault is None:
                error_id = secrets.token_hex(6)
                _log.error(
                    "http_app_failed",
                    error_id=error_id,
                    method=self._head.method,
                    path=self._head.path,
                    exc_info=error,
                )
                fault = HttpError(500, f"internal error {error_id}")
            await self.answer(fault)

    async def answer(self, error: HttpError) -> None:
        """Answer with an error, if no response has begun; if one has, all that is left is to close."""
        if self._h11.our_state is not h11.SEND_RESPONSE or self._finished.is_set():
            self.last = True
            return
        self._start = None
        body = b"" if self._bodyless(error.status) else f"{error.message}\n".encode()
        headers = [(name.lower().encode(), value.encode("latin-1")) for name, value in error.headers]
        if any(name == b"upgrade" for name, _ in headers):
            headers.append((b"connection", b"Upgrade"))
        await self._respond(error.status, headers, body)

    async def rest(self) -> bytes | None:
        """Return the first bytes of the next request (maybe none yet); None if there can be no next one."""
        if self._h11.our_state is not h11.DONE or self.last:
            return None
        try:
            await self._drain_body()
        except HttpError:
            return None  # the response is sent; what is wrong with the rest of the request ends it
        if self._h11.their_state is not h11.DONE:
            return None
        return self._h11.trailing_data[0]

    @property
    def unread(self) -> bool:
        """Whether the client sent, or may still be sending, bytes that were not read."""
        return self._h11.their_state in (h11.SEND_BODY, h11.ERROR) or bool(self._h11.trailing_data[0])

    # --- what the application uses -------------------------------------------------------------

    async def receive(self) -> Message:
        """ASGI `receive`. Raises HttpError for a body that is too large, too slow or malformed."""
        if self._told_over:
            await self._wait_disconnected()
        if self._gone or self._finished.is_set():
            return {"type": "http.disconnect"}
        if self._h11.they_are_waiting_for_100_continue:
            await self._write(self._h11.send(h11.InformationalResponse(status_code=100, headers=[])))
        try:
            body = b"" if self._body_over else await self._read_body()
        except HttpError as error:
            self._fault = error
            self.last = True
            raise
        if body is None:
            return {"type": "http.disconnect"}
        self._told_over = self._body_over
        return {"type": "http.request", "body": body, "more_body": not self._body_over}

    async def send(self, message: Message) -> None:
        """ASGI `send`. Raises ClientGone, RuntimeError for messages out of order."""
        if self._gone:
            raise ClientGone
        kind = message["type"]
        if kind == "http.response.start":
            if self._start is not None:
                raise RuntimeError("the response has begun before")
            self._start = message
        elif kind == "http.response.body":
            if self._start is None or self._finished.is_set():
                raise RuntimeError("no response has begun, or it is over")
            await self._send_body(message.get("body", b""), more=message.get("more_body", False))
        else:
            raise RuntimeError(f"{kind!r} is not known here")

    # --- the response --------------------------------------------------------------------------

    async def _send_body(self, body: bytes, *, more: bool) -> None:
        assert self._start is not None  # noqa: S101
        status = self._start["status"]
        out = b""
        if self._h11.our_state is h11.SEND_RESPONSE:
            out = self._response(status, list(self._start.get("headers", ())))
        if body and not self._bodyless(status):
            out += self._h11.send(h11.Data(data=body))
        if not more:
            out += self._h11.send(h11.EndOfMessage())
        await self._write(out)
        if not more:
            self._finished.set()

    async def _respond(self, status: int, headers: list[tuple[bytes, bytes]], body: bytes) -> None:
        headers = [
            (b"content-type", b"text/plain; charset=utf-8"),
            (b"content-length", b"%d" % len(body)),
            *headers,
        ]
        out = self._response(status, headers)
        if body:
            out += self._h11.send(h11.Data(data=body))
        await self._write(out + self._h11.send(h11.EndOfMessage()))
        self._finished.set()

    def _response(self, status: int, headers: list[tuple[bytes, bytes]]) -> bytes:
        self.status = status
        # A client that was never told to continue may or may not send its body now: it cannot be said
        # where the next request begins.
        if self._closing.is_set() or self._h11.they_are_waiting_for_100_continue:
            self.last = True
        if self.last:
            headers = [*headers, (b"connection", b"close")]
        if not any(name.lower() == b"date" for name, _ in headers):
            headers = [*headers, (b"date", http_date().encode())]
        reason = responses.get(status, "")
        return self._h11.send(h11.Response(status_code=status, headers=headers, reason=reason))

    def _bodyless(self, status: int) -> bool:
        return self._head.method == "HEAD" or status in (204, 304)

    async def _write(self, data: bytes) -> None:
        view = memoryview(data)
        try:
            for start in range(0, len(view), _WRITE):
                with trio.move_on_after(self._limits.send_seconds) as scope:
                    await self._stream.send_all(view[start : start + _WRITE])
                if scope.cancelled_caught:
                    self._gone = True
                    raise ClientGone("the client does not read")
        except (trio.BrokenResourceError, trio.ClosedResourceError) as error:
            self._gone = True
            raise ClientGone("the client left") from error

    # --- the request body ----------------------------------------------------------------------

    def _check_length(self) -> None:
        length = self._head.header("content-length")
        if length is not None and int(length) > self._limits.body_bytes:
            self.last = True
            raise self._too_large()

    def _too_large(self) -> HttpError:
        return HttpError(413, f"the request body is larger than {self._limits.body_bytes} bytes")

    async def _read_body(self) -> bytes | None:
        """Read the next piece, empty only at the end of the body; None if the client left before it."""
        parts: list[bytes] = []
        while True:
            try:
                event = self._h11.next_event()
            except h11.RemoteProtocolError as error:
                raise HttpError(400, "the request body is malformed") from error
            if isinstance(event, h11.Data):
                self._count(event)
                parts.append(bytes(event.data))
            elif isinstance(event, h11.EndOfMessage):
                self._body_over = True
                break
            elif parts:
                break
            elif not await self._receive_more():
                return None
        return b"".join(parts)

    def _count(self, event: h11.Data) -> None:
        self._body_bytes += len(event.data)
        self._chunks += event.chunk_start
        if self._body_bytes > self._limits.body_bytes:
            raise self._too_large()
        if self._chunks > _SMALL_CHUNKS and self._body_bytes < _SMALL * (self._chunks - _SMALL_CHUNKS):
            raise HttpError(400, "the chunks of the request body are too small")

    async def _receive_more(self) -> bool:
        """Wait for more of the body. False if the client left."""
        allowed = self._limits.body_seconds + self._received / self._limits.body_bytes_per_second
        since = trio.current_time()
        try:
            with trio.move_on_after(max(0.0, allowed - self._waited)) as scope:
                data = bytes(await self._stream.receive_some(_READ))
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            data = b""
        if scope.cancelled_caught:
            raise HttpError(408, "the request body came too slowly")
        self._waited += trio.current_time() - since
        self._received += len(data)
        if data:
            self._h11.receive_data(data)
        else:
            self._gone = True
        return bool(data)

    async def _drain_body(self) -> None:
        """Read what the application left of a small body."""
        read = 0
        while not self._body_over and read < _PIPELINED:
            piece = await self._read_body()
            if piece is None:
                return
            read += len(piece)

    async def _wait_disconnected(self) -> None:
        """Return when the client leaves or the response is over, whichever is first."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._watch_client, nursery.cancel_scope)
            await self._finished.wait()
            nursery.cancel_scope.cancel()

    async def _watch_client(self, scope: trio.CancelScope) -> None:
        # What arrives meanwhile is the next request; it is kept, up to a bound.
        while len(self._h11.trailing_data[0]) < _PIPELINED:
            try:
                data = bytes(await self._stream.receive_some(_READ))
            except (trio.BrokenResourceError, trio.ClosedResourceError):
                data = b""
            if not data:
                self._gone = True
                scope.cancel()
                return
            self._h11.receive_data(data)

    def _scope(self) -> Scope:
        head = self._head
        return {
            "type": "http",
            "asgi": {"version": "3.0", "spec_version": "2.4"},
            "http_version": head.version,
            "method": head.method,
            "scheme": "https" if self._ends.secure else "http",
            "path": unquote(head.path, errors="replace"),
            "raw_path": head.path.encode(),
            "root_path": "",
            "query_string": head.query.encode(),
            "headers": [(name.encode(), value.encode("latin-1")) for name, value in head.headers],
            "client": self._ends.client,
            "server": self._ends.server,
        }
