"""Writes to one topic, so that nothing is doubled or changes places, and says of each record what became
of it.

The producer is an idempotent one (KIP-98): a batch keeps its number until an answer says what became of it,
so sending it again writes it once. Where no answer came until the end, nobody may know that number again: a
new producer id makes sure that no later record is refused for it.
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final

import trio
from aiokafka import errors as kafka_errors

from kiwi_gw.api import Outgoing
from kiwi_kafka.client.brokers import Brokers
from kiwi_kafka.client.connection import BrokerConnection
from kiwi_kafka.client.errors import readable
from kiwi_kafka.client.outgoing_batch import OutgoingBatch, RecordSequence
from kiwi_kafka.client.pending_records import PendingRecords, Result
from kiwi_kafka.client.requests import InitProducerIdRequest, ProduceRequest
from kiwi_kafka.ports import MissingTopic, UnreachableError

_ALL_IN_SYNC: Final = -1
_NO_TIMEOUT: Final = 2**31 - 1  # of transactions: there are none
_LARGEST: Final = 2**31 - 1
_MISSING_SECONDS: Final = 1.0
"""A topic that is not there may be one that its broker, just started, does not know yet."""
_TRUSTED_SECONDS: Final = 60.0
"""A connection that was not used for so long is opened anew: of what is sent into a dead one nobody knows."""

_STUCK_SECONDS: Final = 0.5
"""How long a partition is tried that could not be written in all the time of the call before: others wait."""

_INVALID_RECORD: Final = 87
_RECORD_ERRORS: Final = 5  # in what an answer says of a partition, from version 8 on
_TOO_LARGE = (kafka_errors.MessageSizeTooLargeError, kafka_errors.RecordListTooLargeError)
_UNFIT = (*_TOO_LARGE, kafka_errors.InvalidTimestampError, kafka_errors.CorruptRecordException)
"""A record of the batch is not taken; others may be."""
_DENIED = (
    kafka_errors.TopicAuthorizationFailedError,
    kafka_errors.ClusterAuthorizationFailedError,
    kafka_errors.InvalidTopicError,
    kafka_errors.PolicyViolationError,
)
_ANOTHER_SEQUENCE = (
    kafka_errors.OutOfOrderSequenceNumber,
    kafka_errors.DuplicateSequenceNumber,
    kafka_errors.InvalidProducerEpoch,
    kafka_errors.UnknownProducerId,
)
_MAYBE_WRITTEN = (
    kafka_errors.NotEnoughReplicasAfterAppendError,
    kafka_errors.RequestTimedOutError,
    kafka_errors.KafkaStorageError,
    kafka_errors.UnknownError,
)


class _RefusedError(Exception):
    """Say why nothing can be written, whatever is tried."""


class TopicProducer:
    """Write to one topic, over connections of its own. Used by one task at a time.

    open_brokers: as `Brokers.bootstrap`. retry: seconds after which it is tried again. refresh: how often it
    is looked who leads the partitions, and how many there are.
    """

    def __init__(
        self, topic: str, open_brokers: Callable[[], Awaitable[Brokers]], *, retry: float, refresh: float
    ) -> None:
        self._topic = topic
        self._open_brokers = open_brokers
        self._retry, self._refresh = retry, refresh
        self._brokers: Brokers | None = None
        self._is_closed = False
        self._connections: dict[int, tuple[BrokerConnection, float]] = {}
        self._leaders: dict[int, int] = {}
        self._look_at = 0.0
        self._producer: tuple[int, int] | None = None
        self._sequences: dict[int, int] = {}
        self._stuck: set[int] = set()  # partitions that could not be written for all the time they had

    async def produce(self, records: Sequence[Outgoing], within: float) -> list[Result]:
        """Write them, in order. Returns what became of each within so many seconds."""
        pending = PendingRecords(records)
        try:
            with trio.move_on_after(within) as scope:
                await self._write(pending, scope.deadline)
        except _RefusedError as refused:
            pending.problem, pending.retriable = str(refused), False
        except BaseException:
            self._forget_producer()
            raise
        self._stuck |= set(pending.waiting)
        results = pending.finish()
        if pending.doubted:
            self._forget_producer()
        return results

    def close(self) -> None:
        """Close its connections for good."""
        self._is_closed = True
        self._disconnect()

    # --- inside ----------------------------------------------------------------------------

    def _disconnect(self) -> None:
        for connection, _ in self._connections.values():
            connection.close()
        self._connections.clear()
        if self._brokers is not None:
            self._brokers.close()
            self._brokers = None

    async def _write(self, pending: PendingRecords, deadline: float) -> None:
        began = trio.current_time()
        while True:
            try:
                ready = await self._prepare(pending, patient=trio.current_time() < began + _MISSING_SECONDS)
            except (UnreachableError, kafka_errors.KafkaError) as error:
                if isinstance(error, UnreachableError):
                    self._disconnect()
                pending.problem = "the Kafka cluster does not answer"
                ready = False
            if ready:
                by_node = self._by_leader(pending)
                done = await self._send_round(by_node, pending, deadline)
                if not pending.waiting:
                    return
                if done:
                    continue
                if self._stuck >= pending.waiting.keys() and trio.current_time() >= began + _STUCK_SECONDS:
                    return
            self._look_at = 0.0
            await trio.sleep(self._retry)

    async def _prepare(self, pending: PendingRecords, *, patient: bool) -> bool:
        """Find out who leads the partitions, and get a producer id. Returns whether it is known by now.
        Raises _RefusedError, UnreachableError, KafkaError."""
        if self._is_closed:
            raise _RefusedError("the source has ended")
        if self._brokers is None:
            self._brokers = await self._open_brokers()
        if trio.current_time() >= self._look_at:
            info = (await self._brokers.describe([self._topic]))[self._topic]
            if isinstance(info, MissingTopic):
                if info.denied:
                    raise _RefusedError("this gateway has no right to write there")
                pending.problem = "there is no such topic"
                if not patient:
                    raise _RefusedError(pending.problem)
                return False
            self._leaders = dict(info.leaders)
            self._look_at = trio.current_time() + self._refresh
        if self._producer is None:
            answer = await self._brokers.ask_any(InitProducerIdRequest(None, _NO_TIMEOUT))
            error = kafka_errors.for_code(answer.error_code)
            if error in _DENIED:
                raise _RefusedError("this gateway has no right to write there")
            if answer.error_code:
                pending.problem = error.description
                return False
            self._producer = answer.producer_id, answer.producer_epoch
            self._sequences = {}
        await pending.place(self._leaders)
        return True

    def _by_leader(self, pending: PendingRecords) -> dict[int, list[OutgoingBatch]]:
        """Find what is to be sent next: of each partition one batch."""
        by_node: dict[int, list[OutgoingBatch]] = {}
        for partition, batches in pending.waiting.items():
            leader = self._leaders.get(partition, -1)
            if leader >= 0:
                by_node.setdefault(leader, []).append(batches[0])
            else:
                pending.problem = f"partition {partition} has no leader"
        return by_node

    async def _send_round(
        self, by_node: dict[int, list[OutgoingBatch]], pending: PendingRecords, deadline: float
    ) -> bool:
        """Have each leader take one batch of its partitions. Returns whether all went well."""
        went_well = [bool(by_node)]

        async def send(node: int) -> None:
            went_well.append(await self._send(node, by_node[node], pending, deadline))

        if len(by_node) == 1:
            await send(next(iter(by_node)))
        else:
            async with trio.open_nursery() as nursery:
                for node in by_node:
                    nursery.start_soon(send, node)
        return all(went_well)

    async def _send(
        self, node: int, batches: list[OutgoingBatch], pending: PendingRecords, deadline: float
    ) -> bool:
        assert self._producer is not None  # noqa: S101  `_prepare` has seen to it
        connection = None
        patience = (
            _STUCK_SECONDS if self._stuck.issuperset(batch.partition for batch in batches) else math.inf
        )
        try:
            with trio.move_on_after(patience):
                connection = await self._connected(node)
        except UnreachableError:
            connection = None
        if connection is None:
            pending.problem = "the leader of the partition does not answer"
            return False
        before = {batch.partition: batch.in_doubt for batch in batches}
        data = []
        for batch in batches:
            sequence = RecordSequence(*self._producer, self._sequences.get(batch.partition, 0))
            data.append((batch.partition, batch.encode(sequence)))
            batch.in_doubt = True
        timeout = max(1, round((deadline - trio.current_time()) * 900))
        try:
            answer = await connection.ask(ProduceRequest(_ALL_IN_SYNC, timeout, [(self._topic, data)]))
            with readable():
                parts = {part[0]: part for _, parts in answer.topics for part in parts}
        except UnreachableError:
            pending.problem = "the leader of the partition does not answer"
            return False
        except kafka_errors.IncompatibleBrokerVersion as error:
            for batch in batches:
                batch.in_doubt = before[batch.partition]
                pending.unwritten(batch, str(error), retriable=False)
            return True
        well = True
        for batch in batches:
            well &= self._judge(batch, parts, before[batch.partition], pending)
        return well

    def _judge(
        self, batch: OutgoingBatch, parts: dict[int, Any], before: bool, pending: PendingRecords
    ) -> bool:
        """Note what a leader says of a batch. Returns whether it is dealt with. before: whether it was in
        doubt before it was sent this time."""
        if (part := parts.get(batch.partition)) is None:
            return False
        code, offset = part[1], part[2]
        error = kafka_errors.for_code(code)
        if error is kafka_errors.NoError:
            pending.written(batch, offset)
            self._stuck.discard(batch.partition)
            first = self._sequences.get(batch.partition, 0)
            self._sequences[batch.partition] = (first + len(batch.places)) & _LARGEST
            return True
        pending.problem = error.description
        if code == _INVALID_RECORD or error in _UNFIT:
            batch.in_doubt = before
            words = "too large" if error in _TOO_LARGE else error.description
            pending.unfit(batch, words, _named(part))
        elif error in _DENIED:
            batch.in_doubt = before
            pending.unwritten(batch, "this gateway has no right to write there", retriable=False)
        elif error in _ANOTHER_SEQUENCE:
            batch.in_doubt = before or error is kafka_errors.DuplicateSequenceNumber
            # Whatever else was sent under the old id cannot be sent again under a new one.
            pending.give_up_doubtful()
            self._forget_producer()
        elif error not in _MAYBE_WRITTEN:
            batch.in_doubt = before
            return False
        else:
            return False
        return True

    async def _connected(self, node: int) -> BrokerConnection:
        connection, used = self._connections.get(node, (None, 0.0))
        now = trio.current_time()
        if connection is not None and (not connection.is_open or now - used > _TRUSTED_SECONDS):
            connection.close()
            connection = None
        if connection is None:
            if self._brokers is None:
                raise UnreachableError("the client is closed")
            connection = await self._brokers.connect(node)
        self._connections[node] = connection, now
        return connection

    def _forget_producer(self) -> None:
        self._producer = None
        self._sequences = {}


def _named(part: Sequence[Any]) -> frozenset[int]:
    """Return the records that an answer names as those that are at fault, by their places in the batch
    (KIP-467); none where it names none, or is of a version that does not."""
    errors = part[_RECORD_ERRORS] if len(part) > _RECORD_ERRORS else ()
    return frozenset(index for index, _ in errors or ())
