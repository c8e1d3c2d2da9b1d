"""A member of a group reads what it was given: from where that begins, and nothing that was read before."""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection, Hashable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import pytest
import trio
from structlog.typing import EventDict
from trio.testing import wait_all_tasks_blocked

from kiwi_gw.api import (
    ANONYMOUS,
    Batch,
    CommitRefused,
    GroupAssignment,
    Positions,
    Refusal,
    RefusalCode,
    Sharing,
    SourceFailed,
)
from kiwi_gw.core.publishing import publish
from kiwi_gw.dialect_api.reading import EventRun, GroupTerms, ReadingOver
from kiwi_gw.errors import SubscribeRefused
from kiwi_gw.model import StartAt
from kiwi_gw.runtime import group_reader
from kiwi_gw.runtime.gateway import Gateway
from kiwi_gw.runtime.group_reader import SourceGroupReader
from kiwi_gw.runtime.request_rights import RequestRights
from kiwi_gw.testing import Script, ScriptedSources, open_gateway
from kiwi_gw.testing.scripted_groups import ScriptedMember
from tests.unit.core.fakes import names

CONFIG = "plugins: [scripted]\nsources: [{type: scripted, id: s}]\n"
TERMS = GroupTerms("g", "kind", Sharing.SPREAD, StartAt.EARLIEST)


@dataclass
class Sink:
    """Implements `GroupSink`. heard: the offsets of partition 0 that were read, and the cursors that it was
    given in between. publishes: the offset of an event that comes just before the next assignment."""

    gateway: Gateway
    offsets: dict[int, int] = field(default_factory=dict)
    room: tuple[int, int] = 1_000, 1 << 20
    uncommitted: set[int] = field(default_factory=set)
    heard: list[int | str] = field(default_factory=list)
    ended: ReadingOver | None = None
    publishes: int | None = None
    pending: int = 0
    redelivered: int = 0
    nothing_for: set[object] = field(default_factory=set)

    def assigned(self, given: Mapping[int, tuple[int, str]], kept: frozenset[int], members: int) -> None:
        if self.publishes is not None:  # whoever waits for events has just been told that there are some
            columns: dict[str, Sequence[object]] = {"key": [None], "value": [b"x"], "timestamp": [-1]}
            hub = self.gateway.hub("s")
            assert hub is not None
            for _ in publish(hub, Batch({0: self.publishes}, [0], [self.publishes], columns, 1)):
                pass
            self.publishes = None
        self.heard.append(f"given {given[0][0]}" if given else "given nothing")
        self.offsets = {p: o for p, o in self.offsets.items() if p in kept}
        self.offsets |= {p: offset for p, (offset, _) in given.items()}

    def read(self, runs: Sequence[EventRun], positions: Positions) -> None:
        self.heard += [run.batch.offsets[index] for run in runs for index, _ in run.fragments]
        self.offsets.update(positions)

    def has(self, who: Hashable) -> bool:
        return who not in self.nothing_for

    def commits(self, partitions: Collection[int]) -> Mapping[int, tuple[int, str]]:
        return {p: (self.offsets[p], "") for p in partitions if p in self.offsets}

    def look(self, now: float) -> bool:
        return True

    def over(self, over: ReadingOver) -> None:
        self.ended = over


@asynccontextmanager
async def gateway_of(*, writable: bool = True) -> AsyncIterator[tuple[Gateway, Script]]:
    """A gateway whose source has three events."""
    sources = ScriptedSources(writable=writable)
    async with open_gateway(CONFIG, plugins={"scripted": sources}) as gateway:
        with trio.fail_after(10):
            await sources["s"].publish([b"a", b"b", b"c"])
            yield gateway.gateway, sources["s"]


def join(gateway: Gateway, sink: Sink) -> SourceGroupReader:
    return RequestRights(gateway, ANONYMOUS).join("s", TERMS, lambda partitions: names(), sink)


@asynccontextmanager
async def joined() -> AsyncIterator[tuple[Sink, SourceGroupReader, ScriptedMember, Script]]:
    """A member that has partition 0, and has read what there is."""
    async with gateway_of() as (gateway, script):
        sink = Sink(gateway)
        reader = join(gateway, sink)
        while len(sink.heard) < 4:
            await reader.wait(5, "anybody")
        (member,) = script.members["g"].members
        yield sink, reader, member, script


