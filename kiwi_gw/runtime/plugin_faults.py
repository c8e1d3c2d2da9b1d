"""What the code of plugins raises: their faults on one side, our cancellation on the other.

One policy for all that is supervised: a fault is kept where it happened, and its owner decides what becomes
of it (a restart after a pause, a refusal, a line in the log); cancellation and the end of the process go
through.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable
from types import TracebackType
from typing import Self

import trio


class FaultBarrier:
    """A block in which code of plugins runs. error: the fault that ended it, None if there was none.

    but: faults of these kinds go through, out of a group that they are alone in. told: called with the fault.
    """

    __slots__ = ("_but", "_told", "error")

    def __init__(
        self, *but: type[BaseException], told: Callable[[BaseException], object] | None = None
    ) -> None:
        self._but = but
        self._told = told
        self.error: BaseException | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, raised: BaseException | None, trace: TracebackType | None
    ) -> bool:
        if isinstance(raised, self._but):
            return False
        found = fault(raised) if raised is not None else None
        if isinstance(found, self._but):  # alone in a group
            raise found from None
        self.error = found
        if found is not None and self._told is not None:
            self._told(found)
        return found is not None


def fault(error: BaseException) -> BaseException | None:
    """Find what in `error` is the fault of the code that raised it; None if that is nothing but cancellation.

    Nurseries put what their tasks raise into groups. Cancellation is taken out of them, and a fault that is
    alone comes out of its groups, so `raise SourceFailed` means the same inside a nursery as outside.
    SystemExit is a fault too, and so is asyncio's cancellation, which a task of Trio can get to see. Raises
    KeyboardInterrupt and GeneratorExit, which are no fault.
    """
    if isinstance(error, BaseExceptionGroup):
        not_a_fault = error.subgroup((KeyboardInterrupt, GeneratorExit))
        if not_a_fault is not None:
            raise not_a_fault
        _, rest = error.split(trio.Cancelled)
        while isinstance(rest, BaseExceptionGroup) and len(rest.exceptions) == 1:
            rest = rest.exceptions[0]
        return rest
    if isinstance(error, KeyboardInterrupt | GeneratorExit):
        raise error
    return None if isinstance(error, trio.Cancelled) else error


def words(error: BaseException) -> str:
    """Write the error in a line: `ValueError: no such thing`. Works for unprintable ones, too."""
    return traceback.format_exception_only(error)[-1].strip()


def fault_key(error: BaseException) -> str:
    """Name kind and origin of an error: the same whenever the same line raises it, whatever its words are."""
    where = error.__traceback__
    if where is None:
        return words(error)  # it was made, not raised
    while where.tb_next is not None:
        where = where.tb_next
    return f"{type(error)!r} at {where.tb_frame.f_code.co_filename}:{where.tb_lineno}"
