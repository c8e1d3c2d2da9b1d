"""What the admin address is about: this process, or all workers of the gateway.

A page is a run of items and the key to the next run, empty at the end. Keys are opaque to clients: they are
made of ids that only grow, so a page never repeats an item, whatever comes and goes between two requests.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, Protocol

from kiwi_gw.codes import CloseCode
from kiwi_gw.edge.admin.views import Item, connection_item, source_item, subscription_item
from kiwi_gw.edge.http_errors import HttpError
from kiwi_gw.edge.metrics.collect import Collector
from kiwi_gw.edge.metrics.snapshot import MetricsSnapshot
from kiwi_gw.runtime.gateway import Gateway

Topic = Literal["sources", "connections", "subscriptions"]
TOPICS: tuple[Topic, ...] = ("sources", "connections", "subscriptions")


@dataclass(frozen=True, slots=True)
class ListingPage:
    """silent: workers that did not answer, whose items are missing."""

    items: list[Item]
    next: str = ""
    silent: tuple[int, ...] = ()


class AdminView(Protocol):
    """What can be asked: this process, or all workers."""

    async def snapshot(self) -> MetricsSnapshot:
        """Return the metrics of everything."""

    async def page(self, topic: Topic, after: str, limit: int) -> ListingPage:
        """At most `limit` items behind the key `after` (empty: from the first on). HttpError 400: no key."""

    async def disconnect(self, connection: str) -> bool:
        """Close a connection, by its id; False if there is none."""


class LocalAdmin:
    """This process. collector: None where metrics are switched off. lone: whether it is the whole gateway."""

    def __init__(self, gateway: Gateway, collector: Collector | None, *, lone: bool = True) -> None:
        self._gateway = gateway
        self._collector = collector
        self._lone = lone

    async def snapshot(self) -> MetricsSnapshot:
        if self._collector is None:
            return MetricsSnapshot()
        snapshot = await self._collector.collect()
        if self._lone:
            snapshot.put("worker_up", 1, "0")
            snapshot.put("worker_restarts_total", 0)
        return snapshot

    async def page(self, topic: Topic, after: str, limit: int) -> ListingPage:
        return _VIEWS[topic](self._gateway, after, limit)

    async def disconnect(self, connection: str) -> bool:
        for item in self._gateway.connections:
            if str(item.number) == connection:
                item.send_close(CloseCode.DISCONNECTED, "disconnected by an operator")
                return True
        return False


def _sources(gateway: Gateway, after: str, limit: int) -> ListingPage:
    found = [
        item for item in sorted(gateway.runners(), key=lambda r: r.hub.info.id) if item.hub.info.id > after
    ]
    chosen = found[:limit]
    return ListingPage([*map(source_item, chosen)], chosen[-1].hub.info.id if len(found) > limit else "")


def _connections(gateway: Gateway, after: str, limit: int) -> ListingPage:
    number, _ = _key(after)
    found = sorted((c for c in gateway.connections if c.number > number), key=lambda c: c.number)
    chosen = found[:limit]
    return ListingPage([*map(connection_item, chosen)], str(chosen[-1].number) if len(found) > limit else "")


def _subscriptions(gateway: Gateway, after: str, limit: int) -> ListingPage:
    """List a page; a key is a connection and how many of its subscriptions were had."""
    number, had = _key(after)
    items: list[Item] = []
    for connection in sorted((c for c in gateway.connections if c.number >= number), key=lambda c: c.number):
        first = had if connection.number == number else 0
        listed = list(connection.subscriptions.values())[first : first + limit - len(items)]
        items += [subscription_item(connection, item) for item in listed]
        if len(items) == limit:
            return ListingPage(items, f"{connection.number}.{first + len(listed)}")
    return ListingPage(items)


_DIGITS = 18

_VIEWS: dict[Topic, Callable[[Gateway, str, int], ListingPage]] = {
    "sources": _sources,
    "connections": _connections,
    "subscriptions": _subscriptions,
}


def _key(after: str) -> tuple[int, int]:
    parts = after.partition(".")
    number, had = whole_number(parts[0] or "0"), whole_number(parts[2] or "0")
    if number is None or had is None:
        raise HttpError(400, "`after` is not a key of this list")
    return number, had


def whole_number(text: str) -> int | None:
    """Read a number that a client has written; None if it is none, or one of more digits than counts have
    (`int` raises ValueError for 4,301 of them)."""
    return int(text) if text.isascii() and text.isdigit() and len(text) <= _DIGITS else None
