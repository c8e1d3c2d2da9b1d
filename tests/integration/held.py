"""What lives in a thread with a Trio loop of its own, so that it lives longer than any test's loop."""

from __future__ import annotations

import threading
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from typing import Generic, TypeVar

import trio

T = TypeVar("T")
H = TypeVar("H")


class Held(Generic[H]):
    """name: of the thread. opens: makes what is entered there."""

    def __init__(self, name: str, opens: Callable[[], AbstractAsyncContextManager[H]]) -> None:
        self._opens = opens
        self._held: H | None = None
        self._started = threading.Event()
        self._error: BaseException | None = None
        self._token: trio.lowlevel.TrioToken | None = None
        self._enough = trio.Event()
        self._thread = threading.Thread(target=trio.run, args=(self._hold,), name=name)

    async def _hold(self) -> None:
        try:
            async with self._opens() as self._held:
                self._token = trio.lowlevel.current_trio_token()
                self._started.set()
                await self._enough.wait()
        except BaseException as error:  # noqa: BLE001  (handed to the fixture, which raises it)
            self._error = error
            self._started.set()

    def start(self) -> None:
        self._thread.start()
        self._started.wait()
        if self._error is not None:
            raise self._error

    def stop(self) -> None:
        """Stop it. Raises what it raises at its end."""
        if self._token is not None and self._thread.is_alive():
            trio.from_thread.run_sync(self._enough.set, trio_token=self._token)
        self._thread.join()
        if self._error is not None:
            raise self._error

    async def do(self, work: Callable[[], Awaitable[T]], *, abandon: bool = False) -> T:
        """Do something in the loop that it belongs to. abandon: who is cancelled does not wait for it."""

        def there() -> T:
            return trio.from_thread.run(work, trio_token=self._token)

        return await trio.to_thread.run_sync(there, abandon_on_cancel=abandon)
