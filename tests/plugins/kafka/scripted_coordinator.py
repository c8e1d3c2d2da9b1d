"""One consumer group as its coordinator keeps it (Kafka's classic protocol), in the place of a `GroupClient`.

What it answers is what Kafka 4.1 answers; time is the test's clock.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import trio

from kiwi_gw.api import CommitRefused, RefusalCode
from kiwi_kafka.client.requests import (
    HeartbeatRequest,
    JoinGroupRequest,
    LeaveGroupRequest,
    OffsetCommitRequest,
    SyncGroupRequest,
)
from kiwi_kafka.ports import UnreachableError

OK, ILLEGAL_GENERATION, INCONSISTENT, UNKNOWN_MEMBER, REBALANCING = 0, 22, 23, 25, 27
MEMBER_ID_REQUIRED = 79
ANSWER_SECONDS = 0.01
_VERSIONS = {
    request.API_KEY: (0, 7)
    for request in (
        HeartbeatRequest,
        JoinGroupRequest,
        LeaveGroupRequest,
        OffsetCommitRequest,
        SyncGroupRequest,
    )
}


@dataclass
class _Member:
    heard: float
    tells: bytes = b""
    joining: bool = False


@dataclass
class Coordinator:
    """says: error codes of answers that the test has in mind, by the name of the request; each comes once.
    held: what keeps answers back, by the name of the request; they are as old as they are then. away: nobody
    answers; denied: it is not for us. assigns: what every member has, as Kafka itself decides. delay: seconds
    for others to join a group that was empty; patience: for all to join one that was not. refused: commits,
    with the codes. went_back: partitions that were committed to be where they had been before.
    """

    session: float = 6.0
    delay: float = 0.0
    patience: float = 6.0
    committed: dict[int, tuple[int, str]] = field(default_factory=dict)
    says: dict[str, list[int]] = field(default_factory=dict)
    held: dict[str, trio.Event] = field(default_factory=dict)
    away: bool = False
    denied: bool = False
    assigns: bytes | None = None
    refused: list[tuple[int, dict[int, tuple[int, str]]]] = field(default_factory=list)
    went_back: list[int] = field(default_factory=list)
    members: dict[str, _Member] = field(default_factory=dict)
    generation: int = 0
    state: str = "empty"
    kind: str = ""
    leader: str = ""
    shares: dict[str, bytes] = field(default_factory=dict)
    _expected: set[str] = field(default_factory=set)
    _made: int = 0
    _holding: str = ""
    _not_before: float = 0.0
    _not_after: float = 0.0
    _changed: trio.lowlevel.ParkingLot = field(default_factory=trio.lowlevel.ParkingLot)

    # --- as a GroupClient -------------------------------------------------------------------

    async def connect(self, group: str) -> Any:
        await self._pause()
        return SimpleNamespace(ask=self._ask, close=lambda: None)

    async def exchange(self, group: str, request: Any) -> Any:
        return await self._ask(request)

    async def fetch(self, group: str, topic: str, partitions: Collection[int]) -> dict[int, tuple[int, str]]:
        await self._pause()
        return {p: self.committed[p] for p in partitions if p in self.committed}

    def forget_coordinator(self, group: str) -> None:
        pass

    # --- for tests --------------------------------------------------------------------------

    async def until(self, state: str) -> None:
        while self.state != state:
            await self._changed.park()

    async def until_held(self, name: str) -> trio.Event:
        """Keep such an answer back, and wait until there is one. Returns what lets it go."""
        held = self.held[name] = trio.Event()
        while self._holding != name:
            await self._changed.park()
        self._holding = ""
        return self.held.pop(name, held)

    def add_silent_member(self) -> None:
        """Have one that has just come, and never joins again."""
        self.members["silent"] = _Member(trio.current_time() + 1_000)
        self._rebalance()

    def put_out(self, member: str) -> None:
        """As if it had been silent for too long."""
        del self.members[member]
        self._rebalance()

    # --- inside ----------------------------------------------------------------------------

    async def _pause(self) -> None:
        await trio.sleep(ANSWER_SECONDS)
        if self.away:
            raise UnreachableError("refused")
        if self.denied:
            raise CommitRefused(RefusalCode.ORIGIN_DENIED, "no right to the group")

    async def _ask(self, request: Any) -> Any:
        name = type(request).__name__.removesuffix("Request")
        await self._pause()
        said = self.says.get(name)
        if said:
            code = said.pop(0)
            answer = _Answer(error_code=code, topics=[("t", [(0, code)])])
        else:
            answer = await getattr(self, f"_{name}")(request.prepare(_VERSIONS))
        if name in self.held:
            self._holding = name
            self._changed.unpark_all()
            await self.held[name].wait()
        return answer

    async def _JoinGroup(self, asked: Any) -> Any:  # noqa: N802
        ((kind, tells),) = asked.group_protocols
        self._expire()
        name = asked.member_id
        if self.members and kind != self.kind:
            return _Answer(error_code=INCONSISTENT)
        if not name:
            self._made += 1
            self._expected.add(f"member-{self._made}")
            return _Answer(error_code=MEMBER_ID_REQUIRED, member_id=f"member-{self._made}")
        if name not in self.members and name not in self._expected:
            return _Answer(error_code=UNKNOWN_MEMBER)
        self._expected.discard(name)
        self.kind = kind
        if not self.members:
            self._not_before = trio.current_time() + self.delay
        me = self.members.setdefault(name, _Member(trio.current_time()))
        me.tells, me.joining = tells, True
        self._rebalance()
        while self.state == "preparing":
            if self._is_complete():
                self._complete()
                break
            with trio.move_on_after(ANSWER_SECONDS):
                await self._changed.park()
            if name not in self.members:
                return _Answer(error_code=UNKNOWN_MEMBER)
        who = self.members.items() if name == self.leader else ()
        found = [(name, None, each.tells) for name, each in who]
        return _Answer(generation_id=self.generation, leader_id=self.leader, member_id=name, members=found)

    async def _SyncGroup(self, asked: Any) -> Any:  # noqa: N802
        if (code := self._code(asked.member_id, asked.generation_id)) != OK:
            return _Answer(error_code=code)
        if self.state == "completing" and asked.member_id == self.leader:
            self.shares = dict(asked.group_assignment)
            self._set("stable")
        while self.state == "completing" and asked.generation_id == self.generation:
            await self._changed.park()
        if self.state != "stable" or asked.generation_id != self.generation:
            return _Answer(error_code=REBALANCING)
        self.members[asked.member_id].heard = trio.current_time()
        return _Answer(member_assignment=self.shares[asked.member_id])

    async def _Heartbeat(self, asked: Any) -> Any:  # noqa: N802
        await trio.lowlevel.checkpoint()
        if (code := self._code(asked.member_id, asked.generation_id)) == OK:
            self.members[asked.member_id].heard = trio.current_time()
            code = REBALANCING if self.state == "preparing" else OK
        return _Answer(error_code=code)

    async def _LeaveGroup(self, asked: Any) -> Any:  # noqa: N802
        await trio.lowlevel.checkpoint()
        if asked.member_id not in self.members:
            return _Answer(error_code=UNKNOWN_MEMBER)
        self.put_out(asked.member_id)
        return _Answer()

    async def _OffsetCommit(self, asked: Any) -> Any:  # noqa: N802
        await trio.lowlevel.checkpoint()
        ((topic, parts),) = asked.topics
        positions = {p: (offset, text) for p, offset, text in parts}
        code = self._code(asked.consumer_id, asked.consumer_group_generation_id)
        if code == OK and self.state == "completing":
            code = REBALANCING
        if code == OK:
            self.members[asked.consumer_id].heard = trio.current_time()
            before = {p: self.committed[p] for p in positions if p in self.committed}
            self.went_back += [p for p, (offset, _) in before.items() if offset > positions[p][0]]
            self.committed.update(positions)
        else:
            self.refused.append((code, positions))
        return _Answer(topics=[(topic, [(p, code) for p in positions])])

    def _code(self, member: str, generation: int) -> int:
        self._expire()
        if member not in self.members:
            return UNKNOWN_MEMBER
        return OK if generation == self.generation else ILLEGAL_GENERATION

    def _expire(self) -> None:
        now = trio.current_time()
        for name, each in list(self.members.items()):
            if not each.joining and now - each.heard >= self.session:
                self.put_out(name)

    def _is_complete(self) -> bool:
        """Whether the next generation may begin."""
        self._expire()
        now = trio.current_time()
        there = all(each.joining for each in self.members.values())
        return now >= self._not_before and (there or now >= self._not_after)

    def _rebalance(self) -> None:
        if self.state != "preparing":
            self._not_after = trio.current_time() + self.patience
        self._set("preparing" if self.members else "empty")

    def _complete(self) -> None:
        """Begin the next generation, without those who have not joined."""
        self.members = {name: each for name, each in self.members.items() if each.joining}
        for each in self.members.values():
            each.joining, each.heard = False, trio.current_time()
        self.generation += 1
        self.leader = self.leader if self.leader in self.members else next(iter(self.members))
        if self.assigns is not None:
            self.leader, self.shares = "", dict.fromkeys(self.members, self.assigns)
        self._set("completing" if self.assigns is None else "stable")

    def _set(self, state: str) -> None:
        self.state = state
        self._changed.unpark_all()


def _Answer(**fields: Any) -> Any:  # noqa: N802
    defaults: Mapping[str, Any] = {"error_code": OK, "member_id": "", "leader_id": "", "members": []}
    return SimpleNamespace(**{**defaults, **fields})
