"""The gateway with samples of where its processor time goes.

    python -m benchmarks.workers.profiled_gateway FILE run --config ...

Every few milliseconds of processor time a signal notes the Python function that runs, its line and who
called it (what compiled code does counts for the line that called it). On SIGUSR1 the samples since the
previous one are written to FILE, innermost first: `{"samples": [[count, [[file, line, function], ...]]]}`.
"""

from __future__ import annotations

import json
import signal
import sys
from collections import Counter
from pathlib import Path
from types import FrameType

from kiwi_gw.cli import main as gateway

_EVERY = 0.001
_DEPTH = 40

Frame = tuple[str, int, str]


def main() -> int:
    file = Path(sys.argv[1])
    samples: Counter[tuple[Frame, ...]] = Counter()

    def sample(number: int, frame: FrameType | None) -> None:
        stack: list[Frame] = []
        while frame is not None and len(stack) < _DEPTH:
            code = frame.f_code
            stack.append((code.co_filename, frame.f_lineno or 0, code.co_qualname))
            frame = frame.f_back
        samples[tuple(stack)] += 1

    def write(*_: object) -> None:
        part = file.with_suffix(".part")
        part.write_text(json.dumps({"samples": [[count, stack] for stack, count in samples.items()]}))
        samples.clear()
        part.rename(file)  # the process that waits for it finds it whole

    signal.signal(signal.SIGPROF, sample)
    signal.signal(signal.SIGUSR1, write)
    signal.setitimer(signal.ITIMER_PROF, _EVERY, _EVERY)
    return gateway(sys.argv[2:])


if __name__ == "__main__":
    sys.exit(main())
