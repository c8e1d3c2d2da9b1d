"""Groups of a scripted source: their members, and what they have committed."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import trio

from kiwi_gw.api import CommitRefused, GroupAssignment, Positions, RefusalCode, Wakeup


@dataclass(slots=True, eq=False)
class ScriptedMember:
    """Implement `api.GroupMember`. has: its partitions, which the test may change (`give`)."""

    group: ScriptedGroup
    has: frozenset[int] = frozenset()
    _news: list[GroupAssignment] = field(default_factory=list)
    _told: Wakeup = field(default_factory=Wakeup)

    def give(self, *partitions: int) -> None:
        """Let it have these from now on, and no others."""
        kept = self.has & set(partitions)
        given = {p: self.group.committed[p] for p in partitions if p not in kept}
        self.has = frozenset(partitions)
        self._news.append(GroupAssignment(given, kept, len(self.group.members)))
        self._told.set()

    async def next_assignment(self) -> GroupAssignment:
        while not self._news:
            await self._told.wait()
        return self._news.pop(0)

    async def commit(self, positions: Mapping[int, tuple[int, str]]) -> None:
        await trio.lowlevel.checkpoint()
        if not positions.keys() <= self.has:
            raise CommitRefused(RefusalCode.MOVED, "the partition is another member's now")
        self.group.committed.update(positions)


@dataclass(slots=True, eq=False)
class ScriptedGroup:
    """One group. The first member has all partitions, until the test says otherwise; others wait."""

    committed: dict[int, tuple[int, str]]
    kind: str = ""
    members: list[ScriptedMember] = field(default_factory=list)

    @asynccontextmanager
    async def join(
        self, kind: str, begin: Callable[[], Awaitable[Positions]]
    ) -> AsyncIterator[ScriptedMember]:
        """Be a member while the block runs. Raises CommitRefused for one of another kind."""
        if self.members and self.kind != kind:
            words = "the group has members that share its partitions otherwise"
            raise CommitRefused(RefusalCode.GROUP_IN_USE, words)
        self.kind = kind
        if not self.committed:
            self.committed.update({p: (offset, "") for p, offset in (await begin()).items()})
        member = ScriptedMember(self)
        self.members.append(member)
        member.give(*(self.committed if len(self.members) == 1 else ()))
        try:
            yield member
        finally:
            self.members.remove(member)
            if self.members and member.has:
                self.members[0].give(*self.committed)
