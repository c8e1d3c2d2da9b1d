"""What aiokafka raises when it cannot go on, as an error of the ports."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import trio
from aiokafka import errors as kafka_errors

from kiwi_kafka.ports import UnreachableError

LOST: Final = (kafka_errors.KafkaError, OSError, asyncio.CancelledError)
"""It lets out the cancellation of a task of its own, too: Trio's is another exception."""


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
    """Raise UnreachableError for whatever the client raises when it can no longer work."""
    try:
        yield
    except LOST as error:
        raise unreachable_by(error) from error


def unreachable_by(error: BaseException) -> UnreachableError:
    """Name what the client raised."""
    return UnreachableError(str(error) or type(error).__name__)
