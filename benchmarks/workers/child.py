"""A worker's side of its conversation with the process that started it: JSON lines on stdin and stdout.

A worker ends when its stdin does, so none outlives the benchmark.
"""

from __future__ import annotations

import json
import os
import sys
import time
from typing import Any


def settings() -> dict[str, Any]:
    """Return what the worker is to do: the JSON object that is its only argument."""
    found: dict[str, Any] = json.loads(sys.argv[1])
    return found


def say(**said: object) -> None:
    """Tell one line; never waits for an answer."""
    os.write(1, (json.dumps(said) + "\n").encode())


def now() -> float:
    """Return the seconds of a clock that all processes of this machine share (CLOCK_MONOTONIC)."""
    return time.monotonic()


def wait_word() -> str:
    """Return the next word on stdin. Ends the process where that is closed."""
    line = sys.stdin.readline()
    if not line:
        raise SystemExit(0)
    return line.strip()
