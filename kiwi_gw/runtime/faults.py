"""What the code of plugins raises: their faults on one side, our cancellation on the other."""

from __future__ import annotations

import traceback

import trio


def fault(error: BaseException) -> BaseException | None:
    """What in `error` is the fault of the code that raised it; None if that is nothing but cancellation.

    Nurseries put what their tasks raise into groups. Cancellation is taken out of them, and a fault that is
    alone comes out of its groups, so `raise SourceFailed` means the same inside a nursery as outside.
    SystemExit is a fault too, and so is asyncio's cancellation, which a task of Trio can get to see. Raises
    what is nobody's: KeyboardInterrupt, GeneratorExit.
    """
    if isinstance(error, BaseExceptionGroup):
        nobodys = error.subgroup((KeyboardInterrupt, GeneratorExit))
        if nobodys is not None:
            raise nobodys
        _, rest = error.split(trio.Cancelled)
        while isinstance(rest, BaseExceptionGroup) and len(rest.exceptions) == 1:
            rest = rest.exceptions[0]
        return rest
    if isinstance(error, KeyboardInterrupt | GeneratorExit):
        raise error
    return None if isinstance(error, trio.Cancelled) else error


def words(error: BaseException) -> str:
    """The error in a line: `ValueError: no such thing`. Works for errors that cannot be printed, too."""
    return traceback.format_exception_only(error)[-1].strip()


def place(error: BaseException) -> str:
    """Kind and origin of an error: the same whenever the same line raises it, whatever its words are."""
    where = error.__traceback__
    if where is None:
        return words(error)  # it was made, not raised
    while where.tb_next is not None:
        where = where.tb_next
    return f"{type(error)!r} at {where.tb_frame.f_code.co_filename}:{where.tb_lineno}"
