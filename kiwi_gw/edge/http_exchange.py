"""One HTTP request and its response, between a handler and a stream.

A body is as long as its Content-Length says; a chunked one is read by h11. This adds what that leaves open:
sizes, deadlines, and what a failing handler or a vanished client means. An exchange whose body is chunked has
its own h11 connection, which has read the head, so h11 sees one request at a time. The response is written
here: of its framing there is little (RFC 9112, 6 and 7.1).
"""

from __future__ import annotations

import math
import secrets
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, field

import h11
import structlog
import trio

from kiwi_gw.dialect_api import HttpResponse, HttpStream, NotStreamed
from kiwi_gw.edge.http_errors import HttpError, http_error
from kiwi_gw.edge.plain_request import ConnectionEnds, Handler, PlainRequest
from kiwi_gw.edge.request_head import FoundHead, HeadLimits
from kiwi_gw.edge.response_head import Headers, response_head
from kiwi_gw.edge.transports import SocketTransport

_log = structlog.get_logger(__name__)

_READ = 64 * 1024
_FIRST = 32 * 1024  # of a request, or of several at once: each is copied with what is behind it
_WRITE = 8 * 1024  # what counts as progress of a send that waits
_PIPELINED = 64 * 1024
_SMALL_CHUNKS = 1024  # so many chunks may be small; beyond them 64 bytes on average are wanted
_SMALL = 64


@dataclass(frozen=True, slots=True)
class HttpLimits:
    """What a client may ask of a plain HTTP connection. Times are in seconds.

    body_seconds: how long we wait for a request body in all; each `body_bytes_per_second` bytes that
    arrive add one second. idle_seconds: between requests. send_seconds: for each 8 KiB of a response;
    stall_seconds: of one that takes as long as its client likes (`HttpStream.patient`).
    """

    head: HeadLimits = field(default_factory=HeadLimits)
    body_bytes: int = 1024 * 1024
    body_seconds: float = 5.0
    body_bytes_per_second: int = 16 * 1024
    idle_seconds: float = 60.0
    send_seconds: float = 10.0
    stall_seconds: float = math.inf


class ClientGone(Exception):  # noqa: N818  (it says what happened)
    """The client left, or did not read for too long."""


class Closing:
    """Say to connections that they end: a running request is the last, who waits for none goes at once."""

    def __init__(self, *, now: bool = False) -> None:
        self._now = now
        self._idle: set[trio.CancelScope] = set()

    def is_set(self) -> bool:
        return self._now

    def set(self) -> None:
        self._now = True
        for scope in self._idle:
            scope.cancel()

    async def receive(self, stream: trio.abc.ReceiveStream, seconds: float) -> bytes:
        """Wait for the first bytes of a request, for so many seconds, and no longer than until it is set.
        Returns nothing if none came. What has come is returned, whatever else happened meanwhile."""
        if self._now:
            return b""
        with trio.move_on_after(seconds) as scope:
            self._idle.add(scope)
            try:
                return bytes(await stream.receive_some(_FIRST))
            except trio.BrokenResourceError:
                pass  # it has no request that could be answered
            finally:
                self._idle.discard(scope)
        return b""


