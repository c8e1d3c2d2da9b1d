"""Writing the head of an HTTP response."""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from email.utils import formatdate
from functools import lru_cache
from http.client import responses

_HEADERS = re.compile(r"(?:[!#$%&'*+.^_`|~0-9A-Za-z-]+: [\t\x20-\x7e\x80-\xff]*\r\n)+")
_OURS = frozenset({"connection", "content-length", "content-type", "date", "transfer-encoding"})

Headers = Sequence[tuple[str, str]]


def response_head(status: int, headers: Headers, described: Headers, *, last: bool) -> bytes:
    """Return everything up to and with the blank line (RFC 9112, 2.1). described: headers that say how the
    body is framed. last: the connection is closed behind the response. Raises ValueError where `headers` say
    something of that, too, or one would be none, and for a status that is not the final one of a response."""
    for name, _ in headers:
        if name.lower() in _OURS:
            raise ValueError("how a response is framed is not said by its handler")
    lines = [f"Date: {http_date()}"]
    upgrade = False
    for name, value in (*headers, *described):
        lines.append(f"{name}: {value}")
        upgrade = upgrade or name == "Upgrade"
    if last or upgrade:
        # A sender of Upgrade names it in Connection too (RFC 9110, 7.8).
        lines.append(f"Connection: {', '.join([*['close'] * last, *['Upgrade'] * upgrade])}")
    found = "\r\n".join([*lines, ""])
    if _HEADERS.fullmatch(found) is None or found.count("\n") != len(lines) or not 200 <= status <= 599:
        raise ValueError("a header or the status of a response is none")
    return f"HTTP/1.1 {status} {responses.get(status, '')}\r\n{found}\r\n".encode("latin-1")


def http_date() -> str:
    """Return now, as the `Date` header wants it (RFC 9110, 5.6.7)."""
    return _date(int(time.time()))


@lru_cache(maxsize=1)
def _date(seconds: int) -> str:
    return formatdate(seconds, usegmt=True)
