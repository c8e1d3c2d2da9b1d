"""The asyncio loop that aiokafka runs on, inside Trio's thread."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping
from contextlib import asynccontextmanager, suppress
from typing import Any, Final, Protocol, TypeVar

import trio
import trio_asyncio

T = TypeVar("T")

_TURN_S: Final = 0.001
"""How long callbacks run before Trio's tasks have their turn. The last one that begins may take longer."""

_LINGER_S: Final = 0.05
_CLOSE_S: Final = 2.0


class AsyncioLoop(Protocol):
    """Name what is used of trio-asyncio's event loop."""

    async def run_aio_coroutine(self, coro: Coroutine[Any, Any, T]) -> T: ...


@asynccontextmanager
async def client_loop(tell: Callable[[str, BaseException | None], None]) -> AsyncIterator[AsyncioLoop]:
    """Open an asyncio loop for aiokafka, in this Trio thread. tell: called when a task of its own fails."""

    def handle(_: object, context: Mapping[str, Any]) -> None:
        # trio-asyncio's own handler raises it, which would end the loop for all clients in it.
        tell(str(context.get("message")), context.get("exception"))

    async with trio_asyncio.open_loop() as loop:
        loop.set_exception_handler(handle)
        _run_what_is_ready(loop)
        try:
            yield loop
        finally:
            # Connections whose TLS handshake failed are closed some steps later, and by nothing else.
            with trio.CancelScope(shield=True):
                await trio.sleep(_LINGER_S)


async def close(loop: AsyncioLoop, client_close: Callable[[], Awaitable[None]]) -> None:
    """Close a client of aiokafka: within two seconds, whatever is cancelled."""

    async def closed() -> None:
        await client_close()

    with trio.move_on_after(_CLOSE_S, shield=True):
        await loop.run_aio_coroutine(closed())


def _run_what_is_ready(loop: Any) -> None:
    """Have the loop run ready callbacks one after the other, for a while. By itself it waits for a turn of
    Trio's, and so for all other tasks, before each: eight times for every record."""
    run_one = loop._main_loop_one

    async def run_some(no_wait: bool = False) -> None:
        await run_one(no_wait)
        if not no_wait:
            until = time.perf_counter() + _TURN_S
            with suppress(trio.WouldBlock):  # nothing is ready any more
                while loop.is_running() and time.perf_counter() < until:
                    await run_one(no_wait=True)

    loop._main_loop_one = run_some
