"""The seam's lower side: aiokafka on an asyncio loop that runs inside Trio's thread."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import (
    Awaitable,
    Callable,
    Collection,
    Coroutine,
    Iterable,
    Mapping,
    Sequence,
)
from typing import Any, TypeVar

import aiokafka.errors as kafka_errors
import trio
from aiokafka import TopicPartition
from aiokafka.protocol.fetch import FetchRequest
from aiokafka.protocol.offset import OffsetRequest
from aiokafka.record.memory_records import MemoryRecords

from kiwi_kafka.aio_loop import Loop
from kiwi_kafka.client import LookingClient, LookingConsumer, connection_options
from kiwi_kafka.columns import Fetched
from kiwi_kafka.seam import (
    NO_ID,
    Consumer,
    DeniedError,
    Missing,
    Offsets,
    OutOfRangeError,
    Place,
    Scout,
    TooLargeError,
    TopicView,
    UndecodableError,
    UnreachableError,
)
from kiwi_kafka.settings import KafkaSettings
from kiwi_kafka.wire import RIGHTS_UNKNOWN, EpochEndsRequest, EpochsOfPartitions, TopicsRequest

T = TypeVar("T")

_BATCH_HEAD = 12  # bytes: offset and length, which come before what the length counts
_EARLIEST, _LATEST = -2, -1
_READ_RIGHT = 1 << 3  # Kafka's AclOperation.READ
_CLOSE_S = 2.0
_HISTORY_WAIT_MS = 100
_PATIENCE_MS = 500
_LOST = (kafka_errors.KafkaError, OSError, asyncio.CancelledError)
"""What the client raises when it cannot go on. It lets out the cancellation of a task of its own, too:
Trio's is another exception."""

_NEVER = (
    kafka_errors.TopicAuthorizationFailedError,
    kafka_errors.ClusterAuthorizationFailedError,
    kafka_errors.UnsupportedVersionError,
    kafka_errors.InvalidRequestError,
)
"""Errors of a partition that the same question meets again; what else there is passes."""


class AioTransport:
    """Scouts and consumers of one cluster. `loop` must be open as long as any of them is."""

    def __init__(self, loop: Loop, settings: KafkaSettings) -> None:
        self._loop = loop
        self._settings = settings
        self._ids: dict[str, bytes] = {}

    async def scout(self) -> Scout:
        within = self._settings.probe_timeout_ms

        async def opened() -> LookingClient:
            options = connection_options(self._settings) | {"request_timeout_ms": within}
            client = LookingClient(**options)
            await client.bootstrap()
            return client

        # Every server that is tried has `within` for connecting and again for its answer.
        client = await self._open(opened, 2 * within / 1000 * len(self._settings.servers))
        return AioScout(self._loop, client, within / 1000, self._ids)

    async def consumer(self, *, live: bool = True) -> Consumer:
        async def opened() -> LookingConsumer:
            consumer = LookingConsumer(self._settings, None if live else _HISTORY_WAIT_MS)
            try:
                await consumer.start()
            except BaseException:
                await consumer.stop()
                raise
            return consumer

        # The cluster has answered the scout before; connecting takes a few round trips.
        return AioConsumer(self._loop, await self._open(opened, 2 * self._settings.probe_timeout_ms / 1000))

    async def _open(self, opened: Callable[[], Coroutine[Any, Any, T]], within: float) -> T:
        try:
            with trio.fail_after(within):
                return await self._loop.run_aio_coroutine(opened())
        except trio.TooSlowError:
            asked = ", ".join(self._settings.servers)
            raise UnreachableError(f"no answer from {asked} within {within:g} s") from None
        except _LOST as error:
            raise UnreachableError(str(error) or type(error).__name__) from error


