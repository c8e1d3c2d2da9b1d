"""Being a member of a consumer group: Kafka decides who has which partitions of a topic.

Theory of operation. One task joins, and then says every third of the session that it lives. When Kafka
answers that the group is joined anew it joins again, and keeps what it has until it knows what it has then:
Kafka takes commits of the old generation until the new one begins, and refuses those of a member that it has
put out. What it has in two generations that follow each other nobody else has had between them.

All members of a generation say at the same moments that they live: every third of the session, and a little
later each time, from when Kafka told them all that the generation begins. So when one has died, and its
session is over, the others ask just then, and join anew at once; at moments of their own they would ask up to
a third of the session later.

A member that has not said for a whole session that it lives (its process stood still) takes itself for put
out, before it asks: whatever it had may be another's. What counts is when it said so, not when it read the
answer.

A commit is for what the member had when it was made: partitions that go and come back meanwhile are moved.

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
    Share,
    read_assignment,
    read_claim,
    spread,
    to_one,
    write_assignment,
    write_claim,
)
from kiwi_kafka.client.groups import NOT_THERE, GroupClient, check
from kiwi_kafka.client.requests import (
    HeartbeatRequest,
    JoinGroupRequest,
    LeaveGroupRequest,
    OffsetCommitRequest,
    SyncGroupRequest,
)
from kiwi_kafka.ports import GroupMembership, UnreachableError

log = structlog.get_logger("kiwi_kafka")

_AFTER_SESSION: Final = 0.15
"""Seconds from the end of a dead member's session to when the others ask: so late may any of them be."""
_LEAVE_SECONDS: Final = 1.0
_COMMIT_SECONDS: Final = 3.0
_FIRST_PAUSE, _LONGEST_PAUSE = 0.1, 2.0
_NO_RETENTION: Final = -1
_MOVED: Final = "the partition is another member's now"
_FOREIGN: Final = "the group has members that are no gateways"
_MEMBER_ID_REQUIRED: Final = kafka_errors.MemberIdRequired.errno
_PASSING: Final = (kafka_errors.RebalanceInProgressError, kafka_errors.UnknownTopicOrPartitionError)
_PUT_OUT: Final = {kafka_errors.UnknownMemberIdError.errno, kafka_errors.IllegalGenerationError.errno}


