"""The process that reads and compiles what the event loop of a gateway has no time for.

It answers questions from its standard input on its standard output, one at a time: a length (4 bytes) and a
question; a length, the seconds of the processor that it took (8 bytes) and the answer. The first answer, an
empty one, says that it is ready. It ends with its standard input, and so with the gateway.
"""

from __future__ import annotations

import os
import resource
import signal
import struct
import sys
import time
from collections.abc import Callable
from typing import Final

QUESTION_HEAD: Final = struct.Struct("<I")
ANSWER_HEAD: Final = struct.Struct("<Id")

QUESTION_SECONDS: Final = 1.0
"""Processor's time for one question. The system ends the process that takes longer, by SIGPROF."""

_NICE: Final = 10
_ADDRESS_SPACE: Final = 256 << 20


def serve(answer: Callable[[bytes], bytes], seconds: float = QUESTION_SECONDS) -> None:
    """Answer until the standard input ends."""
    questions, answers = sys.stdin.buffer, sys.stdout.buffer
    answers.write(ANSWER_HEAD.pack(0, 0.0))
    answers.flush()
    while head := questions.read(QUESTION_HEAD.size):
        asked = questions.read(*QUESTION_HEAD.unpack(head))
        began = time.thread_time()
        signal.setitimer(signal.ITIMER_PROF, seconds)
        found = answer(asked)
        signal.setitimer(signal.ITIMER_PROF, 0)
        answers.write(ANSWER_HEAD.pack(len(found), time.thread_time() - began) + found)
        answers.flush()


def main() -> None:
    """Run the worker process."""
    os.nice(_NICE)
    resource.setrlimit(resource.RLIMIT_AS, (_ADDRESS_SPACE, _ADDRESS_SPACE))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    from kiwi_gw.query.warm_up import warm_up
    from kiwi_gw.query.worker_messages import answer

    warm_up()
    serve(answer)


if __name__ == "__main__":
    main()