class AioScout:
    """ids: of topics, as they were last known; for all scouts of a cluster."""

    def __init__(self, loop: Loop, client: LookingClient, within: float, ids: dict[str, bytes]) -> None:
        self._ids = ids
        self._loop = loop
        self._client = client
        self._within = within
        self._answered: object = None

    async def describe(self, topics: Collection[str], rights: bool = False) -> dict[str, TopicView | Missing]:
        return await self._call(self._describe(sorted(topics), rights))

    async def starts(self, views: Collection[TopicView]) -> Offsets:
        return await self._call(self._offsets(views, _EARLIEST, 0))

    async def ends(self, views: Collection[TopicView], stable: bool) -> Offsets:
        return await self._call(self._offsets(views, _LATEST, int(stable)))

    async def epoch_ends(self, view: TopicView, epochs: Mapping[int, int]) -> Offsets:
        return await self._call(self._epoch_ends(view, epochs))

    async def since(self, views: Collection[TopicView], timestamp: int) -> Offsets:
        return await self._call(self._offsets(views, timestamp, 1))

    async def nothing_before(self, view: TopicView, place: Place, offset: int) -> int | None:
        return await self._call(self._nothing_before(view.leaders[place.partition], place, offset))

    async def unreadable(self, view: TopicView, place: Place, offset: int) -> tuple[int, int] | None:
        return await self._call(self._unreadable(view.leaders[place.partition], place, offset))

    async def close(self) -> None:
        await _close(self._loop, self._client.close)

    async def _call(self, asked: Coroutine[Any, Any, T]) -> T:
        try:
            # Every single request has the deadline `within` already; this is for several in a row.
            with trio.fail_after(2 * self._within):
                return await self._loop.run_aio_coroutine(asked)
        except trio.TooSlowError:
            raise UnreachableError(f"no broker answered within {2 * self._within:g} s") from None
        except _LOST as error:
            raise UnreachableError(str(error) or type(error).__name__) from error

    # What follows runs in asyncio.

    async def _describe(self, topics: list[str], rights: bool) -> dict[str, TopicView | Missing]:
        views = await self._views(topics, rights)
        # Another id ends all positions in a topic, and nothing shows whether it was damaged on its way: so it
        # must come twice.
        new = {name: one for name, view in views.items() if (one := self._new_id(view)) is not None}
        if new:
            again = await self._views(list(new), rights)
            for name, view in again.items():
                if self._new_id(view) not in (None, new[name]):
                    raise kafka_errors.KafkaConnectionError(f"the answers about topic {name!r} differ")
                if isinstance(view, TopicView) and view.id != NO_ID:
                    self._ids[name] = view.id
            views |= again
        return views

    async def _views(self, topics: list[str], rights: bool) -> dict[str, TopicView | Missing]:
        response = await self._ask_any(TopicsRequest(topics, rights))
        views = dict(map(_view, response.to_object()["topics"]))
        if missing := set(topics) - views.keys():
            raise kafka_errors.KafkaConnectionError(f"an answer says nothing about {', '.join(missing)}")
        return views

    def _new_id(self, view: TopicView | Missing) -> bytes | None:
        """The topic's id, if it is not the one that is known."""
        if isinstance(view, Missing) or view.id in (NO_ID, self._ids.get(view.name)):
            return None
        return view.id

    async def _ask_any(self, request: Any) -> Any:
        brokers = sorted(broker.nodeId for broker in self._client.cluster.brokers())
        brokers.sort(key=lambda node: node != self._answered)  # the one that answered last comes first
        last: Exception | None = None
        for node in brokers:
            try:
                answer = await self._client.send(node, request)
            except kafka_errors.KafkaError as error:
                last = error  # the next one may answer
            else:
                self._answered = node
                return answer
        raise last or kafka_errors.KafkaConnectionError("no broker is known")

    async def _offsets(self, views: Collection[TopicView], which: int, isolation: int) -> Offsets:
        by_node: dict[int, dict[str, list[tuple[int, int]]]] = defaultdict(lambda: defaultdict(list))
        for view in views:
            for partition, leader in view.leaders.items():
                if leader >= 0:
                    by_node[leader][view.name].append((partition, which))
        answers = await self._ask_each(
            {node: OffsetRequest(-1, isolation, list(asked.items())) for node, asked in by_node.items()}
        )
        known: dict[Place, int] = {}
        silent: set[int] = set()
        for node, answer in answers.items():
            if isinstance(answer, kafka_errors.KafkaError):
                silent.add(node)
            else:
                known.update(_offsets_of(answer))
        return Offsets(known, frozenset(silent))

    async def _ask_each(self, requests: Mapping[int, Any]) -> dict[int, Any]:
        """Ask these nodes at the same time. Their answers; KafkaErrors for those that give none."""
        answers = await asyncio.gather(
            *(self._client.send(node, request) for node, request in requests.items()), return_exceptions=True
        )
        for answer in answers:
            if isinstance(answer, BaseException) and not isinstance(answer, kafka_errors.KafkaError):
                raise answer
        return dict(zip(requests, answers, strict=True))

    async def _epoch_ends(self, view: TopicView, epochs: Mapping[int, int]) -> Offsets:
        by_node: dict[int, EpochsOfPartitions] = defaultdict(list)
        for partition, epoch in epochs.items():
            if view.leaders.get(partition, -1) >= 0:
                # With the epoch of its leader: one that is no longer, or not yet, that says so instead.
                current = view.epochs.get(partition, -1)
                by_node[view.leaders[partition]].append((partition, current, epoch))
        known: dict[Place, int] = {}
        mute: dict[Place, str] = {}
        silent: set[int] = set()
        requests = {node: EpochEndsRequest(view.name, asked) for node, asked in by_node.items()}
        for node, answer in (await self._ask_each(requests)).items():
            if isinstance(answer, kafka_errors.IncompatibleBrokerVersion):
                mute.update((Place(view.name, partition), str(answer)) for partition, _, _ in by_node[node])
                continue
            if isinstance(answer, kafka_errors.KafkaError):
                silent.add(node)
                continue
            for topic, partitions in answer.topics:
                for code, partition, _, end in partitions:
                    error = kafka_errors.for_code(code)
                    if error is kafka_errors.NoError:
                        known[Place(topic, partition)] = end
                    elif error in _NEVER:
                        mute[Place(topic, partition)] = error.description
        return Offsets(known, frozenset(silent), mute)

    async def _nothing_before(self, leader: int, place: Place, offset: int) -> int | None:
        # A leader that has a batch from there on answers with it, whatever its size. One that has none
        # waits, and then answers with nothing, and with the end of what is committed. So it does, though
        # at once, when it slows us down on purpose.
        asked = [(place.topic, [(place.partition, offset, 1)])]
        response = await self._client.send(leader, FetchRequest(_PATIENCE_MS, 1, 1, 1, asked))
        if response.API_VERSION < 4 or response.throttle_time_ms:
            return None
        for _, partitions in response.topics:
            for _, error_code, _, stable_end, *rest in partitions:
                if error_code == 0 and not rest[-1]:
                    return int(stable_end)
        return None

    async def _unreadable(self, leader: int, place: Place, offset: int) -> tuple[int, int] | None:
        data = await self._raw(leader, place, offset)
        found = first_unreadable(data)
        if found is None:
            return None
        # Skipping loses records. What the log holds is the same every time; what was damaged on its way to
        # us is not, and is not to be skipped.
        first, behind, size = found
        again = await self._raw(leader, place, offset)
        return (first, behind) if again[:size] == data[:size] else None

    async def _raw(self, leader: int, place: Place, offset: int) -> bytes:
        asked = [(place.topic, [(place.partition, offset, 1024 * 1024)])]
        response = await self._client.send(leader, FetchRequest(0, 1, 1024 * 1024, 0, asked))
        return b"".join(bytes(rest[-1]) for _, parts in response.topics for _, _, _, *rest in parts)