class HttpExchange:
    """Give it the request head, then `run` it with a handler.

    last: the response says `Connection: close`. Set it any time before the response begins. status: of the
    response, 0 as long as there is none. add_page: as `Routes.add_page`.
    """

    def __init__(
        self,
        stream: trio.abc.Stream,
        found: FoundHead,
        limits: HttpLimits,
        closing: Closing,
        ends: ConnectionEnds,
        add_page: Callable[[str, HttpError], None] = lambda path, error: None,
    ) -> None:
        self.last = False
        self.status = 0
        self._stream = stream
        self._head = head = found.head
        self._limits = limits
        self._closing = closing
        self._ends = ends
        self._add_page = add_page
        self._chunks = None if head.header("transfer-encoding") is None else head.reader()
        self._left = int(head.header("content-length") or 0)  # of a body that is not chunked
        self._body_over = self._chunks is None and not self._left
        self._waits = head.header("expect") is not None and head.version == "1.1" and not self._body_over
        self._surplus = b""
        if found.surplus:
            self._take(found.surplus)
        self._body_bytes = 0
        self._received = 0
        self._chunks_read = 0
        self._waited = 0.0
        self._gone = False
        self._answered = False

    # --- what serve_http uses ------------------------------------------------------------------

    async def run(self, handler: Handler, parameters: Mapping[str, str]) -> None:
        """Answer with what the handler returns or raises. parameters: of the path. Raises ClientGone."""
        try:
            self._check_length()
            asked = PlainRequest(self._head, parameters, self._ends, self._read_whole_body, self._watched)
            answer = await handler(asked)
            if isinstance(answer, HttpStream):
                await self._respond_in_pieces(answer)
            else:
                await self._respond(answer)
        except Exception as error:
            # Whatever a handler raises ends its own request only.
            if self._gone:
                raise ClientGone from error
            fault = http_error(error)
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
        if self.status:
            self.last = True
            return
        self._add_page(self._head.path, error)
        await self._respond(error.response)

    async def rest(self) -> bytes | None:
        """Return the first bytes of the next request (maybe none yet); None if there can be no next one."""
        if not self._answered or self.last:
            return None
        try:
            await self._drain_body()
        except HttpError:
            return None  # the response is sent; what is wrong with the rest of the request ends it
        if not self._body_over:
            return None
        return self._behind

    @property
    def unread(self) -> bool:
        """Whether the client sent, or may still be sending, bytes that were not read."""
        return not self._body_over or bool(self._behind)

    # --- the response --------------------------------------------------------------------------

    async def _respond_in_pieces(self, answer: HttpStream) -> None:
        """Answer with each piece when the one before was taken. Raises what the pieces raise before there is
        an answer; behind that, what they raise ends the connection."""
        failed: Exception | None = None
        async with self._watched():
            try:
                async with aclosing(answer.pieces) as pieces:
                    await self._send_pieces(answer, pieces)
            except Exception as error:  # noqa: BLE001  a nursery would put it into a group
                failed = error
        if isinstance(failed, NotStreamed) and not self.status:
            await self._respond(failed.response)
        elif failed is not None:
            raise failed

    async def _send_pieces(self, answer: HttpStream, pieces: AsyncGenerator[bytes, None]) -> None:
        within = self._limits.stall_seconds if answer.patient else self._limits.send_seconds
        piece = await anext(pieces, None)
        chunked = self._head.version != "1.0"  # else its end is that of the connection
        framing = (("Transfer-Encoding", "chunked"),) if chunked else ()
        out = self._response_head(200, answer.headers, (("Content-Type", answer.content_type), *framing))
        while piece is not None and self._head.method != "HEAD":
            if piece:
                around = (b"%x\r\n" % len(piece), b"\r\n") if chunked else (b"", b"")
                await self._write(within, out + around[0], piece, around[1])
                out = b""
                await trio.lowlevel.checkpoint()  # neither the pieces nor the socket need have waited
            piece = await anext(pieces, None)
        end = b"0\r\n\r\n" if chunked and self._head.method != "HEAD" else b""
        await self._write(within, out + end)
        self._answered = True

    @asynccontextmanager
    async def _watched(self) -> AsyncIterator[None]:
        """Give the block up if the client leaves. The block itself raises nothing. Raises ClientGone."""
        async with trio.open_nursery() as nursery:
            if self._body_over and not self._behind:
                nursery.start_soon(self._watch, nursery.cancel_scope)
            yield
            nursery.cancel_scope.cancel()
        if self._gone:
            raise ClientGone("the client left")

    async def _watch(self, scope: trio.CancelScope) -> None:
        """Give what is done up if the client leaves. One that sends more is watched no longer."""
        try:
            data = bytes(await self._stream.receive_some(_READ))
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            data = b""
        if data:
            self._take(data)
        else:
            self._gone = True
            scope.cancel()

    async def _respond(self, response: HttpResponse) -> None:
        described = ("Content-Type", response.content_type), ("Content-Length", str(len(response.body)))
        head = self._response_head(
            response.status, response.headers, () if response.status == 204 else described
        )
        body = b"" if self._head.method == "HEAD" or response.status in (204, 304) else response.body
        await self._write(self._limits.send_seconds, head, body)
        self._answered = True

    def _response_head(self, status: int, headers: Headers, described: Headers) -> bytes:
        """Begin the response. Raises ValueError for headers that would break it."""
        # A client that was never told to continue may or may not send its body now: it cannot be said
        # where the next request begins.
        if self._closing.is_set() or self._waits or self._leaves_much or not self._head.persistent:
            self.last = True
        head = response_head(status, headers, described, last=self.last)
        self.status = status
        return head

    @property
    def _leaves_much(self) -> bool:
        """Whether more of the body is left than is read only to be thrown away."""
        return not self._body_over and (self._chunks is not None or self._left > _PIPELINED)

    async def _write(self, within: float, *parts: bytes) -> None:
        """Send them. What is long is not copied: it may be there for as long as its client likes, and so may
        those of many others. within: seconds for the next 8 KiB of what is not taken at once. Raises
        ClientGone."""
        size = sum(map(len, parts))
        if size <= 2 * _WRITE:
            parts = (b"".join(parts),)
        taken = self._stream.try_send_many(parts) if isinstance(self._stream, SocketTransport) else 0
        if taken == size:
            return
        try:
            for part in parts:
                view = memoryview(part)[taken:]
                taken = max(taken - len(part), 0)
                for start in range(0, len(view), _WRITE):
                    with trio.move_on_after(within) as scope:
                        await self._stream.send_all(view[start : start + _WRITE])
                    if scope.cancelled_caught:
                        self._gone = True
                        raise ClientGone("the client does not read")
        except (trio.BrokenResourceError, trio.ClosedResourceError) as error:
            self._gone = True
            raise ClientGone("the client left") from error

    # --- the request body ----------------------------------------------------------------------

    def _check_length(self) -> None:
        if self._left > self._limits.body_bytes:
            self.last = True
            raise self._too_large()

    def _too_large(self) -> HttpError:
        return HttpError(413, f"the request body is larger than {self._limits.body_bytes} bytes")

    async def _read_whole_body(self, most: int, came: Callable[[int], None]) -> bytes:
        """Raises HttpError for a body that is too large, too slow or malformed."""
        if self._left > most:
            raise HttpError(413, f"the body is larger than {most} bytes")
        if self._waits:
            self._waits = False
            await self._write(self._limits.send_seconds, b"HTTP/1.1 100 Continue\r\n\r\n")
        pieces, size = [], 0
        while not self._body_over:
            try:
                piece = await self._read_body()
            except HttpError:
                self.last = True
                raise
            if piece is None:
                raise ClientGone
            pieces.append(piece)
            size += len(piece)
            if size > most:
                raise HttpError(413, f"the body is larger than {most} bytes")
            came(len(piece))
        return b"".join(pieces)

    async def _read_body(self) -> bytes | None:
        """Read the next piece, empty only at the end of the body; None if the client left before it."""
        if self._chunks is not None:
            return await self._read_chunks(self._chunks)
        if not self._surplus and not await self._receive_more():
            return None
        piece, self._surplus = self._surplus[: self._left], self._surplus[self._left :]
        self._left -= len(piece)
        self._body_over = not self._left
        return piece

    async def _read_chunks(self, chunks: h11.Connection) -> bytes | None:
        """Do the same with a chunked body."""
        parts: list[bytes] = []
        while True:
            try:
                event = chunks.next_event()
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
        self._chunks_read += event.chunk_start
        if self._body_bytes > self._limits.body_bytes:
            raise self._too_large()
        small = self._chunks_read - _SMALL_CHUNKS
        if small > 0 and self._body_bytes < _SMALL * small:
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
            self._take(data)
        else:
            self._gone = True
        return bool(data)

    def _take(self, data: bytes) -> None:
        """Keep what was read until it is looked at."""
        if self._chunks is not None:
            self._chunks.receive_data(data)
        else:
            self._surplus += data

    @property
    def _behind(self) -> bytes:
        """Return what was read behind the body, when that is over."""
        return self._surplus if self._chunks is None else self._chunks.trailing_data[0]

    async def _drain_body(self) -> None:
        """Read what the handler left of a small body."""
        read = 0
        while not self._body_over and read < _PIPELINED:
            piece = await self._read_body()
            if piece is None:
                return
            read += len(piece)
