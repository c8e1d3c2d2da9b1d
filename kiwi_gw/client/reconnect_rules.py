"""What the end of a connection means for a client: come back, or stop."""

from __future__ import annotations

import json
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Retry:
    """Connect again. after: seconds to wait at least, as the server asked or its close code implies."""

    why: str
    after: float = 0.0


@dataclass(frozen=True, slots=True)
class GiveUp:
    """Say that trying again unchanged would not help."""

    why: str


Ending = Retry | GiveUp

# RFC 6455, 7.4.1: this end did something that the other cannot accept.
_OUR_FAULT = frozenset({1002, 1003, 1007, 1009, 1010})

_RATE_LIMITED_WAIT = 10.0


def after_close(code: int, reason: str | None) -> Ending:
    """Return what a close frame means. 44xx asks a client to come back, 45xx to stay away. A policy close
    (1008) is a bad message unless it says that there were too many."""
    why = f"closed by the server: {code}" + (f" {reason}" if reason else "")
    if code == 1006:
        return Retry("connection lost")
    if code == 1008:
        too_many = reason is not None and ("rate" in reason or "too many" in reason)
        return Retry(why, _RATE_LIMITED_WAIT) if too_many else GiveUp(why)
    if code in _OUR_FAULT or 4500 <= code <= 4599:
        return GiveUp(why)
    return Retry(why)


def after_refusal(status: int, retry_after: str | None, body: bytes) -> Ending:
    """Return what an HTTP status in answer to a handshake means. `retry_after`: the header, in seconds."""
    why = f"refused by the server: HTTP {status}"
    if detail := _detail(body):
        why = f"{why}: {detail}"
    if status in (408, 425, 429) or (status >= 500 and status != 501):
        seconds = int(retry_after) if retry_after and retry_after.isascii() and retry_after.isdigit() else 0
        return Retry(why, float(min(seconds, 3600)))
    return GiveUp(why)


def _detail(body: bytes) -> str:
    """Find the sentence in an error body: RFC 9457 problem details, or the first line of a text."""
    text = body[:2000].decode(errors="replace").strip()
    try:
        problem = json.loads(text)
    except (ValueError, RecursionError):
        return text.partition("\n")[0][:200] if not text.startswith("<") else ""
    if isinstance(problem, dict):
        for key in ("detail", "message", "error", "title"):
            if isinstance(problem.get(key), str):
                return str(problem[key])[:200]
    return ""
