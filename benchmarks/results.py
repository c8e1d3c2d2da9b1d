"""Where results are kept: one file of JSON lines for each scenario."""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Iterable
from pathlib import Path
from typing import Any, TextIO

from benchmarks.scenario import Figures

FOLDER = Path(__file__).parent / "results"

Line = dict[str, Any]


class Log:
    """Hold the lines of one scenario: given to `out` as they come, and kept in a file if wanted."""

    def __init__(self, scenario: str, save: bool, out: TextIO) -> None:
        self.lines: list[Line] = []
        self._outs = [out]
        if save:
            FOLDER.mkdir(exist_ok=True)
            self._outs.append((FOLDER / f"{scenario}.jsonl").open("w"))

    def add(self, line: Line) -> None:
        line = {**line, "cpus": os.cpu_count(), "python": platform.python_version()}
        self.lines.append(line)
        for out in self._outs:
            print(json.dumps(line), file=out, flush=True)

    def close(self) -> None:
        for out in self._outs[1:]:
            out.close()


def saved(scenario: str) -> list[Line]:
    """Return the lines that were kept; none if it was never saved."""
    file = FOLDER / f"{scenario}.jsonl"
    return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


def of_rounds(lines: Iterable[Line]) -> list[Figures]:
    """Return the figures of every round that counted."""
    return [line["figures"] for line in lines if "figures" in line]
