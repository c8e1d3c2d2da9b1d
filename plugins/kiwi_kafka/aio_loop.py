"""The asyncio loop that aiokafka runs on, inside Trio's thread."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from contextlib import asynccontextmanager, suppress
from typing import Any, Final, Protocol, TypeVar

import trio
import trio_asyncio

T = TypeVar("T")

_AT_ONCE: Final = 32
"""Callbacks in a turn of Trio's. A record's way through aiokafka has eight."""

_LINGER_S: Final = 0.05


class Loop(Protocol):
    """What is used of trio-asyncio's event loop."""

    async def run_aio_coroutine(self, coro: Coroutine[Any, Any, T]) -> T: ...


@asynccontextmanager
async def client_loop(tell: Callable[[str, BaseException | None], None]) -> AsyncIterator[Loop]:
    """Open an asyncio loop for aiokafka, in this Trio thread. `tell`: of failures that nobody waits for."""

    def handle(_: object, context: Mapping[str, Any]) -> None:
        # trio-asyncio's own handler raises it, which would end the loop for everybody in it.
        tell(str(context.get("message")), context.get("exception"))

    async with trio_asyncio.open_loop() as loop:
        loop.set_exception_handler(handle)
        _run_what_is_ready(loop)
        try:
            yield loop
        finally:
            # Connections whose TLS handshake failed are closed some steps later, and by nobody else.
            with trio.CancelScope(shield=True):
                await trio.sleep(_LINGER_S)


def _run_what_is_ready(loop: Any) -> None:
    """Have the loop run the callbacks that are ready one after the other, as asyncio's own does. By itself
    it waits for a turn of Trio's before each: for all other tasks, eight times for every record."""
    run_one = loop._main_loop_one

    async def run_some(no_wait: bool = False) -> None:
        await run_one(no_wait)
        if not no_wait:
            with suppress(trio.WouldBlock):  # nothing is ready any more
                for _ in range(_AT_ONCE - 1):
                    if not loop.is_running():
                        break
                    await run_one(no_wait=True)

    loop._main_loop_one = run_some
