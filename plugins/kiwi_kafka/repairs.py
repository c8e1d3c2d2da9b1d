"""What is done about a read that failed, for everything that one consumer reads.

The leases know where reading has to go on. So every repair moves them, if something cannot be had, and
then sends the consumer where they are.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import structlog

from kiwi_gw.api import SourceFailed, Unreadable
from kiwi_kafka.columns import Fetched, KafkaRecord
from kiwi_kafka.lease import Lease
from kiwi_kafka.seam import (
    Consumer,
    DeniedError,
    OutOfRangeError,
    Place,
    TooLargeError,
    UndecodableError,
    UnreachableError,
)

log = structlog.get_logger("kiwi_kafka")

REPAIRABLE = (OutOfRangeError, TooLargeError, DeniedError, UndecodableError)
Repairable = OutOfRangeError | TooLargeError | DeniedError | UndecodableError

_WAIT_MS = 2_000


class Helper(Protocol):
    """Whom a repair asks."""

    def out_of_range(self, lease: Lease, partition: int) -> None:
        """Find out where to go on with a partition that rests."""

    async def unreadable(self, place: Place, offset: int) -> tuple[int, int] | None:
        """First and next offset of a batch that nobody can decode, from `offset` on."""


class Repairs:
    def __init__(self, helper: Helper, leases: Sequence[Lease]) -> None:
        self._helper = helper
        self._leases = leases

    async def repair(self, consumer: Consumer, error: Repairable) -> int:
        """Do what can be done, after which reading goes on. Returns how many records were read meanwhile.

        A lease whose topic cannot be read is over. UnreachableError: another consumer is needed.
        """
        got = 0
        match error:
            case OutOfRangeError():
                self._find_range(error)
            case TooLargeError():
                for lease in self._of(error.place):
                    log.warning("kafka record too large", topic=lease.topic, offset=error.offset)
                    lease.skip(
                        error.place.partition, error.offset + 1, count=1, unreadable=Unreadable.TOO_LARGE
                    )
            case DeniedError():
                for lease in self._leases:
                    if lease.topic == error.topic:
                        # Rights may come back: the source is started again, with growing pauses.
                        lease.end(PermissionError(str(error)))
            case UndecodableError():
                await self.rewind(consumer)
                got = await self._step_over(consumer, error)
        await self.rewind(consumer)
        return got

    async def rewind(self, consumer: Consumer) -> None:
        """Back to the leases' positions: what the consumer had fetched may be lost."""
        places = {place: offset for lease in self._leases for place, offset in lease.places().items()}
        await consumer.seek(places)
        held = [Place(lease.topic, p) for lease in self._leases if not lease.over for p in lease.held]
        await consumer.pause([place for place in held if place not in places])

    def _find_range(self, error: OutOfRangeError) -> None:
        for place, offset in error.places.items():
            for lease in self._of(place):
                if lease.next[place.partition] == offset:  # not a leftover of an earlier position
                    lease.held.add(place.partition)
                    self._helper.out_of_range(lease, place.partition)

    async def _step_over(self, consumer: Consumer, error: UndecodableError) -> int:
        """Find the batch that cannot be decoded, publish what stands before it, and skip it."""
        for lease in self._leases:
            for place, offset in lease.places().items():
                bounds = await self._helper.unreadable(place, offset)
                if bounds is None:
                    continue
                first, behind = bounds
                if behind <= lease.next[place.partition]:
                    lease.end(SourceFailed(f"{place.topic}/{place.partition} is damaged at offset {offset}"))
                    return 0
                got, complete = await self._read_up_to(consumer, lease, place, first)
                if complete:
                    log.error(
                        "kafka batch cannot be decoded, skipped",
                        topic=place.topic,
                        partition=place.partition,
                        first=first,
                        last=behind - 1,
                        error=str(error),
                    )
                    lease.skip(place.partition, behind, unreadable=Unreadable.DAMAGED)
                return got  # if it is not complete: try again
        # Nothing that the brokers hold is damaged: it was damaged on its way. Another connection.
        raise UnreachableError(str(error))

    async def _read_up_to(
        self, consumer: Consumer, lease: Lease, place: Place, stop: int
    ) -> tuple[int, bool]:
        """Publish what stands before offset `stop`: how many records, and whether all of it came."""
        # One by one: the client decodes batch after batch, and loses what one call had collected.
        records: list[KafkaRecord] = []
        position = lease.next[place.partition]
        complete = True
        while position < stop:
            try:
                fetched = await consumer.read([place], _WAIT_MS, max_records=1)
            except UndecodableError:
                break  # the rest holds no record
            if not fetched:
                complete = False
                break
            for part in fetched[place.topic]:
                records.extend(part.records)
                position = part.next
        got = lease.offer([Fetched(place.partition, records, position)]) if records else 0
        return got, complete

    def _of(self, place: Place) -> list[Lease]:
        return [
            lease
            for lease in self._leases
            if lease.topic == place.topic and place.partition in lease.next and not lease.over
        ]
