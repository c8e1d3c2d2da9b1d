"""One consumer of the pool, and the task that reads it for all the sources that share it.

The consumer is disposable, for the readers have the positions that count. So every trouble has one of two
cures: send it back to the readers' positions, or throw it away and make another.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Protocol

import structlog
import trio

from kiwi_gw.api import Backoff, Wakeup
from kiwi_kafka.live.fetch_recovery import RECOVERABLE, FetchRecovery
from kiwi_kafka.live.topic_reader import TopicReader
from kiwi_kafka.ports import Consumer, FetchedPartition, TopicPartition, UnreachableError

log = structlog.get_logger("kiwi_kafka")

_WAIT_MS = 2_000
"""How long one read waits for records."""
_GATHER_CHANGES_S = 0.02
_UNSUBSCRIBED_MS = 5
"""How long records gather at a broker while no source of this consumer has a subscription: a fetch costs as
much as some dozens of records. A larger batch would be cut into pieces (`kiwi_gw.model.batch_pieces`)."""


class ConsumerHost(Protocol):
    """Name what a reader needs of the pool."""

    async def consumer(self) -> Consumer:
        """Open a new consumer, as soon as a broker answers."""

    async def verify(self, topic_readers: Sequence[TopicReader]) -> None:
        """End or hold the readers whose topics are not those that they were opened for."""

    async def find_corrupt_batch(self, tp: TopicPartition, offset: int) -> tuple[int, int] | None:
        """See `FindCorruptBatch`."""

    def on_out_of_range(self, topic_reader: TopicReader, partition: int) -> None:
        """See `OnOutOfRange`."""

    def probe_now(self) -> None:
        """Look at the brokers at once: something did not work that should."""

    def fetch_interval_ms(self) -> int:
        """Return how long records should gather at a broker before it is asked again; 0: not at all."""


class ConsumerTask:
    def __init__(self, host: ConsumerHost) -> None:
        self.topic_readers: list[TopicReader] = []
        self.records = 0  # received so far
        self._host = host
        self._recovery = FetchRecovery(self.topic_readers, host.find_corrupt_batch, host.on_out_of_range)
        self._by_topic: dict[str, TopicReader] = {}
        self._full: set[TopicReader] = set()
        self._unverified: set[TopicReader] = set()
        self._changed = True
        self._interval_ms = 0
        self._woken = Wakeup()
        self._turn: trio.CancelScope | None = None
        self._session = trio.CancelScope()
        self._backoff = Backoff(0.1, 5.0)

    @property
    def partitions(self) -> int:
        return sum(len(topic_reader.next) for topic_reader in self.topic_readers)

    def add(self, topic_reader: TopicReader) -> None:
        self.topic_readers.append(topic_reader)
        self._by_topic[topic_reader.topic] = topic_reader
        topic_reader.on_capacity = partial(self._go_on, topic_reader)
        self.reassign()

    def remove(self, topic_reader: TopicReader) -> None:
        self.topic_readers.remove(topic_reader)
        del self._by_topic[topic_reader.topic]
        self._full.discard(topic_reader)
        self._unverified.discard(topic_reader)
        topic_reader.on_capacity = _nothing
        self.reassign()

    def reassign(self) -> None:
        """Note that other partitions are to be read, or from elsewhere."""
        self._changed = True
        self._wake()

    def rebuild(self) -> None:
        """Throw the consumer away and make another, if there is one."""
        self._session.cancel()

    async def run(self) -> None:
        """Read until cancelled, with one consumer after the other."""
        while True:
            self._ask_about_logs()  # the last consumer may have been given up before that
            while not self._recovery.positions():
                await self._woken.wait()
            with trio.CancelScope() as self._session:
                try:
                    consumer = await self._host.consumer()
                    try:
                        await self._host.verify(self.topic_readers)
                        await self._read(consumer)
                    finally:
                        await consumer.close()
                except UnreachableError as error:
                    log.debug("kafka consumer given up", error=str(error))
                    self._host.probe_now()
                    await trio.sleep(self._backoff.next())
                except Exception as error:  # noqa: BLE001
                    # A fault of this plugin belongs to its sources, whose runner logs it and starts them
                    # again; it must not end the pool for all of them.
                    for topic_reader in self.topic_readers:
                        topic_reader.end(error)
                    await trio.sleep(self._backoff.next())

    async def _read(self, consumer: Consumer) -> None:
        # A change ends this consumer: a broker serves the requests of a connection one after the other,
        # so on the old connection the new fetch would wait until the old one is answered.
        await trio.sleep(_GATHER_CHANGES_S)
        self._changed = False
        consumer.on_arrived = partial(self._take, consumer)
        await consumer.assign(self._recovery.positions())
        while not self._changed:
            self._woken.clear()
            self._interval_ms = self._host.fetch_interval_ms()
            self._pace(consumer)
            try:
                await self._one_turn(consumer)
            except RECOVERABLE as error:
                await self._recovery.recover(consumer, error)
                if any(topic_reader.ended for topic_reader in self.topic_readers):
                    self._changed = True
            else:
                if self._unverified:
                    await self._verify_logs(consumer)

    async def _one_turn(self, consumer: Consumer) -> None:
        """Read what `_take` has left, and find out what is wrong. Ends early when it is woken."""
        with trio.CancelScope() as self._turn:
            if not (self._changed or self._woken.is_set):
                self._hand_over(await consumer.read(self._resting(), _WAIT_MS))

    def _take(self, consumer: Consumer) -> None:
        """Give what has come to its readers at once; it is called by what fetches."""
        self._hand_over(consumer.read_nowait(self._resting()))
        self._pace(consumer)
        if self._unverified:
            self._wake()

    def _pace(self, consumer: Consumer) -> None:
        """Say how soon more is fetched: the next record may have a subscriber by then, or none any more."""
        subscribed = any(topic_reader.has_subscription() for topic_reader in self.topic_readers)
        consumer.set_fetch_interval(self._interval_ms, 0 if subscribed else _UNSUBSCRIBED_MS)

    def _resting(self) -> list[TopicPartition]:
        # What a full reader's partitions have fetched stays in the client, and others go on.
        return [tp for topic_reader in self._full for tp in topic_reader.fetch_positions()]

    def _hand_over(self, fetched: dict[str, list[FetchedPartition]]) -> None:
        if self._changed:
            # A reader that has come meanwhile may be elsewhere in its topic; what is dropped comes again.
            return
        if fetched:
            self._backoff.reset()
        for topic, parts in fetched.items():
            topic_reader = self._by_topic[topic]
            self.records += topic_reader.accept(parts)
            if not topic_reader.has_capacity:
                self._full.add(topic_reader)
            if topic_reader.unverified:
                self._unverified.add(topic_reader)

    async def _verify_logs(self, consumer: Consumer) -> None:
        """Find out whether what came is of the same log, where there is any doubt."""
        try:
            await self._recovery.rewind(consumer)
        finally:
            self._ask_about_logs()

    def _ask_about_logs(self) -> None:
        for topic_reader in self._unverified:
            partitions, topic_reader.unverified = sorted(topic_reader.unverified), set()
            for partition in partitions:
                self._host.on_out_of_range(topic_reader, partition)
        self._unverified.clear()

    # --- details ---

    def _go_on(self, topic_reader: TopicReader) -> None:
        if topic_reader in self._full:
            self._full.remove(topic_reader)
            self._wake()

    def _wake(self) -> None:
        self._woken.set()
        if self._turn is not None:
            self._turn.cancel()


_nothing: Callable[[], None] = lambda: None  # noqa: E731
