"""Reading one request head from a connection: bounded in bytes, lines, headers and time.

h11 does the parsing (RFC 9112). It forgives several things that let two parsers disagree about where a
request ends; they are refused here: a line that ends in a bare LF, control characters, folded lines,
Content-Length twice or beside Transfer-Encoding, Transfer-Encoding in HTTP/1.0.

Limits are judged byte by byte, so the verdict does not depend on how the bytes were cut on their way.

Who keeps a connection mostly sends the same head again, with another Content-Length at most: that is
recognised by its bytes and not parsed again (`_same_again`).
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import h11
import trio

from kiwi_gw.edge.http_errors import HttpError
from kiwi_gw.model import HeadCredential

_CR, _TLS_HANDSHAKE = 0x0D, 0x16
_TOKEN = frozenset(b"!#$%&'*+-.^_`|~0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ")
_LEGAL = bytes([0x09, 0x0A, 0x0D, *range(0x20, 0x7F), *range(0x80, 0x100)])
_HOST = re.compile(r"(?:[A-Za-z0-9._~-]+|\[[0-9A-Fa-f:.]+\])(?::[0-9]{0,5})?")
_ABSOLUTE = re.compile(r"(?:http|ws)s?://([^/?#]*)([^?#]*)(\?[^#]*)?", re.IGNORECASE)
_PATH = re.compile(rb"[A-Z]+ (?:(?:http|ws)s?://[^/ \r\n]*)?(/[^ ?\r\n]*)", re.IGNORECASE)
_CONTENT_LENGTH = re.compile(rb"\r\ncontent-length:[ \t]*([^\r]*)", re.IGNORECASE)
_PLAIN_LENGTH = re.compile(rb"\r\ncontent-length: ([0-9]{1,9})(?=\r\n)", re.IGNORECASE)
_LENGTH = re.compile(rb"[0-9]{1,9}(?=\r\n)")


@dataclass(frozen=True, slots=True)
class HeadLimits:
    """What a request head may be. `line_bytes` counts the line's CRLF, `total_bytes` everything up to
    and with the blank line; `seconds` is for the whole head, however many reads it takes."""

    line_bytes: int = 8 * 1024
    total_bytes: int = 16 * 1024
    headers: int = 100
    seconds: float = 5.0


@dataclass(frozen=True, slots=True)
class RequestHead:
    """One parsed request head.

    target: as sent. path: its path, not decoded and not normalised, since routes match exactly.
    query: what follows `?`, without it. headers: names in lower case, values as Latin-1 text, in order; where
    the target has an authority (RFC 9112, 3.2.2), that is their `host`, whatever the client's says.
    version: `1.0` or `1.1`. raw: the head's bytes with the blank line. first: of every header its first
    value.
    """

    method: str
    target: str = field(repr=False)
    path: str
    query: str = field(repr=False)
    headers: tuple[tuple[str, str], ...] = field(repr=False)
    version: str
    raw: bytes = field(repr=False)
    first: Mapping[str, str] = field(repr=False, compare=False)

    def header(self, name: str) -> str | None:
        """Return the first header of that (lower-case) name."""
        return self.first.get(name)

    def values(self, name: str) -> list[str]:
        """All headers of that (lower-case) name."""
        return [value for key, value in self.headers if key == name] if name in self.first else []

    def listed(self, name: str) -> list[str]:
        """Return the members of a comma-separated header, from all its lines."""
        if name not in self.first:
            return []
        return [member for part in ",".join(self.values(name)).split(",") if (member := part.strip())]

    def tokens(self, name: str) -> list[str]:
        """Return the same in lower case."""
        return [member.lower() for member in self.listed(name)]

    @property
    def persistent(self) -> bool:
        """Return whether the client may send more requests on the connection (RFC 9112, 9.3)."""
        return self.version == "1.1" and "close" not in self.tokens("connection")

    def reader(self) -> h11.Connection:
        """Return a parser that has read the head and nothing behind it, for a body in chunks."""
        return _parse(self.raw)[0]

    def credential(self, remote: str = "", *, secure: bool = False) -> HeadCredential:
        """Return the head as plugins see it."""
        return HeadCredential(self.method, self.path, self.query, self.headers, remote, secure)


class FoundHead(NamedTuple):
    """A request head, and the bytes that were read behind it. again: it is the one before, but for its
    Content-Length."""

    head: RequestHead
    surplus: bytes
    again: bool = False


class HeadCollector:
    """Collects the bytes of one head and says where it ends. No I/O."""

    def __init__(self, limits: HeadLimits) -> None:
        self._limits = limits
        self._buffer = bytearray()
        self._start = 0  # of the head: 2 behind the one blank line that RFC 9112, 2.2 forgives
        self._line = 0  # start of the line that is being collected
        self._searched = 0
        self._lines = 0

    @property
    def empty(self) -> bool:
        return not self._buffer

    def error(self, status: int, message: str) -> HttpError:
        """Return an error that knows for which path it is, as far as that has come."""
        return self._located(HttpError(status, message))

    def _located(self, error: HttpError) -> HttpError:
        found = _PATH.match(self._buffer, self._start)
        error.path = "" if found is None else found[1].decode("latin-1")
        return error

    def feed(self, data: bytes | bytearray) -> FoundHead | None:
        """Return the head as soon as it is complete, else None. Raises HttpError 400, 417, 431, 501, 505.

        Give it nothing more after it has returned a head or raised.
        """
        self._buffer += data
        try:
            end = self._find_end()
            if end is None:
                return None
            return FoundHead(parse_head(bytes(self._buffer[self._start : end])), bytes(self._buffer[end:]))
        except HttpError as error:
            self._located(error)
            raise

    def _find_end(self) -> int | None:
        buffer = self._buffer
        while True:
            if self._line == self._start and len(buffer) > self._start:
                self._check_first(buffer[self._start])
            newline = buffer.find(b"\n", self._searched)
            if newline < 0:
                self._searched = len(buffer)
                self._check_size(len(buffer))
                return None
            end = newline + 1
            self._check_size(end)
            if newline == self._line or buffer[newline - 1] != _CR:
                raise HttpError(400, "lines of a request head end in CR LF")
            if end - self._line > 2:
                self._lines += 1
                if self._lines - 1 > self._limits.headers:
                    raise HttpError(431, f"more than {self._limits.headers} headers")
            elif self._lines:
                return end
            elif self._start:
                raise HttpError(400, "no request line")
            else:
                self._start = end
            self._line = self._searched = end

    def _check_size(self, end: int) -> None:
        if end - self._line > self._limits.line_bytes:
            what = "a header" if self._lines else "the request line"
            raise HttpError(431, f"{what} is longer than {self._limits.line_bytes} bytes")
        if end > self._limits.total_bytes:
            raise HttpError(431, f"the request head is longer than {self._limits.total_bytes} bytes")

    def _check_first(self, byte: int) -> None:
        """Turn away at its first byte what is not HTTP and would otherwise keep us waiting."""
        if byte == _TLS_HANDSHAKE:
            raise HttpError(400, "this port speaks plain HTTP, not TLS")
        if byte not in _TOKEN and byte != _CR:
            raise HttpError(400, "no HTTP request")


async def read_head(
    stream: trio.abc.ReceiveStream,
    limits: HeadLimits,
    received: bytes = b"",
    deadline: float = math.inf,
    before: RequestHead | None = None,
) -> FoundHead | None:
    """Read one request head; None if the client closed the connection before its first byte.

    received: bytes that were read before (pipelined, or the ones that ended an idle wait). deadline: by
    Trio's clock, where the client has had some of its time before. before: the connection's last head.
    Raises HttpError for what must be answered (408 at the deadline), trio.BrokenResourceError where the
    connection broke.
    """
    if before is not None and (found := _same_again(before, received, limits)) is not None:
        return found
    collector = HeadCollector(limits)
    found = collector.feed(received) if received else None
    if found is not None:
        return found
    with trio.move_on_at(min(deadline, trio.current_time() + limits.seconds)):
        while found is None:
            data = await stream.receive_some(limits.total_bytes)
            if not data:
                if collector.empty:
                    return None
                raise collector.error(400, "the connection ended inside the request head")
            found = collector.feed(data)
        return found
    raise collector.error(408, f"no complete request head within {limits.seconds:g} s")


def _same_again(before: RequestHead, data: bytes, limits: HeadLimits) -> FoundHead | None:
    """Return the head that data begins with, if it is the one that was parsed, or the same but for the number
    in its only Content-Length. None: it may be another one, or not be there as a whole."""
    raw = before.raw
    if data.startswith(raw):
        return FoundHead(before, data[len(raw) :], again=True)
    if (length := _PLAIN_LENGTH.search(raw)) is None or not data.startswith(raw[: length.start(1)]):
        return None
    found = _LENGTH.match(data, length.start(1))
    if found is None or not data.startswith(raw[length.end(1) :], found.end()):
        return None
    size = len(raw) + len(found[0]) - len(length[1])
    if size > limits.total_bytes:
        return None
    value = found[0].decode()
    headers = tuple([(name, value if name == "content-length" else old) for name, old in before.headers])
    first = {**before.first, "content-length": value}
    head = replace(before, raw=data[:size], headers=headers, first=first)
    return FoundHead(head, data[size:], again=True)


def parse_head(raw: bytes) -> RequestHead:
    """Parse one whole head, from the request line to the blank line. Raises HttpError."""
    if raw.translate(None, _LEGAL):
        raise HttpError(400, "the request head contains control characters")
    if raw.startswith(b"PRI * HTTP/2"):
        raise HttpError(400, "HTTP/2 is not spoken here; use HTTP/1.1")
    if b"\r\n " in raw or b"\r\n\t" in raw:
        raise HttpError(400, "folded header lines are obsolete and refused")
    request = _parse(raw)[1]
    version = request.http_version.decode()
    if version not in ("1.0", "1.1"):
        raise HttpError(505, "only HTTP/1.1 and HTTP/1.0 are spoken here")
    headers = tuple([(name.decode(), value.decode("latin-1")) for name, value in request.headers])
    target = request.target.decode()
    if any([name == "host" and not _HOST.fullmatch(value) for name, value in headers]):  # noqa: C419  (sooner)
        raise HttpError(400, "the Host header is not a host and port")
    authority, path, query = _split_target(request.method, target)
    if authority is not None:
        headers = (("host", authority), *(pair for pair in headers if pair[0] != "host"))
    method, first = request.method.decode(), dict(reversed(headers))
    head = RequestHead(method, target, path, query, headers, version, raw, first)
    _check_framing(head)
    return head


def _parse(raw: bytes) -> tuple[h11.Connection, h11.Request]:
    connection = h11.Connection(h11.SERVER)
    connection.receive_data(raw)
    try:
        event = connection.next_event()
    except h11.RemoteProtocolError as error:
        # h11 puts the offending bytes behind its words; they may be a secret and are not repeated.
        words = str(error).partition(": bytearray")[0]
        raise HttpError(error.error_status_hint, f"bad request head: {words}") from None
    if not isinstance(event, h11.Request):
        raise HttpError(400, "no HTTP request")
    return connection, event


def _split_target(method: bytes, target: str) -> tuple[str | None, str, str]:
    """Split a target into its authority, if it names one, its path and its query. It is never used as a
    URL."""
    authority = None
    if target == "*" and method == b"OPTIONS":
        return None, target, ""
    if not target.startswith("/"):
        absolute = _ABSOLUTE.fullmatch(target)
        if absolute is None or not _HOST.fullmatch(absolute[1]):
            raise HttpError(400, "the request target is neither a path nor a URL of a server")
        authority, target = absolute[1], (absolute[2] or "/") + (absolute[3] or "")
    if "#" in target:
        raise HttpError(400, "a request target has no fragment")
    path, _, query = target.partition("?")
    return authority, path, query


def _check_framing(head: RequestHead) -> None:
    chunked, lengths = "transfer-encoding" in head.first, "content-length" in head.first
    if any(value.lower() != "100-continue" for value in head.values("expect")):
        raise HttpError(417, "the only expectation that is understood is 100-continue")
    if chunked and (lengths or head.version == "1.0"):
        raise HttpError(400, "Transfer-Encoding beside Content-Length, or in HTTP/1.0")
    if lengths:
        # h11 has already merged equal repetitions, so they are looked for in the bytes.
        found = _CONTENT_LENGTH.findall(head.raw)
        if len(found) != 1 or b"," in found[0]:
            raise HttpError(400, "Content-Length more than once")
