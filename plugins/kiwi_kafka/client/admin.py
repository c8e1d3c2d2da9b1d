"""The admin client: asks brokers about topics and offsets, and creates nothing."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping
from functools import partial
from typing import Any

import trio
from aiokafka import errors as kafka_errors

from kiwi_kafka.client.brokers import Brokers
from kiwi_kafka.client.errors import deadline, readable
from kiwi_kafka.client.fetched_records import first_corrupt_batch
from kiwi_kafka.client.requests import (
    NO_REPLICA,
    FetchRequest,
    ListGroupsRequest,
    OffsetForLeaderEpochRequest,
    OffsetRequest,
)
from kiwi_kafka.ports import (
    NO_ID,
    GroupList,
    MissingTopic,
    OffsetsResult,
    TopicDescription,
    TopicPartition,
    UnreachableError,
)

_EARLIEST, _LATEST = -2, -1
_PATIENCE_MS = 500
_FIRST_WITH_STABLE_OFFSET = 4  # version of the answer to a fetch

_NEVER = (
    kafka_errors.TopicAuthorizationFailedError,
    kafka_errors.ClusterAuthorizationFailedError,
    kafka_errors.UnsupportedVersionError,
    kafka_errors.InvalidRequestError,
)
"""Errors of a partition that the same question meets again; what else there is passes."""


class BrokerAdminClient:
    """Implement `AdminClient`. within: seconds that one request has. ids: the last known ids of topics, for
    all admin clients of a cluster."""

    def __init__(self, brokers: Brokers, within: float, ids: dict[str, bytes]) -> None:
        self._ids = ids
        self._brokers = brokers
        # Every single request has the deadline `within`; this is for several in a row.
        self._deadline = partial(deadline, 2 * within, f"no broker answered within {2 * within:g} s")

    async def describe_topics(
        self, topics: Collection[str], rights: bool = False
    ) -> dict[str, TopicDescription | MissingTopic]:
        with self._deadline():
            infos = await self._brokers.describe(sorted(topics), rights)
            # Another id ends all positions in a topic, and nothing shows whether it was damaged on its way:
            # so it must come twice.
            new = {name: one for name, info in infos.items() if (one := self._new_id(info)) is not None}
            if new:
                again = await self._brokers.describe(list(new), rights)
                for name, info in again.items():
                    if self._new_id(info) not in (None, new[name]):
                        raise UnreachableError(f"the answers about topic {name!r} differ")
                    if isinstance(info, TopicDescription) and info.id != NO_ID:
                        self._ids[name] = info.id
                infos |= again
            return infos

    async def beginning_offsets(self, infos: Collection[TopicDescription]) -> OffsetsResult:
        return await self._offsets(infos, _EARLIEST, 0)

    async def end_offsets(self, infos: Collection[TopicDescription], stable: bool) -> OffsetsResult:
        return await self._offsets(infos, _LATEST, int(stable))

    async def offsets_for_time(self, infos: Collection[TopicDescription], timestamp: int) -> OffsetsResult:
        return await self._offsets(infos, timestamp, 1)

    async def epoch_end_offsets(self, info: TopicDescription, epochs: Mapping[int, int]) -> OffsetsResult:
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
            if isinstance(answer, Exception):
                silent_nodes.add(node)
                continue
            with readable():
                ends = [(topic, end) for topic, partitions in answer.topics for end in partitions]
            for topic, (code, partition, _, end) in ends:
                error = kafka_errors.for_code(code)
                if error is kafka_errors.NoError:
                    known[TopicPartition(topic, partition)] = end
                elif error in _NEVER:
                    refused[TopicPartition(topic, partition)] = error.description
        return OffsetsResult(known, frozenset(silent_nodes), refused)

    async def end_if_empty(self, info: TopicDescription, tp: TopicPartition, offset: int) -> int | None:
        # A leader that has a batch from there on answers with it, whatever its size. One that has none
        # waits, and then answers with nothing, and with the end of what is committed. So it does, though
        # at once, when it slows us down on purpose.
        response = await self._fetch(info, FetchRequest(_PATIENCE_MS, 1, 1, 1, _asked(tp, offset, 1)), tp)
        if response.API_VERSION < _FIRST_WITH_STABLE_OFFSET or response.throttle_time_ms:
            return None
        with readable():
            for _, partitions in response.topics:
                for _, error_code, _, stable_end, *rest in partitions:
                    if error_code == 0 and not rest[-1]:
                        return int(stable_end)
        return None

    async def find_corrupt_batch(
        self, info: TopicDescription, tp: TopicPartition, offset: int
    ) -> tuple[int, int] | None:
        data = await self._raw(info, tp, offset)
        found = first_corrupt_batch(data)
        if found is None:
            return None
        # Skipping loses records. What the log holds is the same every time; what was damaged on its way to
        # us is not, and is not to be skipped.
        first, behind, size = found
        again = await self._raw(info, tp, offset)
        return (first, behind) if again[:size] == data[:size] else None

    async def list_groups(self) -> GroupList:
        # Each broker knows those that it coordinates.
        names: set[str] = set()
        silent_nodes: set[int] = set()
        requests = {node: ListGroupsRequest() for node in self._brokers.nodes}
        for node, answer in (await self._ask_each(requests)).items():
            if isinstance(answer, Exception) or answer.error_code:
                silent_nodes.add(node)
                continue
            with readable():
                names.update(group for group, _ in answer.groups)
        return GroupList(frozenset(names), frozenset(silent_nodes))

    async def close(self) -> None:
        self._brokers.close()
        await trio.lowlevel.checkpoint()

    # --- details ---

    def _new_id(self, info: TopicDescription | MissingTopic) -> bytes | None:
        """Return the topic's id, if it is not the one that is known."""
        if isinstance(info, MissingTopic) or info.id in (NO_ID, self._ids.get(info.name)):
            return None
        return info.id

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
            if isinstance(answer, Exception):
                silent_nodes.add(node)
            else:
                with readable():
                    known.update(_offsets_of(answer))
        return OffsetsResult(known, frozenset(silent_nodes))

    async def _ask_each(self, requests: Mapping[int, Any]) -> dict[int, Any]:
        """Ask these nodes at the same time. Returns their answers; the error of those that give none."""
        answers: dict[int, Any] = {}

        async def ask(node: int) -> None:
            try:
                answers[node] = await self._brokers.ask(node, requests[node])
            except (UnreachableError, kafka_errors.KafkaError) as error:
                answers[node] = error

        with self._deadline():
            async with trio.open_nursery() as nursery:
                for node in requests:
                    nursery.start_soon(ask, node)
        return answers

    async def _fetch(self, info: TopicDescription, request: FetchRequest, tp: TopicPartition) -> Any:
        with self._deadline():
            return await self._brokers.ask(info.leaders[tp.partition], request)

    async def _raw(self, info: TopicDescription, tp: TopicPartition, offset: int) -> bytes:
        most = 1024 * 1024
        response = await self._fetch(info, FetchRequest(0, 1, most, 0, _asked(tp, offset, most)), tp)
        with readable():
            return b"".join(bytes(rest[-1]) for _, parts in response.topics for _, _, _, *rest in parts)


def _asked(tp: TopicPartition, offset: int, most: int) -> list[tuple[str, list[tuple[int, int, int]]]]:
    return [(tp.topic, [(tp.partition, offset, most)])]


def _offsets_of(response: Any) -> dict[TopicPartition, int]:
    return {
        TopicPartition(topic, partition): offset
        for topic, partitions in response.topics
        for partition, error_code, _timestamp, offset in partitions
        if error_code == 0
    }
