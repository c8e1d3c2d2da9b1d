"""Being a member of a consumer group: Kafka decides who has which partitions of a topic.

Theory of operation. One task joins, and then says every third of the session that it lives. When Kafka
answers that the group is joined anew it joins again, and keeps what it has until it knows what it has then:
Kafka takes commits of the old generation meanwhile, and refuses those of a member that it has put out. What
it has in two generations that follow each other nobody else has had between them.

A member that has not said for a whole session that it lives (its process stood still) takes itself for put
out, before it asks: whatever it had may be another's.

Records are no part of this: they come by the reader of the topic.
"""

from __future__ import annotations

import math
import time
from collections.abc import Collection, Mapping
from typing import Any, Final

import structlog
import trio
from aiokafka import errors as kafka_errors

from kiwi_gw.api import Backoff, CommitRefused, GroupAssignment, RefusalCode, Sharing, Wakeup
from kiwi_kafka.client.errors import readable
from kiwi_kafka.client.group_assignor import (
    PROTOCOL_TYPE,
    Claim,
    read_assignment,
    read_claim,
    spread,
    to_one,
    write_assignment,
    write_claim,
)
from kiwi_kafka.client.groups import NOT_THERE, GroupClient
from kiwi_kafka.client.requests import (
    HeartbeatRequest,
    JoinGroupRequest,
    LeaveGroupRequest,
    OffsetCommitRequest,
    SyncGroupRequest,
)
from kiwi_kafka.ports import GroupPlace, UnreachableError

log = structlog.get_logger("kiwi_kafka")

_LEAVE_SECONDS: Final = 1.0
_COMMIT_SECONDS: Final = 3.0
_FIRST_PAUSE, _LONGEST_PAUSE = 0.1, 2.0
_NO_RETENTION: Final = -1
_PUT_OUT: Final = (
    kafka_errors.UnknownMemberIdError,
    kafka_errors.IllegalGenerationError,
)
_REFUSED: Final = {
    kafka_errors.InconsistentGroupProtocolError: (
        RefusalCode.GROUP_IN_USE,
        "the group has members that share its partitions otherwise",
    ),
    kafka_errors.GroupAuthorizationFailedError: (
        RefusalCode.ORIGIN_DENIED,
        "the Kafka cluster gives this gateway no right to the group",
    ),
    kafka_errors.InvalidGroupIdError: (RefusalCode.GROUP, "this is not the name of a group"),
    kafka_errors.InvalidSessionTimeoutError: (
        RefusalCode.UNAVAILABLE,
        "the brokers do not take kafka.client.session_timeout_ms",
    ),
}
_MEMBER_ID_REQUIRED: Final = 79