async def test_what_was_read_before_an_assignment_is_not_delivered_behind_it() -> None:
    """The reader is told of an event just before its partition is taken and given back: what it reads then is
    of the assignment before, whose place is not that of the new one."""
    async with joined() as (sink, reader, member, _):
        await wait_all_tasks_blocked()
        sink.publishes = 3
        member.give()
        member.give(0)
        while len(sink.heard) < 10:
            await reader.wait(5, "anybody")
        assert sink.heard == ["given 0", 0, 1, 2, "given nothing", "given 0", 0, 1, 2, 3]
        assert sink.offsets == {0: 4}


async def test_a_member_without_partitions_reads_when_it_gets_some() -> None:
    async with joined() as (sink, reader, member, script):
        member.give()
        while sink.heard[-1] != "given nothing":
            await reader.wait(5, "anybody")
        await wait_all_tasks_blocked()
        await script.publish([b"d"])
        member.group.committed[0] = 2, ""
        member.give(0)
        while len(sink.heard) < 8:
            await reader.wait(5, "anybody")
        assert sink.heard[4:] == ["given nothing", "given 2", 2, 3]


async def test_for_an_event_one_of_those_who_wait_is_woken() -> None:
    """The one who has waited longest, and may have it; all are by what concerns all."""
    async with joined() as (sink, reader, _, script), trio.open_nursery() as nursery:
        woken: list[int] = []
        sink.nothing_for = {1}

        async def wait(number: int) -> None:
            await reader.wait(5, number or None)
            woken.append(number)

        for number in range(6):
            nursery.start_soon(wait, number)
            await wait_all_tasks_blocked()
        await script.publish([b"d"])
        await wait_all_tasks_blocked()
        assert woken == [2]
        reader.offer(0)
        await wait_all_tasks_blocked()
        assert woken == [2]
        reader.offer(2)
        await wait_all_tasks_blocked()
        assert sorted(woken) == [2, 3, 4]
        reader.look()
        await wait_all_tasks_blocked()
        assert sorted(woken) == [0, 1, 2, 3, 4, 5]


async def test_who_is_woken_and_leaves_has_another_one_woken() -> None:
    async with joined() as (_, reader, _, _), trio.open_nursery() as nursery:
        woken: list[int] = []
        leaves = trio.CancelScope()

        async def wait(number: int, scope: trio.CancelScope) -> None:
            with scope:
                await reader.wait(5, number)
                woken.append(number)

        for number, scope in ((1, leaves), (2, trio.CancelScope())):
            nursery.start_soon(wait, number, scope)
            await wait_all_tasks_blocked()
        leaves.cancel()
        reader.offer(1)
        await wait_all_tasks_blocked()
        assert woken == [2]


async def test_commits_that_come_together_are_made_together(monkeypatch: pytest.MonkeyPatch) -> None:
    async with joined() as (_, reader, member, _), trio.open_nursery() as nursery:
        commit, made, gate = member.commit, list[Mapping[int, object]](), trio.Event()

        async def slow(self: ScriptedMember, positions: Mapping[int, tuple[int, str]]) -> None:
            made.append(positions)
            await gate.wait()
            await commit(positions)

        monkeypatch.setattr(ScriptedMember, "commit", slow)
        for _ in range(4):
            nursery.start_soon(reader.commit, [0])
            await wait_all_tasks_blocked()
        gate.set()
        nursery.start_soon(moved, reader, [7])
    assert made == [{0: (3, "")}] * 2, "the second one is of all who came while the first was made"
    assert member.group.committed == {0: (3, "")}


async def moved(reader: SourceGroupReader, partitions: Collection[int]) -> None:
    with pytest.raises(CommitRefused, match="another member's") as refused:
        await reader.commit(partitions)
    assert refused.value.code == RefusalCode.MOVED


