"""Writing the head of an HTTP response."""

from __future__ import annotations

import re
import time
from collections.abc import Iterable
from email.utils import formatdate
from functools import lru_cache
from http.client import responses

_HEADERS = re.compile(r"(?:[!#$%&'*+.^_`|~0-9A-Za-z-]+: [\t\x20-\x7e\x80-\xff]*\r\n)+")


def response_head(status: int, headers: Iterable[tuple[str, str]], *, last: bool) -> bytes:
    """Return everything up to and with the blank line (RFC 9112, 2.1). last: the connection is closed behind
    the response. Raises ValueError for a header that would not be one, and for a status that is not the final
    one of a response."""
    lines = [f"Date: {http_date()}"]
    upgrade = False
    for name, value in headers:
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
    """Now, as the `Date` header wants it (RFC 9110, 5.6.7)."""
    return _date(int(time.time()))


@lru_cache(maxsize=1)
def _date(seconds: int) -> str:
    return formatdate(seconds, usegmt=True)
