"""What bounds an execution, and how its records are written: what SET says, up to what is configured."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from kiwi_gw.dialects.lenses.settings import LensesSqlSettings
from kiwi_gw.query.errors import QueryError, did_you_mean

if TYPE_CHECKING:  # with the parser, which is not loaded when a gateway starts
    from kiwi_gw.dialects.lenses.sql import Setting

_BYTES: Final = {"": 1, "b": 1, "k": 1024, "m": 1024**2, "g": 1024**3}
_MILLISECONDS: Final = {"": 1, "ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000}
_QUANTITY: Final = re.compile(r"([0-9]{1,15}) ?([a-z]*)")


@dataclass(frozen=True, slots=True)
class Thresholds:
    """What holds for one execution. Times in ms, sizes in bytes."""

    max_size: int
    max_query_time: int
    max_idle_time: int
    offset_timeout: int
    show_bad_records: bool = True
    format_timestamp: bool = True
    live_aggregates: bool = True

    @property
    def as_written(self) -> Mapping[str, int | bool]:
        """What holds, by the names that SET has for it (document 001, Stats)."""
        return {name: getattr(self, kept) for name, (kept, _) in _SETTINGS.items()}


_SETTINGS: Final[Mapping[str, tuple[str, Mapping[str, int] | None]]] = {
    "live.aggs": ("live_aggregates", None),
    "max.idle.time": ("max_idle_time", _MILLISECONDS),
    "format.timestamp": ("format_timestamp", None),
    "show.bad.records": ("show_bad_records", None),
    "kafka.offset.timeout": ("offset_timeout", _MILLISECONDS),
    "max.query.time": ("max_query_time", _MILLISECONDS),
    "max.size": ("max_size", _BYTES),
}
"""By the name of a setting: what holds it, and the units of its value; None: it is true or false."""


def thresholds_of(settings: Sequence[Setting], configured: LensesSqlSettings) -> Thresholds:
    """Return what holds for a statement. Raises QueryError: there is no such setting, its value is none, or
    more than is configured; with the position."""
    found = most = Thresholds(
        configured.max_size,
        configured.max_query_time_ms,
        configured.max_idle_time_ms,
        configured.offset_timeout_ms,
    )
    for setting in settings:
        if setting.name not in _SETTINGS:
            hint = did_you_mean(setting.name, _SETTINGS) or f": there are {', '.join(_SETTINGS)}"
            raise QueryError(f"{setting.name} cannot be set{hint}", setting.position)
        kept, units = _SETTINGS[setting.name]
        value: Any = _boolean(setting) if units is None else _number(setting, units, getattr(most, kept))
        found = replace(found, **{kept: value})
    return found


def _boolean(setting: Setting) -> bool:
    value = setting.value.lower()
    if value not in ("true", "false"):
        raise QueryError(f"{setting.name} is true or false", setting.position)
    return value == "true"


def _number(setting: Setting, units: Mapping[str, int], most: int) -> int:
    read = _QUANTITY.fullmatch(setting.value.lower())
    if read is None or read[2] not in units:
        known = ", ".join(f"{unit!r}" for unit in units if unit)
        raise QueryError(f"{setting.name} is a whole number, alone or with {known}", setting.position)
    number = int(read[1]) * units[read[2]]
    if not 0 < number <= most:
        raise QueryError(f"{setting.name} is from 1 to {most} here", setting.position)
    return number
