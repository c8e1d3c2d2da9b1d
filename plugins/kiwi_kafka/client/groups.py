"""Keeps how far groups have come, in Kafka's own `__consumer_offsets`, without being a member of any.

It finds the coordinators of groups for those who are members, too.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Mapping
from typing import Any, Final

import trio
from aiokafka import errors as kafka_errors

from kiwi_gw.api import CommitRefused, RefusalCode
from kiwi_gw.backoff import Backoff
from kiwi_kafka.client.brokers import Brokers
from kiwi_kafka.client.connection import BrokerConnection
from kiwi_kafka.client.errors import readable
from kiwi_kafka.client.requests import (
    DeleteGroupsRequest,
    DescribeGroupsRequest,
    FindCoordinatorRequest,
    OffsetCommitRequest,
    OffsetFetchRequest,
)
from kiwi_kafka.ports import UnreachableError

_GROUP: Final = 0  # a kind of coordinator
_NO_GENERATION: Final = -1
_NO_RETENTION: Final = -1
_NOTHING_COMMITTED: Final = -1
_REMEMBERED: Final = 1_024
"""Coordinators, by group: clients may name any number of groups."""
_FIND_SECONDS: Final = 1.4
"""For one broker to say who coordinates a group, before another is asked: twice in the time of a commit."""
_LONGEST_PAUSE: Final = 4  # times the first one

NOT_THERE = (
    kafka_errors.GroupLoadInProgressError,
    kafka_errors.GroupCoordinatorNotAvailableError,
    kafka_errors.NotCoordinatorForGroupError,
    kafka_errors.RequestTimedOutError,
)
_WORDS: Mapping[type[Exception], tuple[RefusalCode, str]] = {
    kafka_errors.GroupAuthorizationFailedError: (
        RefusalCode.ORIGIN_DENIED,
        "the Kafka cluster gives this gateway no right to the group",
    ),
    kafka_errors.TopicAuthorizationFailedError: (
        RefusalCode.ORIGIN_DENIED,
        "the Kafka cluster gives this gateway no right to the topic",
    ),
    kafka_errors.InvalidGroupIdError: (RefusalCode.GROUP, "this is not the name of a group"),
    kafka_errors.OffsetMetadataTooLargeError: (
        RefusalCode.POSITIONS,
        "what is noted beside an offset is too long",
    ),
    kafka_errors.UnknownTopicOrPartitionError: (RefusalCode.POSITIONS, "there is no such partition"),
    kafka_errors.NonEmptyGroup: (RefusalCode.GROUP_IN_USE, "the group has members"),
    kafka_errors.InconsistentGroupProtocolError: (
        RefusalCode.GROUP_IN_USE,
        "the group has members that share its partitions otherwise",
    ),
    kafka_errors.InvalidSessionTimeoutError: (
        RefusalCode.UNAVAILABLE,
        "the brokers do not take kafka.client.session_timeout_ms",
    ),
    kafka_errors.GroupIdNotFound: (RefusalCode.GROUP, "there is no such group"),
}
_MEMBERS = (
    kafka_errors.IllegalGenerationError,
    kafka_errors.UnknownMemberIdError,
    kafka_errors.RebalanceInProgressError,
)


class GroupClient:
    """Ask the coordinators of groups, over connections of its own. Its methods try until they are cancelled.
    retry: seconds after which it is tried again, a little more each time.

    A coordinator that cannot be reached concerns its own groups alone: they look for another one, and the
    connections to all others stay."""

    def __init__(self, open_brokers: Callable[[], Awaitable[Brokers]], retry: float) -> None:
        self._open_brokers, self._retry = open_brokers, retry
        self._brokers: Brokers | None = None
        self._turn = trio.Lock()  # of those who connect
        self._coordinators: dict[str, int] = {}

    async def fetch(self, group: str, topic: str, partitions: Collection[int]) -> dict[int, tuple[int, str]]:
        """Return what was committed, by partition. CommitRefused: why that cannot be known."""

        def codes(answer: Any) -> list[int]:
            return [
                getattr(answer, "error_code", 0),
                *(part[3] for _, parts in answer.topics for part in parts),
            ]

        answer = await self._ask(group, OffsetFetchRequest(group, [(topic, sorted(partitions))]), codes)
        return {
            partition: (offset, metadata or "")
            for _, parts in answer.topics
            for partition, offset, metadata, _ in parts
            if offset != _NOTHING_COMMITTED
        }

    async def store(self, group: str, topic: str, positions: Mapping[int, tuple[int, str]]) -> None:
        """Commit these. CommitRefused: why that cannot be done."""
        parts = [(partition, offset, text) for partition, (offset, text) in sorted(positions.items())]
        request = OffsetCommitRequest(group, _NO_GENERATION, "", _NO_RETENTION, [(topic, parts)])
        await self._ask(group, request, lambda answer: [code for _, ps in answer.topics for _, code in ps])

    async def state(self, group: str) -> tuple[int, str]:
        """Return how many members a group has, and of what kind. CommitRefused: why that cannot be known."""
        answer = await self._ask(
            group, DescribeGroupsRequest([group]), lambda answer: [found[0] for found in answer.groups]
        )
        with readable():
            ((_, _, _, _, kind, members, *_),) = answer.groups
            return len(members), kind

    async def forget(self, group: str) -> None:
        """Delete a group, if it has no members. CommitRefused: why that cannot be done."""
        await self._ask(
            group, DeleteGroupsRequest(group), lambda answer: [code for _, code in answer.results]
        )

    async def exchange(self, group: str, request: Any) -> Any:
        """Ask the coordinator of a group once. None: there is none, just now. UnreachableError,
        KafkaError."""
        brokers = await self._connected()
        node = self._coordinators.get(group)
        if node is None and (node := await self._find(brokers, group)) is None:
            return None
        try:
            return await brokers.ask(node, request)
        except trio.Cancelled:
            self._coordinators.pop(group, None)  # it may be silent: who comes next is to ask again who it is
            raise

    async def connect(self, group: str) -> BrokerConnection | None:
        """Open a connection to the coordinator of a group, for what takes long. None: there is none, just
        now. UnreachableError, CommitRefused."""
        brokers = await self._connected()
        node = self._coordinators.get(group)
        if node is None and (node := await self._find(brokers, group)) is None:
            return None
        return await brokers.connect(node)

    def forget_coordinator(self, group: str) -> None:
        """Look for it anew."""
        self._coordinators.pop(group, None)

    def close(self) -> None:
        """Close its connections."""
        self._coordinators.clear()
        if self._brokers is not None:
            self._brokers.close()
            self._brokers = None

    # --- inside ----------------------------------------------------------------------------

    async def _ask(self, group: str, request: Any, codes: Callable[[Any], list[int]]) -> Any:
        pauses = Backoff(self._retry, _LONGEST_PAUSE * self._retry)
        while True:
            try:
                answer = await self.exchange(group, request)
                with readable():
                    found = {kafka_errors.for_code(code) for code in codes(answer)} if answer else set()
            except kafka_errors.IncompatibleBrokerVersion as error:
                raise CommitRefused(RefusalCode.UNAVAILABLE, str(error)) from error
            except (UnreachableError, kafka_errors.KafkaError):
                self._coordinators.pop(group, None)  # others may be well
            else:
                if answer is not None and found.isdisjoint(NOT_THERE):
                    check(found - {kafka_errors.NoError})
                    return answer
                self._coordinators.pop(group, None)
            await trio.sleep(pauses.next())

    async def _connected(self) -> Brokers:
        async with self._turn:
            if self._brokers is None:
                self._brokers = await self._open_brokers()
            return self._brokers

    async def _find(self, brokers: Brokers, group: str) -> int | None:
        """Ask who coordinates the group. None: nobody does, just now, or who was asked does not say."""
        answer = None
        try:
            with trio.move_on_after(_FIND_SECONDS):
                answer = await brokers.ask_any(FindCoordinatorRequest(group, _GROUP))
        except UnreachableError:
            if self._brokers is brokers:
                self.close()  # none of them answers: they may all have other addresses by now
            raise
        if answer is None:
            return None
        error = kafka_errors.for_code(answer.error_code)
        if error is not kafka_errors.NoError:
            if error not in NOT_THERE:
                check({error})
            return None
        if len(self._coordinators) >= _REMEMBERED:
            self._coordinators.clear()
        self._coordinators[group] = node = int(answer.coordinator_id)
        brokers.locate(node, answer.host, answer.port)
        return node


def check(errors: Collection[type[kafka_errors.BrokerResponseError]]) -> None:
    """Raise CommitRefused if there are any."""
    for error in errors:
        if error in _MEMBERS:
            words = "the group has members, which commit for themselves"
            raise CommitRefused(RefusalCode.UNAVAILABLE, words)
        code, words = _WORDS.get(error, (RefusalCode.UNAVAILABLE, error.description))
        raise CommitRefused(code, words, retry=error not in _WORDS)
