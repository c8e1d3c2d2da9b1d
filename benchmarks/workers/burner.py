"""A process that uses the processor and does nothing: what others cost by being there.

Settings: share (of one core, 0 to 1). On a word it begins; on the next one it says `cpu` (seconds).
"""

from __future__ import annotations

import select
import sys
import time

from benchmarks.workers import child

_PAUSE = 0.001
_AT_ONCE = 0.005
"""Seconds that are burnt at a time, at most: what is missed is not made up for beyond that."""


def main() -> None:
    share = child.settings()["share"]
    child.say(ready=True)
    child.wait_word()
    begun, cpu = time.monotonic(), time.process_time()
    poll = select.poll()
    poll.register(sys.stdin, select.POLLIN)
    while not poll.poll(0):
        until = min((time.monotonic() - begun) * share, time.process_time() - cpu + _AT_ONCE)
        while time.process_time() - cpu < until:
            pass
        time.sleep(_PAUSE)
    child.wait_word()
    child.say(cpu=round(time.process_time() - cpu, 2))
    child.wait_word()


if __name__ == "__main__":
    main()