class AioConsumer:
    def __init__(self, loop: Loop, consumer: LookingConsumer) -> None:
        self._loop = loop
        self._consumer = consumer

    async def assign(self, positions: Mapping[Place, int]) -> None:
        async def assigned() -> None:
            # One step for asyncio: no fetch sees the assignment without its positions.
            self._consumer.assign([TopicPartition(*place) for place in positions])
            for place, offset in positions.items():
                self._consumer.seek(TopicPartition(*place), offset)

        await self._run(assigned())

    async def seek(self, positions: Mapping[Place, int]) -> None:
        async def sought() -> None:
            for place, offset in positions.items():
                self._consumer.seek(TopicPartition(*place), offset)

        await self._run(sought())

    async def pause(self, places: Collection[Place]) -> None:
        async def paused() -> None:
            self._consumer.pause(*_partitions(places))

        await self._run(paused())

    async def resume(self, positions: Mapping[Place, int]) -> None:
        async def resumed() -> None:
            for place, offset in positions.items():
                self._consumer.seek(TopicPartition(*place), offset)
            self._consumer.resume(*_partitions(positions))

        await self._run(resumed())

    async def positions(self, places: Collection[Place]) -> dict[Place, int]:
        async def asked() -> dict[Place, int]:
            return {place: await self._consumer.position(TopicPartition(*place)) for place in places}

        return await self._run(asked())

    async def _run(self, work: Coroutine[Any, Any, T]) -> T:
        try:
            return await self._loop.run_aio_coroutine(work)
        except _LOST as error:
            raise UnreachableError(str(error) or type(error).__name__) from error

    async def read(
        self, only: Sequence[Place], wait_ms: int, max_records: int | None = None
    ) -> dict[str, list[Fetched]]:
        try:
            return await self._loop.run_aio_coroutine(self._read(_partitions(only), wait_ms, max_records))
        except kafka_errors.OffsetOutOfRangeError as error:
            raise OutOfRangeError({Place(*tp): offset for tp, offset in error.args[0].items()}) from error
        except kafka_errors.RecordTooLargeError as error:
            raise TooLargeError(Place(*error.args[1]), error.args[2]) from error
        except kafka_errors.TopicAuthorizationFailedError as error:
            raise DeniedError(str(error.args[0])) from error
        except kafka_errors.CorruptRecordException as error:
            raise UndecodableError(str(error)) from error
        except _LOST as error:
            raise UnreachableError(str(error) or type(error).__name__) from error
        except Exception as error:
            # A decompressor's own exception, or what a nonsensical record made the decoder do.
            raise UndecodableError(f"{type(error).__name__}: {error}") from error

    async def _read(
        self, only: Sequence[TopicPartition], wait_ms: int, max_records: int | None
    ) -> dict[str, list[Fetched]]:
        fetched = await self._consumer.getmany(*only, timeout_ms=wait_ms, max_records=max_records)
        if self._consumer.missed:
            # Nothing of it counts: it may be from a new topic of the same name.
            raise kafka_errors.UnknownTopicOrPartitionError("a topic is not there")
        # From here on nothing suspends, so that a cancellation cannot lose what was fetched.
        by_topic: dict[str, list[Fetched]] = {}
        for place, records in fetched.items():
            behind = await self._consumer.position(place)
            epoch = self._consumer.epoch_before(place, behind)
            by_topic.setdefault(place.topic, []).append(Fetched(place.partition, records, behind, epoch))
        return by_topic

    def gather(self, wait_ms: int) -> None:
        self._consumer.gather(wait_ms)

    async def close(self) -> None:
        await _close(self._loop, self._consumer.stop)


