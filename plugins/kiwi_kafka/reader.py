"""One consumer of the pool, and the task that reads it for all the sources that share it.

The consumer is disposable: whatever it knows about positions, the leases know better. So every trouble
has one of two cures: send it back to the leases' positions, or throw it away and make another.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

import structlog
import trio

from kiwi_kafka.columns import Fetched
from kiwi_kafka.lease import Lease
from kiwi_kafka.pause import Pauses
from kiwi_kafka.repairs import REPAIRABLE, Helper, Repairs
from kiwi_kafka.seam import Consumer, Place, UnreachableError

log = structlog.get_logger("kiwi_kafka")

_WAIT_MS = 2_000
"""How long one read waits for records; also how often positions are moved over empty offsets."""
_GATHER_CHANGES_S = 0.02
_BUSY_S = 0.02
_FEW = 3


class Host(Helper, Protocol):
    """What a reader needs of the pool."""

    async def consumer(self) -> Consumer:
        """A new consumer, as soon as a broker answers."""

    async def verify(self, leases: Sequence[Lease]) -> None:
        """End or hold those whose topics are not those that they were leased for."""

    def suspect(self) -> None:
        """Something did not work that should: look at the brokers at once."""

    def longest_gather_ms(self) -> int:
        """How long records may gather at a broker before a busy reader looks again; 0: not at all."""


class Reader:
    def __init__(self, host: Host) -> None:
        self.leases: list[Lease] = []
        self.records = 0  # received so far
        self._host = host
        self._repairs = Repairs(host, self.leases)
        self._changed = True
        self._kicked = trio.Event()
        self._turn: trio.CancelScope | None = None
        self._session = trio.CancelScope()
        self._pauses = Pauses(0.1, 5.0)
        self._pace = _Pace()

    @property
    def partitions(self) -> int:
        return sum(len(lease.next) for lease in self.leases)

    def add(self, lease: Lease) -> None:
        self.leases.append(lease)
        lease.on_room = self._kick
        self.reassign()

    def remove(self, lease: Lease) -> None:
        self.leases.remove(lease)
        lease.on_room = _nothing
        self.reassign()

    def reassign(self) -> None:
        """Which partitions are to be read, or where, has changed."""
        self._changed = True
        self._kick()

    def rebuild(self) -> None:
        """Throw the consumer away and make another, if there is one."""
        self._session.cancel()

    async def run(self) -> None:
        """Read until cancelled, with one consumer after the other."""
        while True:
            while not self._places():
                await self._wait_kicked()
            with trio.CancelScope() as self._session:
                try:
                    consumer = await self._host.consumer()
                    try:
                        await self._host.verify(self.leases)
                        await self._read(consumer)
                    finally:
                        await consumer.close()
                except UnreachableError as error:
                    log.debug("kafka consumer given up", error=str(error))
                    self._host.suspect()
                    await trio.sleep(self._pauses.next())
                except Exception as error:  # noqa: BLE001
                    # A fault of this plugin belongs to its sources, whose runner logs it and starts them
                    # again; it must not end the pool for all of them.
                    for lease in self.leases:
                        lease.end(error)
                    await trio.sleep(self._pauses.next())

    async def _read(self, consumer: Consumer) -> None:
        # A change ends this consumer: a broker serves the requests of a connection one after the other,
        # so on the old connection the new fetch would wait until the old one is answered.
        await trio.sleep(_GATHER_CHANGES_S)
        self._changed = False
        await consumer.assign(self._places())
        follow_at = trio.current_time() + _WAIT_MS / 1000
        while not self._changed:
            self._kicked = trio.Event()
            try:
                got = await self._one_turn(consumer)
            except REPAIRABLE as error:
                self.records += await self._repairs.repair(consumer, error)
                if any(lease.over for lease in self.leases):
                    self._changed = True
            else:
                if await self._look_after_doubts(consumer):
                    continue
                if got:
                    self.records += got
                    self._pauses.reset()
                consumer.gather(self._pace.next(got, trio.current_time(), self._host.longest_gather_ms()))
                if trio.current_time() >= follow_at:
                    await self._follow(consumer)
                    follow_at = trio.current_time() + _WAIT_MS / 1000

    async def _one_turn(self, consumer: Consumer) -> int:
        """One read; the records go to their leases. 0 when there was nothing, or it was kicked."""
        willing = [lease for lease in self.leases if lease.has_room and not lease.over]
        only = [place for lease in willing for place in lease.places()]
        if not only:
            await self._wait_kicked()
            return 0
        with trio.CancelScope() as self._turn:
            if self._changed or self._kicked.is_set():
                return 0
            # What a full lease's partitions have fetched stays in the client, and others go on.
            everybody = len(willing) == len(self.leases)
            fetched = await consumer.read(() if everybody else only, self._pace.wait_ms)
            return self._hand_over(fetched)
        return 0

    async def _look_after_doubts(self, consumer: Consumer) -> bool:
        """Have it found out whether what came is of the same log. Whether anything was doubted."""
        doubted = [lease for lease in self.leases if lease.doubted]
        if not doubted:
            return False
        await self._repairs.rewind(consumer)
        for lease in doubted:
            partitions, lease.doubted = sorted(lease.doubted), set()
            for partition in partitions:
                self._host.out_of_range(lease, partition)
        return True

    def _hand_over(self, fetched: dict[str, list[Fetched]]) -> int:
        return sum(lease.offer(fetched[lease.topic]) for lease in self.leases if lease.topic in fetched)

    async def _follow(self, consumer: Consumer) -> None:
        """Move the leases over offsets that hold no record: markers of transactions, compaction."""
        # Between two turns everything that the consumer has passed is in a lease.
        places = [place for lease in self.leases for place in lease.places()]
        if self._changed or not places:
            return
        positions = await consumer.positions(places)
        for lease in self.leases:
            for partition in lease.next:
                lease.advance(partition, positions.get(Place(lease.topic, partition), 0))

    # --- details ---

    def _places(self) -> dict[Place, int]:
        return {place: offset for lease in self.leases for place, offset in lease.places().items()}

    def _kick(self) -> None:
        self._kicked.set()
        if self._turn is not None:
            self._turn.cancel()

    async def _wait_kicked(self) -> None:
        await self._kicked.wait()
        self._kicked = trio.Event()


class _Pace:
    """Whether a reader should let records gather.

    A fetch costs about as much for one record as for hundreds, and the more the more partitions it names.
    So a reader with many partitions, which records keep busy, looks only now and then.
    """

    def __init__(self) -> None:
        self._gathers = 0
        self._last = float("-inf")

    @property
    def wait_ms(self) -> int:
        """How long a read should wait: an empty one ends the gathering."""
        return 2 * self._gathers or _WAIT_MS

    def next(self, got: int, now: float, longest_ms: int) -> int:
        """After a turn that brought `got` records: for how long to gather, in ms."""
        busy = got >= _FEW if self._gathers else got > 0 and now - self._last < _BUSY_S
        self._gathers = longest_ms if busy else 0
        if got:
            self._last = now
        return self._gathers


_nothing: Callable[[], None] = lambda: None  # noqa: E731