class TopicGroupMember:
    """Implement `kiwi_gw.api.GroupMember`. See the top of this file."""

    def __init__(self, groups: GroupClient, membership: GroupMembership) -> None:
        self._groups, self._membership = groups, membership
        self._since = time.time_ns() // 1_000_000
        self._id = ""
        self._generation = -1
        self._has: dict[int, int] = {}  # and in which generation it was given them
        self._alive_at = -math.inf
        self._began = -math.inf  # its generation
        self._refused: CommitRefused | None = None
        self._news: GroupAssignment | None = None
        self._told = Wakeup()
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
        had = self._checked(positions)
        with trio.move_on_after(_COMMIT_SECONDS):
            while not await self._commit(positions):
                await trio.sleep(_FIRST_PAUSE)
                if self._checked(positions) != had:
                    raise CommitRefused(RefusalCode.MOVED, _MOVED)
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
                    log.debug("group cannot be joined", group=self._membership.group, error=str(refused))
                except kafka_errors.IncompatibleBrokerVersion as error:
                    self._refused = CommitRefused(RefusalCode.UNAVAILABLE, str(error))
                    self._told.set()
                    return
                except (UnreachableError, kafka_errors.KafkaError) as error:
                    log.debug("group cannot be joined", group=self._membership.group, error=str(error))
                    self._groups.forget_coordinator(self._membership.group)
                await trio.sleep(pauses.next())
                self._look_alive()
        finally:
            await self._leave()

    async def _join(self) -> bool:
        """Join the group, for the next generation. False: not yet. Raises CommitRefused."""
        membership = self._membership
        connection = await self._groups.connect(membership.group)
        if connection is None:
            return False
        self._joining = True
        try:
            with trio.move_on_after(2 * membership.session + 5):  # others have a session to join, too
                answer = await connection.ask(self._request())
                if answer.error_code == _MEMBER_ID_REQUIRED:
                    self._id = answer.member_id
                    answer = await connection.ask(self._request())
                if not self._is_well(answer.error_code):
                    return False
                began = trio.current_time()
                self._id, generation, self._shared = answer.member_id, answer.generation_id, None
                assigned = await self._share(answer) if answer.leader_id == self._id else []
                asked = SyncGroupRequest(membership.group, generation, self._id, None, assigned)
                asked_at = trio.current_time()
                given = await connection.ask(asked)
                if not self._is_well(given.error_code):
                    return False
                with readable():
                    share = read_assignment(given.member_assignment)
                if share is None:  # Kafka decides, where there are consumers of its newer protocol
                    raise CommitRefused(RefusalCode.GROUP_IN_USE, _FOREIGN)
                self._alive_at, self._began = asked_at, began
                await self._begin(generation, share)
                return True
        finally:
            self._joining = False
            connection.close()
        return False

    def _request(self) -> JoinGroupRequest:
        membership, session = self._membership, round(self._membership.session * 1000)
        claim = Claim(frozenset(self._has), self._since)
        protocols = [(membership.kind, write_claim(membership.topic, claim))]
        return JoinGroupRequest(membership.group, session, session, self._id, None, PROTOCOL_TYPE, protocols)

    async def _share(self, answer: Any) -> list[tuple[str, bytes]]:
        """Decide, as the leader, who has what."""
        membership = self._membership
        with readable():
            claims = {member[0]: read_claim(member[-1]) for member in answer.members}
        self._shared = frozenset(membership.partitions())
        # Before anybody begins: what one has committed then says nothing of what the others have.
        is_new = not await self._groups.fetch(membership.group, membership.topic, self._shared)
        share_out = spread if membership.sharing is Sharing.SPREAD else to_one
        return [
            (member, write_assignment(membership.topic, Share(frozenset(has), len(claims), is_new)))
            for member, has in share_out(claims, self._shared).items()
        ]

    async def _begin(self, generation: int, share: Share) -> None:
        """Have these partitions, in this generation."""
        follows, self._generation = generation == self._generation + 1, generation
        had, has = self._has, share.partitions
        self._has = {p: since for p, since in had.items() if follows and p in has}
        kept = frozenset(self._has)
        if len(kept) < len(had):
            self._tell(GroupAssignment({}, kept, share.members))  # before it is known where the others begin
        cursors = await self._cursors(has - kept, share.is_new) if has - kept else {}
        self._has |= dict.fromkeys(cursors, generation)
        self._tell(GroupAssignment(cursors, kept, share.members))

    async def _cursors(self, partitions: Collection[int], is_new: bool) -> dict[int, tuple[int, str]]:
        """Find where to go on in these; where nothing is committed, that is committed first."""
        membership = self._membership
        committed = await self._groups.fetch(membership.group, membership.topic, partitions)
        if missing := set(partitions) - committed.keys():
            begin = await membership.begin() if is_new else {}
            first = {p: (begin.get(p, 0), "") for p in missing}
            if not await self._commit(first):
                raise UnreachableError("where the group begins could not be committed")
            committed |= first
        return {p: committed[p] for p in partitions}

    async def _live(self) -> None:
        """Say now and then that it lives, when all do, until the group is to be joined anew."""
        membership = self._membership
        beat = (membership.session + _AFTER_SESSION) / 3
        due = self._began + beat
        while True:
            await trio.sleep_until(due)
            if self._look_alive():
                return
            if self._shared is not None and self._shared != frozenset(membership.partitions()):
                return  # the topic has grown
            asked_at = trio.current_time()
            due = asked_at + beat / 2  # if nobody answers: in time for another one
            with trio.move_on_at(min(asked_at + beat, self._alive_at + membership.session)):
                answer = await self._exchange(HeartbeatRequest(membership.group, self._generation, self._id))
                if answer is None:
                    continue
                if self._is_well(answer.error_code):
                    self._alive_at, due = asked_at, asked_at + beat - (asked_at - self._began) % beat
                elif kafka_errors.for_code(answer.error_code) is kafka_errors.RebalanceInProgressError:
                    self._alive_at = asked_at
                    return
                elif self._generation < 0:
                    return

    def _look_alive(self) -> bool:
        """Be put out, if it was silent for too long. Returns whether it was. Who waits to join anew is alive,
        and others may take long."""
        silent = trio.current_time() - self._alive_at >= self._membership.session
        if not silent or self._joining or self._generation < 0:
            return False
        self._lose()
        return True

    def _lose(self) -> None:
        """Be put out: it has nothing any more."""
        had, self._has = self._has, {}
        self._generation = -1
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
        if error is kafka_errors.UnknownMemberIdError:
            self._id = ""
            self._lose()
        elif error is kafka_errors.IllegalGenerationError:
            self._lose()
        elif error in NOT_THERE:
            self._groups.forget_coordinator(self._membership.group)
        elif error not in _PASSING:
            check({error})
        return False

    # --- committing ------------------------------------------------------------------------

    def _checked(self, positions: Mapping[int, object]) -> dict[int, int]:
        """Return since which generation it has these. CommitRefused: not all of them, or nobody knows yet
        that it has them again."""
        self._look_alive()
        news = () if self._news is None else self._news.given.keys()
        had = {p: self._has[p] for p in positions if p in self._has and p not in news}
        if len(had) < len(positions):
            raise CommitRefused(RefusalCode.MOVED, _MOVED)
        return had

    async def _commit(self, positions: Mapping[int, tuple[int, str]]) -> bool:
        """Commit once. False: not done; if it still has the partitions, it is to be tried again. Raises
        CommitRefused."""
        membership, generation = self._membership, self._generation
        parts = [(partition, offset, text) for partition, (offset, text) in sorted(positions.items())]
        topics = [(membership.topic, parts)]
        asked = OffsetCommitRequest(membership.group, generation, self._id, _NO_RETENTION, topics)
        try:
            with readable():
                if (answer := await self._exchange(asked)) is None:
                    return False
                codes = {code for _, found in answer.topics for _, code in found}
        except UnreachableError:
            return False
        if not codes.isdisjoint(_PUT_OUT) and (self._joining or generation != self._generation):
            return False  # of a generation that is over: what it has in the next one is not known yet
        return all(self._is_well(code) for code in codes)

    async def _exchange(self, request: Any) -> Any:
        """Ask the coordinator. None: nobody answers, just now."""
        try:
            return await self._groups.exchange(self._membership.group, request)
        except (UnreachableError, kafka_errors.KafkaError):
            self._groups.forget_coordinator(self._membership.group)
            return None

    async def _leave(self) -> None:
        """Leave, so that the others need not wait until the session is over."""
        membership, member = self._membership, self._id
        self._id, self._generation, self._has = "", -1, {}
        if not member:
            return
        with trio.move_on_after(_LEAVE_SECONDS, shield=True):
            try:
                await self._exchange(LeaveGroupRequest(membership.group, member))
            except CommitRefused as refused:
                log.debug("group cannot be left", group=membership.group, error=str(refused))
