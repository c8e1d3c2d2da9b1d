"""The admin client on aiokafka: asks brokers about topics and offsets, and creates nothing."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Collection, Coroutine, Mapping
from typing import Any, TypeVar

from aiokafka import errors as kafka_errors

from kiwi_kafka.client.asyncio_loop import AsyncioLoop, close
from kiwi_kafka.client.errors import deadline
from kiwi_kafka.client.internals import (
    NO_REPLICA,
    RIGHTS_UNKNOWN,
    FetchRequest,
    OffsetForLeaderEpochRequest,
    OffsetRequest,
    ReadOnlyClient,
    TopicMetadataRequest,
    first_corrupt_batch,
)
from kiwi_kafka.ports import NO_ID, MissingTopic, OffsetsResult, TopicDescription, TopicPartition

T = TypeVar("T")

_EARLIEST, _LATEST = -2, -1
_READ_RIGHT = 1 << 3  # Kafka's AclOperation.READ
_PATIENCE_MS = 500
_FIRST_WITH_STABLE_OFFSET = 4  # version of the answer to a fetch

_NEVER = (
    kafka_errors.TopicAuthorizationFailedError,
    kafka_errors.ClusterAuthorizationFailedError,
    kafka_errors.UnsupportedVersionError,
    kafka_errors.InvalidRequestError,
)
"""Errors of a partition that the same question meets again; what else there is passes."""


class AioAdminClient:
    """Implement `AdminClient`. ids: the last known ids of topics, for all admin clients of a cluster."""

    def __init__(
        self, loop: AsyncioLoop, client: ReadOnlyClient, within: float, ids: dict[str, bytes]
    ) -> None:
        self._ids = ids
        self._loop = loop
        self._client = client
        self._within = within
        self._answered: object = None

    async def describe_topics(
        self, topics: Collection[str], rights: bool = False
    ) -> dict[str, TopicDescription | MissingTopic]:
        return await self._call(self._describe(sorted(topics), rights))

    async def beginning_offsets(self, infos: Collection[TopicDescription]) -> OffsetsResult:
        return await self._call(self._offsets(infos, _EARLIEST, 0))

    async def end_offsets(self, infos: Collection[TopicDescription], stable: bool) -> OffsetsResult:
        return await self._call(self._offsets(infos, _LATEST, int(stable)))

    async def epoch_end_offsets(self, info: TopicDescription, epochs: Mapping[int, int]) -> OffsetsResult:
        return await self._call(self._epoch_end_offsets(info, epochs))

    async def offsets_for_time(self, infos: Collection[TopicDescription], timestamp: int) -> OffsetsResult:
        return await self._call(self._offsets(infos, timestamp, 1))

    async def end_if_empty(self, info: TopicDescription, tp: TopicPartition, offset: int) -> int | None:
        return await self._call(self._end_if_empty(info.leaders[tp.partition], tp, offset))

    async def find_corrupt_batch(
        self, info: TopicDescription, tp: TopicPartition, offset: int
    ) -> tuple[int, int] | None:
        return await self._call(self._find_corrupt_batch(info.leaders[tp.partition], tp, offset))

    async def close(self) -> None:
        await close(self._loop, self._client.close)

    async def _call(self, asked: Coroutine[Any, Any, T]) -> T:
        # Every single request has the deadline `within` already; this is for several in a row.
        within = 2 * self._within
        with deadline(within, f"no broker answered within {within:g} s"):
            return await self._loop.run_aio_coroutine(asked)

    # What follows runs in asyncio.

    async def _describe(self, topics: list[str], rights: bool) -> dict[str, TopicDescription | MissingTopic]:
        infos = await self._infos(topics, rights)
        # Another id ends all positions in a topic, and nothing shows whether it was damaged on its way: so it
        # must come twice.
        new = {name: one for name, info in infos.items() if (one := self._new_id(info)) is not None}
        if new:
            again = await self._infos(list(new), rights)
            for name, info in again.items():
                if self._new_id(info) not in (None, new[name]):
                    raise kafka_errors.KafkaConnectionError(f"the answers about topic {name!r} differ")
                if isinstance(info, TopicDescription) and info.id != NO_ID:
                    self._ids[name] = info.id
            infos |= again
        return infos

    async def _infos(self, topics: list[str], rights: bool) -> dict[str, TopicDescription | MissingTopic]:
        response = await self._ask_any(TopicMetadataRequest(topics, rights))
        infos = dict(map(_info, response.to_object()["topics"]))
        if missing := set(topics) - infos.keys():
            raise kafka_errors.KafkaConnectionError(f"an answer says nothing about {', '.join(missing)}")
        return infos

    def _new_id(self, info: TopicDescription | MissingTopic) -> bytes | None:
        """Return the topic's id, if it is not the one that is known."""
        if isinstance(info, MissingTopic) or info.id in (NO_ID, self._ids.get(info.name)):
            return None
        return info.id

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

    async def _offsets(
        self, infos: Collection[TopicDescription], which: int, isolation: int
    ) -> OffsetsResult:
        by_node: dict[int, dict[str, list[tuple[int, int]]]] = defaultdict(lambda: defaultdict(list))
        for info in infos:
            for partition, leader in info.leaders.items():
                if leader >= 0:
                    by_node[leader][info.name].append((partition, which))
        requests = {
            node: OffsetRequest(NO_REPLICA, isolation, list(asked.items())) for node, asked in by_node.items()
        }
        known: dict[TopicPartition, int] = {}
        silent_nodes: set[int] = set()
        for node, answer in (await self._ask_each(requests)).items():
            if isinstance(answer, kafka_errors.KafkaError):
                silent_nodes.add(node)
            else:
                known.update(_offsets_of(answer))
        return OffsetsResult(known, frozenset(silent_nodes))

    async def _ask_each(self, requests: Mapping[int, Any]) -> dict[int, Any]:
        """Ask these nodes at the same time. Returns their answers; KafkaErrors for those that give none."""
        answers = await asyncio.gather(
            *(self._client.send(node, request) for node, request in requests.items()), return_exceptions=True
        )
        for answer in answers:
            if isinstance(answer, BaseException) and not isinstance(answer, kafka_errors.KafkaError):
                raise answer
        return dict(zip(requests, answers, strict=True))

    async def _epoch_end_offsets(self, info: TopicDescription, epochs: Mapping[int, int]) -> OffsetsResult:
        by_node: dict[int, list[tuple[int, int, int]]] = defaultdict(list)
        for partition, epoch in epochs.items():
            if info.leaders.get(partition, -1) >= 0:
                # With the epoch of its leader: a broker that does not lead in that epoch says so instead.
                current = info.epochs.get(partition, -1)
                by_node[info.leaders[partition]].append((partition, current, epoch))
        known: dict[TopicPartition, int] = {}
        refused: dict[TopicPartition, str] = {}
        silent_nodes: set[int] = set()
        requests = {node: OffsetForLeaderEpochRequest(info.name, asked) for node, asked in by_node.items()}
        for node, answer in (await self._ask_each(requests)).items():
            if isinstance(answer, kafka_errors.IncompatibleBrokerVersion):
                refused.update(
                    (TopicPartition(info.name, partition), str(answer)) for partition, _, _ in by_node[node]
                )
                continue
            if isinstance(answer, kafka_errors.KafkaError):
                silent_nodes.add(node)
                continue
            for topic, partitions in answer.topics:
                for code, partition, _, end in partitions:
                    error = kafka_errors.for_code(code)
                    if error is kafka_errors.NoError:
                        known[TopicPartition(topic, partition)] = end
                    elif error in _NEVER:
                        refused[TopicPartition(topic, partition)] = error.description
        return OffsetsResult(known, frozenset(silent_nodes), refused)

    async def _end_if_empty(self, leader: int, tp: TopicPartition, offset: int) -> int | None:
        # A leader that has a batch from there on answers with it, whatever its size. One that has none
        # waits, and then answers with nothing, and with the end of what is committed. So it does, though
        # at once, when it slows us down on purpose.
        asked = [(tp.topic, [(tp.partition, offset, 1)])]
        response = await self._client.send(leader, FetchRequest(_PATIENCE_MS, 1, 1, 1, asked))
        if response.API_VERSION < _FIRST_WITH_STABLE_OFFSET or response.throttle_time_ms:
            return None
        for _, partitions in response.topics:
            for _, error_code, _, stable_end, *rest in partitions:
                if error_code == 0 and not rest[-1]:
                    return int(stable_end)
        return None

    async def _find_corrupt_batch(
        self, leader: int, tp: TopicPartition, offset: int
    ) -> tuple[int, int] | None:
        data = await self._raw(leader, tp, offset)
        found = first_corrupt_batch(data)
        if found is None:
            return None
        # Skipping loses records. What the log holds is the same every time; what was damaged on its way to
        # us is not, and is not to be skipped.
        first, behind, size = found
        again = await self._raw(leader, tp, offset)
        return (first, behind) if again[:size] == data[:size] else None

    async def _raw(self, leader: int, tp: TopicPartition, offset: int) -> bytes:
        asked = [(tp.topic, [(tp.partition, offset, 1024 * 1024)])]
        response = await self._client.send(leader, FetchRequest(0, 1, 1024 * 1024, 0, asked))
        return b"".join(bytes(rest[-1]) for _, parts in response.topics for _, _, _, *rest in parts)


def _info(topic: Mapping[str, Any]) -> tuple[str, TopicDescription | MissingTopic]:
    name, code = topic["topic"], topic["error_code"]
    error = kafka_errors.for_code(code)
    if error in (kafka_errors.NoError, kafka_errors.LeaderNotAvailableError) and topic["partitions"]:
        leaders = {part["partition"]: part["leader"] for part in topic["partitions"]}
        rights = topic.get("operations", RIGHTS_UNKNOWN)
        readable = None if rights == RIGHTS_UNKNOWN else bool(rights & _READ_RIGHT)
        parts = topic["partitions"]
        epochs = {part["partition"]: part["leader_epoch"] for part in parts if "leader_epoch" in part}
        topic_id = topic.get("topic_id", NO_ID)
        return name, TopicDescription(name, topic_id, dict(sorted(leaders.items())), readable, epochs)
    return name, MissingTopic(name, denied=error is kafka_errors.TopicAuthorizationFailedError)


def _offsets_of(response: Any) -> dict[TopicPartition, int]:
    return {
        TopicPartition(topic, partition): offset
        for topic, partitions in response.topics
        for partition, error_code, _timestamp, offset in partitions
        if error_code == 0
    }
