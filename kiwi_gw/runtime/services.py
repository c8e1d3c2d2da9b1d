"""What sources share: opened when first needed, closed after the last source that uses it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

import structlog
import trio

from kiwi_gw.api import PluginContext, ServiceType

log = structlog.get_logger(__name__)


class _Running:
    """One open service. `users` counts the sources that hold it."""

    def __init__(self, kind: ServiceType, context: PluginContext) -> None:
        self.kind = kind
        self.sections = tuple(context.section(name) for name in kind.sections)
        self.context = context
        self.users = 0
        self.value: object = None
        self.ready = trio.Event()
        self.unused = trio.Event()
        self.scopes: set[trio.CancelScope] = set()
        self.failure: Exception | None = None

    def check(self) -> None:
        """Raises what the service failed with."""
        if self.failure is not None:
            raise self.failure


class Services:
    """The open services, each in a task of its own, because a context manager that opens nurseries must
    be entered and left in one task."""

    def __init__(self, nursery: trio.Nursery) -> None:
        self._nursery = nursery
        self._running: list[_Running] = []

    @asynccontextmanager
    async def use(
        self, kinds: Mapping[str, ServiceType], names: tuple[str, ...], context: PluginContext
    ) -> AsyncIterator[Mapping[str, object]]:
        """The named services, open while the block runs. KeyError names one that no plugin provides.

        If a service fails, the block is cancelled and its error raised.
        """
        held: list[_Running] = []
        scope = trio.CancelScope()
        try:
            held.extend(self._running_one(kinds[name], context) for name in names)
            for item in held:
                await item.ready.wait()
                item.check()
                item.scopes.add(scope)
            # A scope and not a nursery: what the block raises must come out as it is.
            with scope:
                yield {item.kind.name: item.value for item in held}
            for item in held:
                item.check()
        finally:
            for item in held:
                item.scopes.discard(scope)
                item.users -= 1
                if item.users == 0:
                    item.unused.set()

    def _running_one(self, kind: ServiceType, context: PluginContext) -> _Running:
        sections = tuple(context.section(name) for name in kind.sections)
        for item in self._running:
            if item.kind.name == kind.name and item.sections == sections and not item.unused.is_set():
                item.users += 1
                return item
        item = _Running(kind, context)
        item.users = 1
        self._running.append(item)
        self._nursery.start_soon(self._serve, item)
        return item

    async def _serve(self, item: _Running) -> None:
        try:
            async with item.kind.open(item.context) as value:
                item.value = value
                item.ready.set()
                await item.unused.wait()
        except Exception as error:
            item.failure = error
            log.error("a service failed", service=item.kind.name, exc_info=error)
        finally:
            item.unused.set()
            item.ready.set()
            for scope in item.scopes:
                scope.cancel()
            self._running.remove(item)
