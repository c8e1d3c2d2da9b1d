"""A broker in a thread with a Trio loop of its own, so that it lives longer than any test's loop."""

from __future__ import annotations

import threading
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any, Final

import trio

from kiwi_demo.broker import Broker

_KEPT: Final = {"log.retention.ms": "-1"}
"""Records stay. Tests give theirs a time, which is older than a week one day: Kafka would remove them half a
minute after its start, and every five minutes."""


class HeldBroker:
    """options: those of a `Broker`."""

    def __init__(self, folder: Path, *, properties: Mapping[str, str] | None = None, **options: Any) -> None:
        self.broker = Broker(folder, properties={**_KEPT, **(properties or {})}, **options)
        self._started = threading.Event()
        self._error: BaseException | None = None
        self._token: trio.lowlevel.TrioToken | None = None
        self._enough = trio.Event()
        self._thread = threading.Thread(target=trio.run, args=(self._hold,), name="broker")

    async def _hold(self) -> None:
        try:
            async with self.broker:
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
        if self._token is not None:
            trio.from_thread.run_sync(self._enough.set, trio_token=self._token)
        self._thread.join()
        if self._error is not None:
            raise self._error

    async def do(self, work: Callable[[], Awaitable[None]]) -> None:
        """Something of the broker, in the loop that it belongs to: `await held.do(held.broker.kill)`."""

        def there() -> None:
            trio.from_thread.run(work, trio_token=self._token)

        await trio.to_thread.run_sync(there)
