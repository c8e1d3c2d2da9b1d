"""Whether the cluster is there: one scout, looked through again and again.

aiokafka does not say when a broker is gone: reads just stay empty. So every `probe_interval_ms` a probe
asks the cluster something on its own connection, with a deadline. When it fails the cluster is away:
consumers are closed and everybody who asks waits at the gate. When it answers again, the gate opens.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Protocol, TypeVar

import structlog
import trio

from kiwi_kafka.pause import Pauses
from kiwi_kafka.seam import Scout, Transport, UnreachableError

T = TypeVar("T")

log = structlog.get_logger("kiwi_kafka")

AWAY = "the Kafka cluster does not answer"


class Probe(Protocol):
    """What the link does with a scout, and whom it tells."""

    async def look(self, scout: Scout) -> None:
        """Ask the cluster what is worth knowing. UnreachableError: nobody answered."""

    def received(self) -> int:
        """A number that grows when records arrive."""

    def away(self) -> None:
        """The cluster is gone."""


class Link:
    def __init__(self, transport: Transport, probe: Probe, servers: str, interval: float) -> None:
        self._transport = transport
        self._probe = probe
        self._servers = servers
        self._interval = interval
        self._scout: Scout | None = None
        self._open = trio.Event()
        self._hurry = trio.Event()
        self._away_since: float | None = None
        self._listeners: dict[object, Callable[[str], None]] = {}

    @contextmanager
    def told(self, listener: Callable[[str], None]) -> Iterator[None]:
        """Have it told, as long as the block lasts, what is wrong with the cluster: now, if anything is, and
        when that changes (an empty message: nothing is)."""
        key = object()
        self._listeners[key] = listener
        try:
            if self._away_since is not None:
                listener(AWAY)
            yield
        finally:
            del self._listeners[key]

    @property
    def up(self) -> bool:
        """Whether the cluster answered the last probe."""
        return self._away_since is None and self._scout is not None

    def suspect(self) -> None:
        """Something failed that should not: probe at once."""
        self._hurry.set()

    async def scout(self) -> Scout:
        """The scout, as soon as the cluster answers."""
        while self._scout is None:
            if self._open.is_set():
                self._open = trio.Event()
            await self._open.wait()
        return self._scout

    async def ask(self, question: Callable[[Scout], Awaitable[T]]) -> T:
        """Ask until there is an answer, however long the cluster is away."""
        pauses = Pauses(0.1, 2.0)
        while True:
            scout = await self.scout()
            try:
                return await question(scout)
            except UnreachableError:
                self.suspect()
                await trio.sleep(pauses.next())

    async def run(self) -> None:
        """Keep the link until cancelled."""
        pauses = Pauses(0.1, 1.0)
        while True:
            received = self._probe.received()
            try:
                scout = await self._transport.scout()
                try:
                    while True:
                        received = self._probe.received()
                        await self._probe.look(scout)
                        self._is_up(scout)
                        pauses.reset()
                        await self._wait()
                finally:
                    self._scout = None
                    await scout.close()
            except UnreachableError as error:
                # Records that arrived meanwhile prove the cluster alive; only this connection was bad,
                # or this process too busy to look.
                if self._probe.received() == received:
                    self._is_away(error)
                await trio.sleep(pauses.next())

    async def _wait(self) -> None:
        self._hurry = trio.Event()
        with trio.move_on_after(self._interval):
            await self._hurry.wait()
            await trio.sleep(self._interval / 10)  # however many hurry it

    def _is_up(self, scout: Scout) -> None:
        self._scout = scout
        self._open.set()
        if self._away_since is not None:
            seconds = round(trio.current_time() - self._away_since, 1)
            log.info("kafka broker back", servers=self._servers, away_seconds=seconds)
            self._away_since = None
            self._tell("")

    def _tell(self, message: str) -> None:
        for listener in list(self._listeners.values()):
            listener(message)

    def _is_away(self, error: UnreachableError) -> None:
        if self._away_since is None:
            self._away_since = trio.current_time()
            log.warning("kafka broker away", servers=self._servers, error=str(error))
            self._probe.away()
            self._tell(AWAY)