class TopicGroupMember:
    """Implement `kiwi_gw.api.GroupMember`. See the top of this file."""

    def __init__(self, groups: GroupClient, place: GroupPlace) -> None:
        self._groups, self._place = groups, place
        self._since = time.time_ns() // 1_000_000
        self._id = ""
        self._generation = -1
        self._has: frozenset[int] = frozenset()
        self._members = 1
        self._alive_at = -math.inf
        self._refused: CommitRefused | None = None
        self._news: GroupAssignment | None = None
        self._told = Wakeup()
        self._joined = trio.Event()
        self._joining = False
        self._shared: frozenset[int] | None = None  # what it has shared out, as the leader

    # --- for who uses it -------------------------------------------------------------------

    async def next_assignment(self) -> GroupAssignment:
        while True:
            if self._refused is not None:
                raise CommitRefused(self._refused.code, str(self._refused), retry=self._refused.retry)
            if (news := self._news) is not None:
                self._news = None
                return news
            await self._told.wait()

    async def commit(self, positions: Mapping[int, tuple[int, str]]) -> None:
        with trio.move_on_after(_COMMIT_SECONDS):
            while True:
                self._check_has(positions)
                if await self._commit(positions):
                    return
        words = "not known whether it was committed: Kafka does not answer"
        raise CommitRefused(RefusalCode.UNAVAILABLE, words, retry=True)

    # --- the member ------------------------------------------------------------------------

    async def run(self) -> None:
        """Be a member until cancelled, or refused (`next_assignment` says so)."""
        pauses = Backoff(_FIRST_PAUSE, _LONGEST_PAUSE)
        try:
            while True:
                try:
                    if await self._join():
                        pauses.reset()
                        await self._live()
                        continue
                except CommitRefused as refused:
                    if not refused.retry:
                        self._refused = refused
                        self._told.set()
                        return
                except (UnreachableError, kafka_errors.KafkaError) as error:
                    log.debug("group cannot be joined", group=self._place.group, error=str(error))
                    self._groups.forget_coordinator(self._place.group)
                await trio.sleep(pauses.next())
                self._look_alive()
        finally:
            await self._leave()

    async def _join(self) -> bool:
        """Join the group, for the next generation. False: not yet. Raises CommitRefused."""
        place = self._place
        connection = await self._groups.connect(place.group)
        if connection is None:
            return False
        self._joining = True
        try:
            with trio.move_on_after(2 * place.session + 5):  # others have a session to join, too
                answer = await connection.ask(self._request())
                if answer.error_code == _MEMBER_ID_REQUIRED:
                    self._id = answer.member_id
                    answer = await connection.ask(self._request())
                if not self._is_well(answer.error_code):
                    return False
                self._shared = None
                with readable():
                    assigned = self._assigned(answer) if answer.leader_id == answer.member_id else []
                asked = SyncGroupRequest(place.group, answer.generation_id, answer.member_id, None, assigned)
                given = await connection.ask(asked)
                if not self._is_well(given.error_code):
                    return False
                with readable():
                    has, members = read_assignment(given.member_assignment)
                await self._begin(answer.member_id, answer.generation_id, has, members)
                return True
        finally:
            self._joining = False
            connection.close()
        return False

    def _request(self) -> JoinGroupRequest:
        place, session = self._place, round(self._place.session * 1000)
        protocols = [(place.kind, write_claim(place.topic, Claim(self._has, self._since)))]
        return JoinGroupRequest(place.group, session, session, self._id, None, PROTOCOL_TYPE, protocols)

    def _assigned(self, answer: Any) -> list[tuple[str, bytes]]:
        """Decide, as the leader, who has what."""
        place = self._place
        claims = {member[0]: read_claim(member[-1]) for member in answer.members}
        self._shared = frozenset(place.partitions())
        shares = (spread if place.sharing is Sharing.SPREAD else to_one)(claims, self._shared)
        return [(member, write_assignment(place.topic, has, len(claims))) for member, has in shares.items()]

    async def _begin(self, member: str, generation: int, has: frozenset[int], members: int) -> None:
        """Have these partitions, in this generation."""
        follows = generation == self._generation + 1 and member == self._id
        kept = self._has & has if follows else frozenset()
        self._id, self._generation, self._alive_at = member, generation, trio.current_time()
        self._has, self._members = kept, members
        self._joined.set()
        cursors = await self._cursors(has - kept) if has - kept else {}
        self._has = has
        self._tell(GroupAssignment(cursors, kept, members))

    async def _cursors(self, partitions: Collection[int]) -> dict[int, tuple[int, str]]:
        """Find where to go on in these; where nothing is committed, that is committed first."""
        place = self._place
        every = place.partitions()
        committed = await self._groups.fetch(place.group, place.topic, {*every, *partitions})
        missing = [p for p in partitions if p not in committed]
        if missing:
            begin = dict.fromkeys(missing, 0) if committed else await place.begin()
            first = {p: (begin.get(p, 0), "") for p in missing}
            if not await self._commit(first):
                raise UnreachableError("where the group begins could not be committed")
            committed = committed | first
        return {p: committed[p] for p in partitions}

    async def _live(self) -> None:
        """Say now and then that it lives, until the group is to be joined anew."""
        place = self._place
        while True:
            await trio.sleep(place.session / 3)
            if self._look_alive():
                return
            if self._shared is not None and self._shared != frozenset(place.partitions()):
                return  # the topic has grown
            asked = HeartbeatRequest(place.group, self._generation, self._id)
            with trio.move_on_after(place.session / 3):
                answer = await self._exchange(asked)
                if answer is None:
                    continue
                error = kafka_errors.for_code(answer.error_code)
                if error is kafka_errors.NoError:
                    self._alive_at = trio.current_time()
                elif error is kafka_errors.RebalanceInProgressError:
                    self._alive_at = trio.current_time()
                    self._joined = trio.Event()
                    return
                elif not self._is_well(answer.error_code) and error in _PUT_OUT:
                    return

    @property
    def _overdue(self) -> bool:
        """Whether it was silent for too long. Who waits to join anew is alive, and others may take long."""
        silent = trio.current_time() - self._alive_at >= self._place.session
        return silent and not self._joining

    def _look_alive(self) -> bool:
        """Be put out, if it was silent for too long. Returns whether it was."""
        if not self._overdue or self._generation < 0:
            return False
        self._lose()
        return True

    def _lose(self) -> None:
        """Be put out: it has nothing any more, and joins as another."""
        had, self._has = self._has, frozenset()
        self._id, self._generation = "", -1
        self._joined = trio.Event()
        if had:
            self._tell(GroupAssignment({}))

    def _tell(self, news: GroupAssignment) -> None:
        before = self._news
        if before is not None:  # it was not looked at yet: what is kept since then was given before
            given = {p: cursor for p, cursor in before.given.items() if p in news.kept}
            news = GroupAssignment({**given, **news.given}, news.kept - given.keys(), news.members)
        self._news = news
        self._told.set()

    def _is_well(self, code: int) -> bool:
        """Say whether an answer is good; see to what it says if not. Raises CommitRefused."""
        error = kafka_errors.for_code(code)
        if error is kafka_errors.NoError:
            return True
        if error in _REFUSED:
            raise CommitRefused(*_REFUSED[error])
        if error in _PUT_OUT:
            self._lose()
        elif error in NOT_THERE:
            self._groups.forget_coordinator(self._place.group)
        return False

    # --- committing ------------------------------------------------------------------------

    def _check_has(self, positions: Mapping[int, object]) -> None:
        """Raise CommitRefused unless it has all of these."""
        self._look_alive()
        if not positions.keys() <= self._has:
            raise CommitRefused(RefusalCode.MOVED, "the partition is another member's now")

    async def _commit(self, positions: Mapping[int, tuple[int, str]]) -> bool:
        """Commit once. False: it is to be tried again. Raises CommitRefused."""
        place = self._place
        parts = [(partition, offset, text) for partition, (offset, text) in sorted(positions.items())]
        asked = OffsetCommitRequest(
            place.group, self._generation, self._id, _NO_RETENTION, [(place.topic, parts)]
        )
        answer = await self._exchange(asked)
        if answer is None:
            await trio.sleep(_FIRST_PAUSE)
            return False
        with readable():
            codes = {code for _, found in answer.topics for _, code in found} - {0}
        for code in codes:
            error = kafka_errors.for_code(code)
            if error is kafka_errors.RebalanceInProgressError:
                await self._joined.wait()
                await trio.sleep(_FIRST_PAUSE)
                return False
            if error in _PUT_OUT:
                self._lose()
                raise CommitRefused(RefusalCode.MOVED, "the partition is another member's now")
            if error is kafka_errors.OffsetMetadataTooLargeError:
                raise CommitRefused(RefusalCode.POSITIONS, "what is noted beside an offset is too long")
            if not self._is_well(code):
                await trio.sleep(_FIRST_PAUSE)
                return False
        return True

    async def _exchange(self, request: Any) -> Any:
        """Ask the coordinator. None: nobody answers, just now."""
        try:
            return await self._groups.exchange(self._place.group, request)
        except (UnreachableError, kafka_errors.KafkaError):
            self._groups.forget_coordinator(self._place.group)
            return None

    async def _leave(self) -> None:
        """Leave, so that the others need not wait until the session is over."""
        if self._id and self._generation >= 0:
            with trio.move_on_after(_LEAVE_SECONDS, shield=True):
                await self._exchange(LeaveGroupRequest(self._place.group, self._id))
        self._id, self._generation, self._has = "", -1, frozenset()
