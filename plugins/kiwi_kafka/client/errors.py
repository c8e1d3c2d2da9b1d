"""What the parts below raise when a broker cannot be reached, as an error of the ports."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import trio
from aiokafka import errors as kafka_errors

from kiwi_kafka.ports import UnreachableError

LOST: Final = (kafka_errors.KafkaError, OSError, trio.BrokenResourceError, trio.ClosedResourceError)

_GARBLED: Final = (
    ValueError,
    LookupError,
    TypeError,
    AttributeError,
    AssertionError,
    OverflowError,
    struct.error,
)
"""What decoding raises for an answer that is none, and looking into one with nulls where lists belong; and
aiokafka's steps of SASL for one that proves nothing."""


@contextmanager
def readable() -> Iterator[None]:
    """Raise UnreachableError for an answer that is none."""
    try:
        yield
    except _GARBLED as error:
        raise UnreachableError(f"an answer cannot be read: {error}") from error


@contextmanager
def deadline(seconds: float, otherwise: str) -> Iterator[None]:
    """Give the block so long. Raises UnreachableError if it takes longer (see `otherwise`), or is lost."""
    try:
        with trio.fail_after(seconds), unreachable():
            yield
    except trio.TooSlowError:
        raise UnreachableError(otherwise) from None


@contextmanager
def unreachable() -> Iterator[None]:
    """Raise UnreachableError for whatever the parts below raise when they can no longer work."""
    try:
        yield
    except LOST as error:
        raise UnreachableError(_reason(error)) from error


def _reason(error: BaseException) -> str:
    """Name what is wrong: of Trio's errors, what they come from."""
    cause = error.__cause__
    if isinstance(cause, BaseExceptionGroup):  # one of each address of a name
        return "; ".join(dict.fromkeys(map(_reason, cause.exceptions)))
    return _reason(cause) if isinstance(cause, OSError) else str(error) or type(error).__name__
