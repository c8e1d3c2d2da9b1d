"""What sources share: opened when first needed, closed a moment after the last source that uses it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

import structlog
import trio

from kiwi_gw.api import PluginContext, ServiceType
from kiwi_gw.runtime.plugin_faults import FaultBarrier
from kiwi_gw.wakeup import Wakeup

log = structlog.get_logger(__name__)

LINGER_SECONDS = 1.0
"""A source that is altered or restarted lets go and comes back: its service is not closed in between."""


class _Running:
    """One open service. `users` counts the sources that hold it. unused: it closes, or has failed."""

    def __init__(self, kind: ServiceType, context: PluginContext) -> None:
        self.kind = kind
        self.sections = tuple(context.section(name) for name in kind.sections)
        self.context = context
        self.users = 0
        self.value: object = None
        self.ready = trio.Event()
        self.unused = False
        self._turn = Wakeup()
        self.scope = trio.CancelScope()
        self.scopes: set[trio.CancelScope] = set()
        self.failure: BaseException | None = None

    def check(self) -> None:
        """Raise what the service failed with."""
        if self.failure is not None:
            raise self.failure

    def join(self) -> None:
        """One user more."""
        self.users += 1
        self._turn.set()

    def let_go(self) -> None:
        """One user less. If it was the last, and the service is still opening, that is given up."""
        self.users -= 1
        self._turn.set()
        if not self.users and not self.ready.is_set():
            self.unused = True
            self.scope.cancel()

    async def wait_unused(self) -> None:
        """Wait until it was not used for a moment; it cannot be joined from then on."""
        while not self.unused:
            while self.users:
                await self._turn.wait()
            with trio.move_on_after(LINGER_SECONDS):
                while not self.users:
                    await self._turn.wait()
            self.unused = not self.users


class Services:
    """The open services, each in a task of its own, because a context manager that opens nurseries must
    be entered and left in one task.

    `run` shields them, so that the cancellation that ends a gateway reaches its sources first.
    """

    def __init__(self) -> None:
        self._nursery: trio.Nursery | None = None
        self._running: list[_Running] = []
        self._over = trio.Event()
        self.started = trio.Event()

    async def run(self) -> None:
        """Until `stop`: that cancels what is still open. Cancellation does not."""
        with trio.CancelScope(shield=True):
            async with trio.open_nursery() as nursery:
                self._nursery = nursery
                self.started.set()
                await self._over.wait()
                nursery.cancel_scope.cancel()

    def stop(self) -> None:
        self._over.set()

    @asynccontextmanager
    async def use(
        self, kinds: Mapping[str, ServiceType], names: tuple[str, ...], context: PluginContext
    ) -> AsyncIterator[Mapping[str, object]]:
        """Hold the named services open while the block runs. KeyError names one that no plugin provides.

        If a service fails, the block is cancelled and its error raised.
        """
        held: list[_Running] = []
        scope = trio.CancelScope()
        try:
            for name in names:
                held.append(self._running_one(kinds[name], context))
                held[-1].scopes.add(scope)
            # A scope and not a nursery: what the block raises must come out as it is.
            with scope:
                for item in held:
                    await item.ready.wait()
                    item.check()
                yield {item.kind.name: item.value for item in held}
            for item in held:
                item.check()
        finally:
            for item in held:
                item.scopes.discard(scope)
                item.let_go()

    def _running_one(self, kind: ServiceType, context: PluginContext) -> _Running:
        sections = tuple(context.section(name) for name in kind.sections)
        for item in self._running:
            if item.kind.name == kind.name and item.sections == sections and not item.unused:
                item.join()
                return item
        assert self._nursery is not None  # noqa: S101  sources run after `started`
        item = _Running(kind, context)
        item.join()
        self._running.append(item)
        self._nursery.start_soon(self._serve, item)
        return item

    async def _serve(self, item: _Running) -> None:
        name = item.kind.name
        try:
            with FaultBarrier() as barrier, item.scope:
                async with item.kind.open(item.context) as value:
                    item.value = value
                    item.ready.set()
                    await item.wait_unused()
            if barrier.error is not None:
                item.failure = barrier.error
                log.error("a service failed", service=name, exc_info=item.failure)
            elif not item.unused:  # or its users would take their cancellation for their own end
                item.failure = RuntimeError(f"the service {name!r} has ended by itself")
                log.error("a service failed", service=name, error=str(item.failure))
        finally:
            item.unused = True
            item.ready.set()
            for scope in item.scopes:
                scope.cancel()
            self._running.remove(item)
