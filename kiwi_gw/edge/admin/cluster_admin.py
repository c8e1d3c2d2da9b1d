"""All workers of a gateway, as whichever of them is asked sees them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from urllib.parse import quote

import msgspec
import trio

from kiwi_gw.edge.admin.admin_view import ListingPage, LocalAdmin, Topic, whole_number
from kiwi_gw.edge.admin.counter_store import CounterStore
from kiwi_gw.edge.admin.views import Item
from kiwi_gw.edge.admin.worker_api import WorkerSilent, ask, ask_json
from kiwi_gw.edge.http_errors import HttpError
from kiwi_gw.edge.metrics.snapshot import MetricsSnapshot

_OWN_ID: dict[Topic, str] = {"connections": "id", "subscriptions": "connection"}
"""Where an item has the id of a connection, which is a worker's own."""


class ClusterAdmin:
    """Implements `AdminView`. Connections are called `worker-number`, keys of pages `worker:key`.

    local_admin: this worker, in this slot and incarnation. sockets: where the workers answer, by slot.
    """

    def __init__(
        self,
        local_admin: LocalAdmin,
        slot: int,
        incarnation: int,
        sockets: Sequence[Path],
        counters: CounterStore,
    ) -> None:
        self._local = local_admin
        self._slot = slot
        self._incarnation = incarnation
        self._sockets = tuple(sockets)
        self._counters = counters

    async def snapshot(self) -> MetricsSnapshot:
        answers: dict[int, tuple[int, MetricsSnapshot]] = {}

        async def one(slot: int) -> None:
            if slot == self._slot:
                answers[slot] = self._incarnation, await self._local.snapshot()
                return
            try:
                body, incarnation = await ask(self._sockets[slot], "/snapshot")
                answers[slot] = int(incarnation), MetricsSnapshot.load(body)
            except (WorkerSilent, ValueError, msgspec.DecodeError):
                return  # `worker_up` says so

        async with trio.open_nursery() as nursery:
            for slot in range(len(self._sockets)):
                nursery.start_soon(one, slot)
        return await trio.to_thread.run_sync(self._counters.merge, answers)

    async def page(self, topic: Topic, after: str, limit: int) -> ListingPage:
        named, _, key = after.partition(":")
        first = whole_number(named or "0")
        if first is None or first >= len(self._sockets):
            raise HttpError(400, "`after` is not a key of this list")
        items: list[Item] = []
        silent: list[int] = []
        for slot in range(first, len(self._sockets)):
            try:
                page = await self._page(slot, topic, key, limit - len(items))
            except WorkerSilent:
                silent.append(slot)
                page = ListingPage([])
            key = ""
            items += [_renamed(item, topic, slot) for item in page.items]
            if page.next:
                return ListingPage(items, f"{slot}:{page.next}", tuple(silent))
            if len(items) == limit and slot + 1 < len(self._sockets):
                return ListingPage(items, f"{slot + 1}:", tuple(silent))
        return ListingPage(items, "", tuple(silent))

    async def disconnect(self, connection: str) -> bool:
        worker, _, number = connection.partition("-")
        slot = whole_number(worker)
        if slot is None or slot >= len(self._sockets) or whole_number(number) is None:
            return False
        if slot == self._slot:
            return await self._local.disconnect(number)
        try:
            answer = await ask_json(self._sockets[slot], f"/connections/{number}", "DELETE")
        except WorkerSilent as error:
            raise HttpError(503, "the worker of this connection does not answer") from error
        return bool(answer["done"])

    async def _page(self, slot: int, topic: Topic, key: str, limit: int) -> ListingPage:
        if slot == self._slot:
            return await self._local.page(topic, key, limit)
        found = await ask_json(self._sockets[slot], f"/{topic}?limit={limit}&after={quote(key, safe='')}")
        return ListingPage(found["items"], found["next"])


def _renamed(item: Item, topic: Topic, slot: int) -> Item:
    name = _OWN_ID.get(topic)
    own = {} if name is None else {name: f"{slot}-{item[name]}"}
    return {**item, **own, "worker": slot}
