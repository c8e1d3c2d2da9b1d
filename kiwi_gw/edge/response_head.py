"""Writing the head of an HTTP response."""

from __future__ import annotations

import time
from collections.abc import Iterable
from email.utils import formatdate
from functools import lru_cache
from http.client import responses


def response_head(status: int, headers: Iterable[tuple[str, str]], *, last: bool) -> bytes:
    """Return everything up to and with the blank line (RFC 9112, 2.1). last: the connection is closed behind
    the response. Raises ValueError for a header that would not be one."""
    lines = [f"HTTP/1.1 {status} {responses.get(status, '')}", f"Date: {http_date()}"]
    upgrade = False
    for name, value in headers:
        lines.append(f"{name}: {value}")
        upgrade = upgrade or name == "Upgrade"
    if last or upgrade:
        # A sender of Upgrade names it in Connection too (RFC 9110, 7.8).
        lines.append(f"Connection: {', '.join([*['close'] * last, *['Upgrade'] * upgrade])}")
    found = "\r\n".join(lines)
    if found.count("\n") != len(lines) - 1 or found.count("\r") != len(lines) - 1:
        raise ValueError("a header has a line break in it")
    return found.encode("latin-1") + b"\r\n\r\n"


def http_date() -> str:
    """Now, as the `Date` header wants it (RFC 9110, 5.6.7)."""
    return _date(int(time.time()))


@lru_cache(maxsize=1)
def _date(seconds: int) -> str:
    return formatdate(seconds, usegmt=True)
