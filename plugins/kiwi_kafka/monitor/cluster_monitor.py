"""Whether the cluster answers: one admin client asks it again and again.

A consumer does not say when a broker is gone: it looks for it again, and reads stay empty. So every
`probe_interval_ms` a probe asks the cluster something on its own connection, with a deadline. When it fails
the cluster is away: consumers are closed, and all calls to it wait at the gate. When it answers again, the
gate opens.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Protocol, TypeVar

import structlog
import trio

from kiwi_gw.api import Backoff, Wakeup
from kiwi_kafka.ports import AdminClient, ClientFactory, UnreachableError

T = TypeVar("T")

log = structlog.get_logger("kiwi_kafka")

AWAY = "the Kafka cluster does not answer"


class Probe(Protocol):
    """Name what the monitor asks for each time, and what it notifies when the cluster is away."""

    async def poll(self, admin: AdminClient) -> None:
        """Ask the cluster for what is to be watched. Raises UnreachableError if no broker answered."""

    def records_received(self) -> int:
        """Return a number that grows when records arrive."""

    def on_cluster_away(self) -> None:
        """Give up what depends on the cluster, which does not answer."""


class ClusterMonitor:
    def __init__(self, clients: ClientFactory, probe: Probe, servers: str, interval: float) -> None:
        self._clients = clients
        self._probe = probe
        self._servers = servers
        self._interval = interval
        self._admin: AdminClient | None = None
        self._open = trio.Event()
        self._probe_requested = Wakeup()
        self._away_since: float | None = None
        self._listeners: dict[object, Callable[[str], None]] = {}

    @contextmanager
    def report_outages_to(self, listener: Callable[[str], None]) -> Iterator[None]:
        """Call the listener, as long as the block lasts, with what is wrong with the cluster: now, if
        anything is, and when that changes (an empty message: nothing is)."""
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
        """Return whether the cluster answered the last probe."""
        return self._away_since is None and self._admin is not None

    def probe_now(self) -> None:
        """Probe at once: something failed that should not."""
        self._probe_requested.set()

    async def admin(self) -> AdminClient:
        """Return the admin client, as soon as the cluster answers."""
        while self._admin is None:
            if self._open.is_set():
                self._open = trio.Event()
            await self._open.wait()
        return self._admin

    async def ask(self, question: Callable[[AdminClient], Awaitable[T]]) -> T:
        """Ask until there is an answer, however long the cluster is away."""
        backoff = Backoff(0.1, 2.0)
        while True:
            admin = await self.admin()
            try:
                return await question(admin)
            except UnreachableError:
                self.probe_now()
                await trio.sleep(backoff.next())

    async def run(self) -> None:
        """Watch the cluster until cancelled."""
        backoff = Backoff(0.1, 1.0)
        while True:
            records_received = self._probe.records_received()
            try:
                admin = await self._clients.admin()
                try:
                    while True:
                        records_received = self._probe.records_received()
                        await self._probe.poll(admin)
                        self._is_up(admin)
                        backoff.reset()
                        await self._wait()
                finally:
                    self._admin = None
                    await admin.close()
            except UnreachableError as error:
                # Records that arrived meanwhile prove the cluster alive; only this connection was bad,
                # or this process too busy to look.
                if self._probe.records_received() == records_received:
                    self._is_away(error)
                await trio.sleep(backoff.next())

    async def _wait(self) -> None:
        self._probe_requested.clear()
        with trio.move_on_after(self._interval):
            await self._probe_requested.wait()
            await trio.sleep(self._interval / 10)  # however many hurry it

    def _is_up(self, admin: AdminClient) -> None:
        self._admin = admin
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
            self._probe.on_cluster_away()
            self._tell(AWAY)
