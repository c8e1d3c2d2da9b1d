"""The messages of a subscription that wait, in the order in which they were read.

Both kinds of queues are heaps that find out late what is no longer so: when it would be its turn, or when
there is more of that than of the rest. So a step costs the logarithm of what is held, on average.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush
from math import inf
from typing import Final

_LEFT: Final = 64
"""So many that are gone may be left among those that wait, beside as many as these."""

Place = tuple[int, int]
"""A partition and an offset."""


@dataclass(slots=True, eq=False)
class Message:
    """A message that is held. place: where it is. order: in which messages were read. payload: its bytes.
    deliveries: how often it was delivered. owner: the consumer that it is pending at. due: when it comes
    back. gone: it is held no more."""

    place: Place
    order: int
    payload: bytes
    queue: MessageQueue
    deliveries: int = 0
    owner: Consumer | None = None
    due: float = inf
    gone: bool = False


class MessageQueue:
    """Messages that wait. owner: whose they are, by their key. pending: how many are not here, but with
    consumers."""

    __slots__ = ("_heap", "key", "owner", "pending", "waiting")

    def __init__(self, key: bytes | None) -> None:
        self.key = key
        self.owner: Consumer | None = None
        self.pending = 0
        self.waiting = 0
        self._heap: list[tuple[int, Message]] = []

    def put(self, message: Message) -> None:
        heappush(self._heap, (message.order, message))
        self.waiting += 1

    def drop(self) -> None:
        """Count one less: it is gone, and is left out when it is its turn."""
        self.waiting -= 1
        if len(self._heap) > 2 * self.waiting + _LEFT:
            self._heap = [each for each in self._heap if not each[1].gone]
            heapify(self._heap)

    def first(self) -> Message:
        """Return the next message; there must be one."""
        while (message := self._heap[0][1]).gone:
            heappop(self._heap)
        return message

    def take(self) -> Message:
        message = self.first()
        heappop(self._heap)
        self.waiting -= 1
        return message


class ReadyQueues:
    """Queues that have something. The first is the one whose first message was read first."""

    __slots__ = ("_heap", "_orders")

    def __init__(self) -> None:
        self._orders: dict[MessageQueue, int] = {}
        self._heap: list[tuple[int, MessageQueue]] = []  # with what is no longer so, until it is its turn

    def put(self, queue: MessageQueue) -> None:
        """Have a queue, or take note that its first message is another."""
        order = queue.first().order
        if self._orders.get(queue) == order:
            return
        self._orders[queue] = order
        heappush(self._heap, (order, queue))
        if len(self._heap) > 2 * len(self._orders) + _LEFT:
            self._heap = [(order, queue) for queue, order in self._orders.items()]
            heapify(self._heap)

    def drop(self, queue: MessageQueue) -> None:
        self._orders.pop(queue, None)

    def first(self) -> tuple[float, MessageQueue | None]:
        """Return the order of the first message and its queue; inf and None: there is none."""
        heap, orders = self._heap, self._orders
        while heap:
            order, queue = heap[0]
            if orders.get(queue) == order:
                return order, queue
            heappop(heap)
        return inf, None


@dataclass(slots=True, eq=False)
class Consumer:
    """One that fetches. ack_seconds: after so long what it has not acknowledged comes back; inf: never.
    pending: what it has, the longest first. own: the queues of its keys."""

    name: str
    ack_seconds: float = inf
    pending: dict[Place, Message] = field(default_factory=dict)
    own: ReadyQueues = field(default_factory=ReadyQueues)