async def test_what_is_not_its_own_is_committed_by_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither what it does not have, nor anything when it has left."""
    async with joined() as (_, reader, member, _):
        monkeypatch.setattr(ScriptedMember, "commit", None)  # is not called
        await moved(reader, [7])
        reader.close()
        await reader.wait_left()
        await moved(reader, [0])
        assert not member.group.members


async def test_a_commit_of_which_nothing_is_known_is_said(
    monkeypatch: pytest.MonkeyPatch, log_lines: list[EventDict]
) -> None:
    async def broken(self: ScriptedMember, positions: Mapping[int, tuple[int, str]]) -> None:
        raise OSError("cut off")

    async with joined() as (_, reader, _, _):
        monkeypatch.setattr(ScriptedMember, "commit", broken)
        with pytest.raises(CommitRefused, match="not known whether") as refused:
            await reader.commit([0])
        assert (refused.value.code, refused.value.retry) == (RefusalCode.UNAVAILABLE, True)
    assert "a source failed to commit" in [line["event"] for line in log_lines]


async def test_what_nobody_asked_to_have_committed_is_so_before_long(monkeypatch: pytest.MonkeyPatch) -> None:
    """And tried again where that did not work."""
    monkeypatch.setattr(group_reader, "LOOK_SECONDS", 0.01)
    async with joined() as (sink, _, member, _):
        refusals = [CommitRefused(RefusalCode.UNAVAILABLE, "not now", retry=True)]
        commit = ScriptedMember.commit

        async def once_refused(self: ScriptedMember, positions: Mapping[int, tuple[int, str]]) -> None:
            if refusals:
                raise refusals.pop()
            await commit(self, positions)

        monkeypatch.setattr(ScriptedMember, "commit", once_refused)
        sink.uncommitted.add(0)
        while member.group.committed != {0: (3, "")}:
            await trio.lowlevel.checkpoint()
        assert (sink.uncommitted, refusals) == (set(), [])


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (CommitRefused(RefusalCode.GROUP_IN_USE, "no"), RefusalCode.GROUP_IN_USE),
        (OSError("no"), RefusalCode.INTERNAL_ERROR),
    ],
)
async def test_why_a_member_is_over_is_said(
    monkeypatch: pytest.MonkeyPatch, log_lines: list[EventDict], error: Exception, code: str
) -> None:
    async with joined() as (sink, reader, member, _):

        async def raises(self: ScriptedMember) -> GroupAssignment:
            raise error

        monkeypatch.setattr(ScriptedMember, "next_assignment", raises)
        member.give(0)  # the last one of those that were waited for before
        await reader.wait_left()
        assert sink.ended is not None
        assert sink.ended.code == code
        with pytest.raises(SubscribeRefused) as refused:
            await reader.wait_ready(0)
        assert refused.value.code == code
    assert ("a group reader failed" in [line["event"] for line in log_lines]) is isinstance(error, OSError)


async def test_a_group_that_takes_long_to_join_is_not_waited_for_for_ever() -> None:
    async with gateway_of() as (gateway, _):
        reader = join(gateway, Sink(gateway))
        with pytest.raises(SubscribeRefused, match="in time") as refused:
            await reader.wait_ready(0)
        assert refused.value.code == RefusalCode.UNAVAILABLE
        with pytest.raises(CommitRefused, match="another member's"):
            await reader.commit([0])  # it has nothing yet
        await reader.wait_ready(5)


async def test_a_source_that_does_not_run_or_has_no_groups_is_not_joined() -> None:
    async with gateway_of(writable=False) as (gateway, script):
        with pytest.raises(SubscribeRefused, match="keeps no groups") as refused:
            join(gateway, Sink(gateway))
        assert refused.value.code == RefusalCode.GROUP
        await script.fail(SourceFailed("gone"))
        while gateway.running_source("s") is not None:
            await trio.lowlevel.checkpoint()
        with pytest.raises(SubscribeRefused, match="does not run") as refused:
            join(gateway, Sink(gateway))
        assert refused.value.code == RefusalCode.UNAVAILABLE


async def test_a_group_that_cannot_be_read_just_now_is_tried_again(
    monkeypatch: pytest.MonkeyPatch, log_lines: list[EventDict]
) -> None:
    monkeypatch.setattr(group_reader, "AGAIN_SECONDS", 0.01)
    async with joined() as (sink, reader, member, script):
        sink.gateway.draining = True
        member.give()
        member.give(0)
        while "a group cannot be read; it is tried again" not in [line["event"] for line in log_lines]:
            await trio.lowlevel.checkpoint()
        sink.gateway.draining = False
        await script.publish([b"d"])
        while sink.heard[-1] != 3:
            await reader.wait(5, "anybody")
        assert sink.heard[4:] == ["given nothing", "given 0", 0, 1, 2, 3]
        assert sink.ended is None


async def test_a_reader_whose_rights_are_withdrawn_is_over(monkeypatch: pytest.MonkeyPatch) -> None:
    async with joined() as (sink, reader, _, _):
        refusal = Refusal(RefusalCode.FORBIDDEN, "no more")
        monkeypatch.setattr(sink.gateway.hooks, "authorize", lambda *args: refusal)
        reader.rewind()
        await reader.wait_left()
        assert sink.ended is not None
        assert sink.ended.code == RefusalCode.UNKNOWN_SOURCE  # to whom it is forbidden
