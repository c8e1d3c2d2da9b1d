"""What can go wrong inside a gateway's process, at a word from outside: a plugin, named
`tests.faults.mischief:plugin`.

Its source does nothing until a word makes it stand in the way of all others or fail. The wall clock that this
process sees can be put forward and back. The words are in a file that both processes have mapped.
"""

from __future__ import annotations

import mmap
import os
import struct
import sys
import time
from pathlib import Path
from typing import Literal

import trio

from kiwi_gw.api import (
    EventSchema,
    Field,
    FieldEncoding,
    Positions,
    Publisher,
    Section,
    SourceContext,
    SourceType,
    hookimpl,
)

VARIABLE = "KIWI_GW_TEST_MISCHIEF"
"""The environment variable that names the file."""

SOURCE: dict[str, object] = {"type": "mischief", "id": "mischief"}
_LOOK_SECONDS = 0.02
_WORDS = struct.Struct("=ddd")  # seconds that the clock is ahead, seconds to stand still, whether to fail


class Words:
    """Hold the file, as one of the two processes has it. The other process sees every word that is set."""

    def __init__(self, path: Path) -> None:
        with path.open("r+b") as file:
            self._map = mmap.mmap(file.fileno(), _WORDS.size)

    @classmethod
    def new(cls, path: Path) -> Words:
        path.write_bytes(bytes(_WORDS.size))
        return cls(path)

    @property
    def ahead(self) -> float:
        """Return the seconds that the wall clock of the gateway is ahead of the true one."""
        return self._get(0)

    @ahead.setter
    def ahead(self, seconds: float) -> None:
        self._set(0, seconds)

    @property
    def hold(self) -> float:
        """Return how long the source is to hold up the event loop; it sets this to 0 when it begins."""
        return self._get(1)

    @hold.setter
    def hold(self, seconds: float) -> None:
        self._set(1, seconds)

    @property
    def fail(self) -> bool:
        """Return whether the source is to raise; it sets this to False when it does."""
        return bool(self._get(2))

    @fail.setter
    def fail(self, yes: bool) -> None:
        self._set(2, yes)

    def _get(self, index: int) -> float:
        return float(_WORDS.unpack(self._map)[index])

    def _set(self, index: int, value: float) -> None:
        struct.pack_into("=d", self._map, 8 * index, value)


class MischiefSettings(Section):
    type: Literal["mischief"]
    id: str


class MischiefError(Exception):
    """Fail the source when a word asks for that."""


class Mischief:
    def __init__(self, words: Words) -> None:
        self._words = words

    async def run(self, publisher: Publisher, start: Positions | None) -> None:
        await publisher.ready(start or {0: 0})
        while True:
            await trio.sleep(_LOOK_SECONDS)
            if self._words.hold:
                seconds, self._words.hold = self._words.hold, 0.0
                stand_still(seconds)
            if self._words.fail:
                self._words.fail = False
                raise MischiefError("as it was told")


def stand_still(seconds: float) -> None:
    """Do what no plugin may do."""
    time.sleep(seconds)


def _put_clock(words: Words) -> None:
    """Replace the two functions that all Python code of this process asks for the time of day."""
    true_time, true_time_ns = time.time, time.time_ns
    time.time = lambda: true_time() + words.ahead
    time.time_ns = lambda: true_time_ns() + int(words.ahead * 1e9)


_words = Words(Path(os.environ[VARIABLE])) if VARIABLE in os.environ else None
if _words is not None:
    _put_clock(_words)


def _build(settings: Section, context: SourceContext) -> Mischief:
    if _words is None:
        raise RuntimeError(f"{VARIABLE} names no file")
    return Mischief(_words)


@hookimpl
def source_types() -> list[SourceType]:
    return [
        SourceType(
            "mischief", MischiefSettings, _build, EventSchema((Field("sourceId", FieldEncoding.SOURCE_ID),))
        )
    ]


plugin = sys.modules[__name__]