async def _close(loop: Loop, close: Callable[[], Awaitable[None]]) -> None:
    async def closed() -> None:
        await close()

    with trio.move_on_after(_CLOSE_S, shield=True):
        await loop.run_aio_coroutine(closed())


def _partitions(places: Iterable[Place]) -> list[TopicPartition]:
    return [TopicPartition(*place) for place in places]


def _view(topic: Mapping[str, Any]) -> tuple[str, TopicView | Missing]:
    name, code = topic["topic"], topic["error_code"]
    error = kafka_errors.for_code(code)
    if error in (kafka_errors.NoError, kafka_errors.LeaderNotAvailableError) and topic["partitions"]:
        leaders = {part["partition"]: part["leader"] for part in topic["partitions"]}
        rights = topic.get("operations", RIGHTS_UNKNOWN)
        readable = None if rights == RIGHTS_UNKNOWN else bool(rights & _READ_RIGHT)
        parts = topic["partitions"]
        epochs = {part["partition"]: part["leader_epoch"] for part in parts if "leader_epoch" in part}
        topic_id = topic.get("topic_id", NO_ID)
        return name, TopicView(name, topic_id, dict(sorted(leaders.items())), readable, epochs)
    return name, Missing(name, denied=error is kafka_errors.TopicAuthorizationFailedError)


def _offsets_of(response: Any) -> dict[Place, int]:
    return {
        Place(topic, partition): offset
        for topic, partitions in response.topics
        for partition, error_code, _timestamp, offset in partitions
        if error_code == 0
    }


def first_unreadable(data: bytes) -> tuple[int, int, int] | None:
    """First and next offset of the first batch that cannot be decoded, and where in `data` it ends."""
    records = MemoryRecords(data)
    end = 0
    while records.has_next():
        end += _BATCH_HEAD + int.from_bytes(data[end + 8 : end + _BATCH_HEAD], "big")
        batch = records.next_batch()
        bounds = (batch.base_offset, batch.next_offset, end)
        try:
            if not batch.validate_crc():
                return bounds
            for _ in batch:
                pass
        except Exception:  # noqa: BLE001  (whatever the decoder raises is what is looked for)
            return bounds
    return None
