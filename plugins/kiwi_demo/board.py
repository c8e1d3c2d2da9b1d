"""The demo's table of delays: the newest row of every carrier, as its source's last values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

SHOWN = 5
"""How many carriers the table has; the ones with the longest delays."""


@dataclass(frozen=True, slots=True)
class _Row:
    until: str
    name: str
    delay: float
    flights: int

    def __str__(self) -> str:
        flights = f"{self.flights} flight" + ("s" if self.flights != 1 else "")
        return (
            f"{self.name:<28} {flights:>11} due until {clock(self.until)}, {self.delay:+.1f} min on average"
        )


class Board:
    """Take RESULTs of `delays-by-carrier`. Rows of an hour that is over do not replace newer ones."""

    def __init__(self) -> None:
        self._rows: dict[str, _Row] = {}
        self._changed = False

    def take(self, data: Mapping[str, Any]) -> None:
        """Take one RESULT. Raise KeyError or TypeError for one of another source."""
        value = data["value"]
        if value["delay"] is None:  # all of the hour's flights were cancelled
            return
        row = _Row(value["until"], value["name"], value["delay"], value["flights"])
        known = self._rows.get(value["carrier"])
        if known is None or known.until <= row.until:
            self._rows[value["carrier"]] = row
            self._changed = True

    def news(self) -> list[str]:
        """Return the table, if anything has changed since it was last asked for; else nothing."""
        if not self._changed:
            return []
        self._changed = False
        worst = sorted(self._rows.values(), key=lambda row: -row.delay)[:SHOWN]
        most = max(row.until for row in self._rows.values())
        head = f"delays-by-carrier, {most[:10]} {clock(most)}: the longest of {len(self._rows)} carriers"
        return [head, *(f"  {row}" for row in worst)]


def clock(moment: str) -> str:
    """Return the hours and minutes of a timestamp in ISO 8601."""
    return moment[11:16]
