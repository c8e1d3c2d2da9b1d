"""What the demo's Spark is at while nothing of it is to be seen yet, out of the log of the gateway."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import trio

from kiwi_gw.terminal import escape

_LOOK_SECONDS: Final = 0.5
_SILENT_SECONDS: Final = 5.0
"""After so long without anything new it is said what is waited for."""


class SparkProgress:
    """`run` says it, until cancelled. log: of a gateway, in JSON lines."""

    def __init__(self, log: Path, say: Callable[[str], None]) -> None:
        self._log = log
        self._say = say
        self._read = 0
        self._waits_for = "its JVM to start"

    async def run(self) -> None:
        began = said = trio.current_time()
        while True:
            await trio.sleep(_LOOK_SECONDS)
            for words in self._news():
                said = trio.current_time()
                self._say(f"  Spark: {escape(words)}")
            if trio.current_time() - said >= _SILENT_SECONDS:
                said = trio.current_time()
                self._say(f"  Spark: waiting for {self._waits_for} ({said - began:.0f} s)")

    def _news(self) -> list[str]:
        with self._log.open("rb") as file:
            file.seek(self._read)
            new, _, _ = file.read().rpartition(b"\n")
        self._read += len(new) + 1 if new else 0
        return [words for line in new.splitlines() if (words := self._words(line))]

    def _words(self, line: bytes) -> str:
        """Return what a line of the log means; empty if nothing that is worth a word."""
        try:
            entry: dict[str, Any] = json.loads(line)
        except ValueError:
            return ""
        match entry:
            case {"event": "spark jars", "said": str(said)}:
                return said.strip()
            case {"event": "spark driver is ready", "spark": version}:
                self._waits_for = "the first results of its queries"
                return f"version {version} is up; its queries start"
            case {"event": "spark driver is gone; it is started again", "problem": problem}:
                self._waits_for = "its JVM to start again"
                return f"its JVM is gone, and is started again: {problem}"
            case {"event": "query starts", "source": source, "note": note}:
                return f"{source}: {note}"
        return ""
