"""Where to begin, as people write it, and as the protocol has it."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime
from typing import Final

_NAMES: Final = ("latest", "earliest", "snapshot")
_AGO: Final = re.compile(r"-(\d{1,9})(s|m|h|d)")
_SECONDS: Final = {"s": 1, "m": 60, "h": 3600, "d": 86400}
_FORMS: Final = ("timestamp", "offsets", "positions")


def parse_start(text: str, now: datetime) -> object:
    """Return the value of `from` in SUBSCRIBE. ValueError, in words.

    `latest`, `earliest`, `snapshot`; `-90s`, `-5m`, `-2h`, `-1d`; a moment as ISO 8601 (UTC where it says
    nothing else); `{"0": 12}` for offsets by partition; or what the protocol takes, as JSON.
    """
    if text in _NAMES:
        return text
    if ago := _AGO.fullmatch(text):
        return {"timestamp": max(0, round(1000 * (now.timestamp() - int(ago[1]) * _SECONDS[ago[2]])))}
    if text.startswith("{"):
        return _from_json(text)
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise ValueError(
            f"{text!r} is none of {', '.join(_NAMES)}, a time ago such as -5m, "
            'a moment such as 2026-01-31T12:00Z, or offsets such as {"0": 12}'
        ) from None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return {"timestamp": max(0, round(1000 * moment.timestamp()))}


def _from_json(text: str) -> object:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"this is not JSON: {error}") from None
    return value if len(value) == 1 and next(iter(value)) in _FORMS else {"offsets": value}
