"""The gateway with samples of where its processor time goes.

    python -m benchmarks.workers.profiled_gateway FOLDER run --config ...

Every few milliseconds of processor time a signal notes the Python function that runs, its line and who
called it (what compiled code does counts for the line that called it). At its end the samples are written to
a file in FOLDER, innermost first: `{"samples": [[count, [[file, line, function], ...]]]}`.
"""

from __future__ import annotations

import json
import os
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
    samples: Counter[tuple[Frame, ...]] = Counter()

    def sample(number: int, frame: FrameType | None) -> None:
        stack: list[Frame] = []
        while frame is not None and len(stack) < _DEPTH:
            code = frame.f_code
            stack.append((code.co_filename, frame.f_lineno or 0, code.co_qualname))
            frame = frame.f_back
        samples[tuple(stack)] += 1

    signal.signal(signal.SIGPROF, sample)
    signal.setitimer(signal.ITIMER_PROF, _EVERY, _EVERY)
    code = gateway(sys.argv[2:])
    signal.setitimer(signal.ITIMER_PROF, 0)
    said = {"samples": [[count, stack] for stack, count in samples.items()]}
    (Path(sys.argv[1]) / str(os.getpid())).write_text(json.dumps(said))
    return code


if __name__ == "__main__":
    sys.exit(main())
