"""What becomes of records by what leaders answer, without any."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest
import trio
from aiokafka.errors import InvalidTimestampError
from aiokafka.record.memory_records import MemoryRecords
from trio.testing import MockClock

from kiwi_gw.api import Outgoing, Published, Unpublished
from kiwi_kafka.client import pending_records
from kiwi_kafka.client.outgoing_batch import partition_of
from kiwi_kafka.client.pending_records import PendingRecords
from kiwi_kafka.client.producer import TopicProducer
from kiwi_kafka.ports import MissingTopic, TopicDescription, UnreachableError

OK, NOT_LEADER, TIMED_OUT, TOO_LARGE, TOO_FEW, MAYBE, DENIED, OUT_OF_ORDER = 0, 6, 7, 10, 19, 20, 29, 45
TIMESTAMP = InvalidTimestampError.errno

Batch = tuple[int, int, int, list[bytes | None]]  # producer, epoch, sequence and values


@dataclass
class Cluster:
    """Leaders that keep what they are sent, once, as Kafka does. says: what is answered next, by partition,
    in spite of that: a code, or an error that comes when the batch was kept. frozen: nodes that do not
    answer. most: records that a batch may have. latest: timestamp that one may have; names: whether it says
    which have later ones."""

    leaders: dict[int, int] = field(default_factory=lambda: {0: 1, 1: 2})
    says: dict[int, list[int | Exception]] = field(default_factory=dict)
    frozen: set[int] = field(default_factory=set)
    logs: dict[int, list[bytes | None]] = field(default_factory=dict)
    batches: list[tuple[int, Batch]] = field(default_factory=list)
    most: int = 1_000_000
    latest: int = 2**63 - 1
    names: bool = True
    producers: int = 0
    denied: bool = False
    _kept: dict[tuple[int, int, int], int] = field(default_factory=dict)

    # --- as `Brokers` ---

    async def describe(self, topics: Collection[str]) -> dict[str, TopicDescription | MissingTopic]:
        await trio.lowlevel.checkpoint()
        (name,) = topics
        if self.denied or not self.leaders:
            return {name: MissingTopic(name, self.denied)}
        return {name: TopicDescription(name, bytes(16), dict(self.leaders))}

    async def ask_any(self, request: Any) -> Any:
        await trio.lowlevel.checkpoint()
        self.producers += 1
        return SimpleNamespace(error_code=0, producer_id=self.producers, producer_epoch=0)

    async def connect(self, node: int) -> Any:
        await trio.lowlevel.checkpoint()
        if node in self.frozen:
            await trio.sleep_forever()
        return _Connection(self, node)

    def close(self) -> None:
        pass

    # --- as a leader ---

    def take(self, partition: int, data: bytes) -> tuple[int, int, Any]:
        (batch,) = [MemoryRecords(data).next_batch()]
        rows = list(batch)
        values = [record.value for record in rows]
        key = partition, batch.producer_id, batch.base_sequence
        self.batches.append((partition, (batch.producer_id, 0, batch.base_sequence, values)))
        said = self.says.get(partition) or [OK]
        answer = said.pop(0)
        if isinstance(answer, int) and answer not in (OK, MAYBE, TIMED_OUT):
            return answer, -1, None
        if len(values) > self.most:
            return TOO_LARGE, -1, None
        if late := [(at, "late") for at, record in enumerate(rows) if record.timestamp > self.latest]:
            return TIMESTAMP, -1, [*late, (1_000, "what")] if self.names else None
        log = self.logs.setdefault(partition, [])
        if key not in self._kept:
            self._kept[key] = len(log)
            log += values
        if isinstance(answer, Exception):
            raise answer
        return answer, self._kept[key], None


@dataclass
class _Connection:
    cluster: Cluster
    node: int
    is_open: bool = True

    async def ask(self, request: Any) -> Any:
        await trio.lowlevel.checkpoint()
        if self.node in self.cluster.frozen:
            await trio.sleep_forever()
        try:
            parts = [
                (partition, code, offset, -1, 0, errors, None)
                for _, batches in request._topics
                for partition, data in batches
                for code, offset, errors in [self.cluster.take(partition, data)]
            ]
        except UnreachableError:
            self.close()
            raise
        return SimpleNamespace(topics=[("t", parts)])

    def close(self) -> None:
        self.is_open = False


def producer_on(cluster: Cluster) -> TopicProducer:
    async def opened() -> Any:
        await trio.lowlevel.checkpoint()
        return cluster

    return TopicProducer("t", opened, retry=0.1, refresh=30)


def records(*values: bytes, partition: int = 0) -> list[Outgoing]:
    return [Outgoing(None, value, partition=partition) for value in values]


DOUBT = Unpublished("not known whether it was written", retriable=True, known=False)


@pytest.mark.parametrize("said", [NOT_LEADER, TIMED_OUT, TOO_FEW, MAYBE, UnreachableError("gone")], ids=str)
async def test_what_may_pass_is_tried_again_and_written_once(
    autojump_clock: MockClock, said: int | Exception
) -> None:
    cluster = Cluster(says={0: [said, said]})
    producer = producer_on(cluster)
    assert await producer.produce(records(b"a", b"b"), 4) == [Published(0, 0), Published(0, 1)]
    assert await producer.produce(records(b"c"), 4) == [Published(0, 2)]
    assert cluster.logs == {0: [b"a", b"b", b"c"]}
    assert [batch[:3] for _, batch in cluster.batches] == [(1, 0, 0)] * 3 + [(1, 0, 2)]


@pytest.mark.parametrize(
    ("said", "known"), [(NOT_LEADER, True), (TOO_FEW, True), (MAYBE, False), (TIMED_OUT, False)]
)
async def test_what_does_not_pass_is_unwritten_or_in_doubt(
    autojump_clock: MockClock, said: int, known: bool
) -> None:
    cluster = Cluster(says={0: [said] * 1000})
    producer = producer_on(cluster)
    (result,) = await producer.produce(records(b"a"), 2)
    assert isinstance(result, Unpublished)
    assert (result.known, result.retriable) == (known, True)
    assert result.message.startswith("not written: " if known else "not known")
    cluster.says = {}
    (result,) = await producer.produce(records(b"b"), 2)
    assert isinstance(result, Published)
    # Nobody knows the number of what is in doubt: another producer goes on.
    assert cluster.batches[-1][1][0] == (1 if known else 2)


async def test_a_batch_that_is_too_large_is_cut(autojump_clock: MockClock) -> None:
    cluster = Cluster(most=3)
    values = [b"%d" % n for n in range(10)]
    results = await producer_on(cluster).produce(records(*values), 4)
    assert results == [Published(0, n) for n in range(10)]
    assert cluster.logs == {0: values}


@pytest.mark.parametrize("names", [True, False])
@pytest.mark.parametrize("every", [1, 2])
async def test_a_batch_is_sent_again_without_what_its_leader_says_is_at_fault(
    autojump_clock: MockClock, names: bool, every: int
) -> None:
    """At once: to look for it by halves takes as many requests as there are records."""
    cluster = Cluster(latest=1_000, names=names)
    given = [Outgoing(None, b"%d" % n, (), 2_000 if n % every == 0 else 1_000, 0) for n in range(200)]
    results = await producer_on(cluster).produce(given, 4)
    good = [n for n in range(200) if n % every]
    late = Unpublished(f"not written: {InvalidTimestampError.description}", retriable=False, known=True)
    assert results == [Published(0, good.index(n)) if n % every else late for n in range(200)]
    assert cluster.logs.get(0, []) == [b"%d" % n for n in good]
    assert (len(cluster.batches) <= 2) is names


async def test_a_number_that_the_leader_does_not_know_is_another_producers(autojump_clock: MockClock) -> None:
    cluster = Cluster(says={0: [OK, OUT_OF_ORDER]})
    producer = producer_on(cluster)
    await producer.produce(records(b"a"), 4)
    assert await producer.produce(records(b"b"), 4) == [Published(0, 1)]
    assert [batch[:3] for _, batch in cluster.batches] == [(1, 0, 0), (1, 0, 1), (2, 0, 0)]


async def test_what_was_in_doubt_then_stays_so(autojump_clock: MockClock) -> None:
    cluster = Cluster(says={0: [UnreachableError("gone"), OUT_OF_ORDER]})
    producer = producer_on(cluster)
    assert await producer.produce(records(b"a"), 4) == [DOUBT]
    assert len(cluster.batches) == 2


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda cluster: cluster.leaders.clear(), "there is no such topic"),
        (lambda cluster: setattr(cluster, "denied", True), "no right"),
        (lambda cluster: cluster.says.update({0: [DENIED]}), "no right"),
    ],
)
async def test_what_never_passes(
    autojump_clock: MockClock, change: Callable[[Cluster], None], words: str
) -> None:
    cluster = Cluster()
    change(cluster)
    (result,) = await producer_on(cluster).produce(records(b"a"), 4)
    assert isinstance(result, Unpublished)
    assert words in result.message
    assert result.known
    assert not result.retriable


async def test_a_leader_that_is_away_holds_up_the_others_once(autojump_clock: MockClock) -> None:
    cluster = Cluster(frozen={2})
    producer = producer_on(cluster)
    for patience in (4.0, 1.2, 1.2):
        began = trio.current_time()
        one, other = await producer.produce([*records(b"a"), *records(b"b", partition=1)], 4)
        assert isinstance(one, Published)
        assert isinstance(other, Unpublished)
        assert other.known
        assert trio.current_time() - began <= patience
    cluster.frozen.clear()
    assert await producer.produce(records(b"c", partition=1), 4) == [Published(1, 0)]
    assert cluster.logs[1] == [b"c"]


async def test_who_is_cancelled_leaves_its_number_to_nobody(autojump_clock: MockClock) -> None:
    cluster = Cluster()
    producer = producer_on(cluster)
    await producer.produce(records(b"a"), 4)
    cluster.frozen = {1}
    with trio.move_on_after(1):
        await producer.produce(records(b"b"), 4)
    cluster.frozen = set()
    assert isinstance((await producer.produce(records(b"c"), 4))[0], Published)
    assert cluster.batches[-1][1][0] == 2


async def test_long_keys_are_hashed_while_others_have_their_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    """A megabyte takes a tenth of a second, and as much of many keys no less."""
    hashed: list[tuple[int, bool]] = []

    def noted(key: bytes, partitions: int) -> int:
        hashed.append((len(key), threading.current_thread() is threading.main_thread()))
        return partition_of(key, partitions)

    monkeypatch.setattr(pending_records, "partition_of", noted)
    keys = [b"k", bytes(9_000), *(bytes(3_000) for _ in range(4))]
    pending = PendingRecords([Outgoing(key, b"") for key in keys])
    await pending.place([0, 1, 2])
    assert hashed == [(1, True), (9_000, False), *[(3_000, True)] * 2, (3_000, False), (3_000, True)]
    places = {place: partition for partition, (batch,) in pending.waiting.items() for place in batch.places}
    assert [places[place] for place in range(len(keys))] == [partition_of(key, 3) for key in keys]
