"""What a statement asks for."""

from __future__ import annotations

from dataclasses import dataclass, field

from kiwi_gw.model import Form
from kiwi_gw.query.tree import Query


@dataclass(frozen=True, slots=True)
class Setting:
    """One `SET name=value;`, as it is written. position: of its name."""

    name: str
    value: str
    position: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class Narrowed:
    """Which records need be read at all: those that are not can pass no condition. Ends are included; None:
    there is none.

    first_offset, last_offset: of every partition. first_time, last_time: ms since the epoch. partitions: the
    only ones; None: all.
    """

    first_offset: int | None = None
    last_offset: int | None = None
    first_time: int | None = None
    last_time: int | None = None
    partitions: frozenset[int] | None = None

    @property
    def nothing(self) -> bool:
        """Whether nothing is to be read: its terms contradict each other."""
        return (
            _none_between(self.first_offset, self.last_offset)
            or _none_between(self.first_time, self.last_time)
            or self.partitions == frozenset()
        )


def _none_between(first: int | None, last: int | None) -> bool:
    most = (1 << 63) - 1 if last is None else last
    return most < max(0, first or 0)


@dataclass(frozen=True, slots=True)
class Statement:
    """A statement that looks at one record at a time.

    table: the name behind FROM. query: its condition, and its columns (None: `*`). limit: None: all records.
    settings: in their order; of equal names the last counts. key_decoder, value_decoder: None: the source's.
    sample: the newest records that are wanted of each `sample_window_ms`; None: all. narrowed: which records
    need be read.
    """

    table: str
    query: Query = Query()  # noqa: RUF009  (it is frozen)
    limit: int | None = None
    settings: tuple[Setting, ...] = ()
    key_decoder: Form | None = None
    value_decoder: Form | None = None
    sample: int | None = None
    sample_window_ms: int = 1_000
    narrowed: Narrowed = Narrowed()
    table_position: int = field(default=0, compare=False)
    key_decoder_position: int | None = field(default=None, compare=False)
    value_decoder_position: int | None = field(default=None, compare=False)

    @property
    def plain(self) -> bool:
        """Whether every record is wanted, as it is."""
        return self.query == Query()
