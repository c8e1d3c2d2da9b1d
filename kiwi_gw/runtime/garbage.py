"""When Python looks for garbage in cycles: when nothing is ready to run, if it can.

Reference counting frees nearly everything at once. What refers to itself is looked for among new objects, and
all clients wait meanwhile. Left to Python that is whenever there are too many of them, and so most of all in
the middle of work that makes many: beside a scan of a topic it took 2 to 4 ms each half second, every fourth
time 6 to 9. Before the loop waits there are few, as that work is over: it takes 0.1 to 3 ms.

Old objects are never looked at while the loop waits now and then, for with thousands of connections that
takes longest; `memory_watch` does it once memory is short. So what lives for long must leave no cycles
(`tests/edge/test_left_over.py`). The figures are of Python 3.11.
"""

from __future__ import annotations

import gc
from typing import Final

import trio

NEW_OBJECTS: Final = 2_000
"""So many more than there were are looked at as soon as the loop would wait. Beside a scan that is 15 times a
second, and takes no more of the processor than Python's own choice of when; of a lone scan it takes 1 %."""

THRESHOLDS: Final = (5_000, 3, 140_000)
"""How many there may be on a loop that does not wait. To look as often as by default costs a tenth. But all
clients wait, so each look is at little: 50,000 objects took 12 to 35 ms. Old objects are hardly ever looked
at: with thousands of connections that takes longest, and they leave no cycles."""


def set_thresholds() -> None:
    """Have Python look as rarely as `THRESHOLDS` says, in this whole process."""
    gc.set_threshold(*THRESHOLDS)


async def collect_while_idle() -> None:
    """Look for garbage whenever the loop would wait and there are `NEW_OBJECTS`, until cancelled."""
    waits = _Waits()
    trio.lowlevel.add_instrument(waits)
    try:
        await trio.sleep_forever()
    finally:
        trio.lowlevel.remove_instrument(waits)


class _Waits(trio.abc.Instrument):
    def before_io_wait(self, timeout: float) -> None:
        wanted = timeout > 0 and gc.get_count()[0] >= NEW_OBJECTS and gc.isenabled()
        if wanted and gc.collect(1):
            # A finalizer may have made a task ready, which the loop would not see before it has waited.
            trio.lowlevel.current_trio_token().run_sync_soon(_nothing, idempotent=True)


def _nothing() -> None:
    pass
