"""A `Publisher` in memory."""

from __future__ import annotations

from collections.abc import Callable

import trio

from kiwi_gw.api import decode_mistake
from kiwi_gw.model import Batch, Decode, EventSchema, Positions
from kiwi_gw.testing.batch_rules import broken, check_batch, check_positions


class MemoryPublisher:
    """Takes what a source publishes, as the gateway would, and checks every call against the contract.

        out = MemoryPublisher()
        with trio.move_on_after(1):
            await source.run(out, None)
        assert out.records[0]["value"] == b"first"

    shape: the source's; columns are then compared with it. start: what `run` is given.
    subscribed: whether `wait_subscribed` returns at once, or only after `subscribe()`.

    A call that breaks the contract raises AssertionError; the first one is kept in `broken`, for a
    source may catch it. `batches` are copies: what a source does to its lists later does not show. troubles,
    members: what it said of them.
    """

    def __init__(
        self,
        event_schema: EventSchema | None = None,
        start: Positions | None = None,
        *,
        subscribed: bool = True,
    ) -> None:
        self.batches: list[Batch] = []
        self.ready_at: Positions | None = None
        self.expected: Positions = {}
        self.broken: AssertionError | None = None
        self.troubles: list[str] = []
        self.members = ""
        self._event_schema = event_schema
        self._start = dict(start or {})
        self._positions = dict(start or {})
        self._originals: list[Batch] = []
        self._events = 0
        self._publishing = False
        self._closed = False
        self._changed = trio.lowlevel.ParkingLot()
        self._subscribed = trio.Event()
        if subscribed:
            self._subscribed.set()

    @property
    def positions(self) -> dict[int, int]:
        """Where a source goes on after a restart: behind the last batch, or where it was ready."""
        return dict(self._positions)

    @property
    def events(self) -> int:
        return self._events

    @property
    def closed(self) -> bool:
        return self._closed

    @property
    def subscribed(self) -> bool:
        return self._subscribed.is_set()

    @property
    def records(self) -> list[dict[str, object]]:
        """Every event so far as a dict of its columns, with `partition` and `offset`, in order."""
        return [
            {
                **{name: column[index] for name, column in batch.columns.items()},
                "partition": batch.partitions[index],
                "offset": batch.offsets[index],
            }
            for batch in self.batches
            for index in range(len(batch))
        ]

    def subscribe(self) -> None:
        """Give the source a subscription."""
        self._subscribed.set()

    async def wait_events(self, count: int) -> None:
        """Wait for so many events in all; for ever if the source ends before."""
        while self._events < count:
            await self._changed.park()

    def close(self) -> None:
        """Note that `run` has ended. What is called from now on breaks the contract; so does a batch that the
        source has changed since it handed it over, which is found here."""
        self._closed = True
        for original, taken in zip(self._originals, self.batches, strict=True):
            if _copy(original) != taken:
                self._break(
                    f"a batch was changed after it was handed over (the one at {dict(taken.starts)}): "
                    "the gateway keeps it, so give it lists of its own"
                )

    async def ready(self, positions: Positions) -> None:
        self._check_open("ready")
        if self.ready_at is not None:
            self._break("ready was called twice in one run")
        self._check(lambda: check_positions("the positions of ready", positions))
        for partition, offset in self._start.items():
            if positions.get(partition, -1) < offset:
                self._break(
                    f"ready is at {positions.get(partition)} of partition {partition}, "
                    f"but run was given {offset} as its start"
                )
        self.ready_at = dict(positions)
        self._positions = dict(positions)
        await trio.lowlevel.checkpoint()

    def expect(self, positions: Positions) -> None:
        self._check_open("expect")
        if self.ready_at is not None:
            self._break("expect was called after ready")
        self._check(lambda: check_positions("the positions of expect", positions))
        self.expected = dict(positions)

    async def publish(self, batch: Batch) -> None:
        self._check_open("publish")
        if self.ready_at is None:
            self._break("publish was called before ready")
        if self._publishing:
            self._break("publish was called while an earlier publish had not returned")
        positions: dict[int, int] = {}
        self._check(lambda: positions.update(check_batch(batch, self._positions, self._event_schema)))
        self._positions = positions
        self._originals.append(batch)
        self.batches.append(_copy(batch))
        self._events += len(batch)
        self._changed.unpark_all()
        self._publishing = True
        try:
            await trio.lowlevel.checkpoint()
        finally:
            self._publishing = False

    def describe(self, members: str) -> None:
        self._check_open("describe")
        if wrong := decode_mistake(Decode(fields=members)):
            self._break(f"describe was called with no {wrong}")
        self.members = members

    def report_degraded(self, message: str) -> None:
        self._check_open("report_degraded")
        self.troubles.append(message)

    async def wait_subscribed(self) -> None:
        self._check_open("wait_subscribed")
        await self._subscribed.wait()

    def _check_open(self, call: str) -> None:
        if self._closed:
            self._break(f"{call} was called after run had ended")

    def _break(self, message: str) -> None:
        self._check(lambda: broken(message))

    def _check(self, rule: Callable[[], None]) -> None:
        try:
            rule()
        except AssertionError as error:
            if self.broken is None:
                self.broken = error
            raise


def _copy(batch: Batch) -> Batch:
    return Batch(
        starts=dict(batch.starts),
        partitions=tuple(batch.partitions),
        offsets=tuple(batch.offsets),
        columns={name: tuple(column) for name, column in batch.columns.items()},
        cost=batch.cost,
        gap=batch.gap,
    )
