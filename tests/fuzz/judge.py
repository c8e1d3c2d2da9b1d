"""What one message costs: time of the processor, and memory that is kept of it."""

from __future__ import annotations

import gc
import tracemalloc
from pathlib import Path
from typing import Final

from tests.fuzz.targets import Target, forget
from tests.processor import least

_TRIES: Final = 3
CORPUS: Final = Path(__file__).parent / "corpus"


def kept(target: Target, data: bytes) -> tuple[int, str]:
    """Bytes of Python that are there when the message is over and what is kept of the last texts is gone; and
    the lines that have made most of them."""
    target.read(data)
    forget()
    gc.collect()
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        target.read(data)
        gc.collect()
        after, _ = tracemalloc.get_traced_memory()
        made = tracemalloc.take_snapshot().statistics("lineno") if after - before > target.bytes else []
    finally:
        tracemalloc.stop()
    return after - before, "; ".join(str(line) for line in made[:5])


def wrong(target: Target, data: bytes) -> str:
    """What the message costs too much of; empty: nothing."""
    taken = least(lambda: target.read(data), target.seconds)
    if taken > target.seconds:
        return f"{taken * 1000:.1f} ms of the processor"
    for _ in range(_TRIES):  # what a message keeps it keeps every time: threads of others make something, too
        held, where = kept(target, data)
        if held <= target.bytes:
            return ""
    return f"{held} bytes are kept: {where}"
