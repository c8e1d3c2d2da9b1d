"""Members of a group, at a coordinator that does what the test says."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import cast

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from kiwi_gw.api import CommitRefused, GroupAssignment, Positions, RefusalCode, Sharing
from kiwi_kafka.client.group_member import TopicGroupMember
from kiwi_kafka.client.groups import GroupClient
from kiwi_kafka.client.requests import MemberAssignment
from kiwi_kafka.ports import GroupMembership
from tests.plugins.kafka.scripted_coordinator import (
    ILLEGAL_GENERATION,
    REBALANCING,
    Coordinator,
)

NOT_COORDINATOR, TOO_LONG, TOPIC_DENIED, GROUP_DENIED, GROUP_FULL = 16, 12, 29, 30, 81
SESSION = 6.0


@dataclass
class Member:
    """A member, as its user sees it."""

    member: TopicGroupMember
    scope: trio.CancelScope = field(default_factory=trio.CancelScope)
    has: dict[int, tuple[int, str]] = field(default_factory=dict)
    heard: list[GroupAssignment] = field(default_factory=list)

    async def until(self, *partitions: int) -> GroupAssignment:
        """Take assignments until it has these."""
        while True:
            news = await self.member.next_assignment()
            self.heard.append(news)
            kept = {p: cursor for p, cursor in self.has.items() if p in news.kept}
            self.has = kept | dict(news.given)
            if self.has.keys() == set(partitions):
                return news

    async def refuses(self, positions: dict[int, tuple[int, str]]) -> str:
        with pytest.raises(CommitRefused) as refused:
            await self.member.commit(positions)
        return refused.value.code


class Gateways:
    """Make members, each as a gateway of its own has one."""

    def __init__(self, coordinator: Coordinator, nursery: trio.Nursery, partitions: Collection[int]) -> None:
        self._coordinator, self._nursery = coordinator, nursery
        self.partitions = set(partitions)
        self.begins = dict.fromkeys(range(8), 100)
        self.begin_takes = 0.0

    def join(self, kind: str = "kiwi-gw.shared", sharing: Sharing = Sharing.SPREAD) -> Member:
        async def begin() -> Positions:
            await trio.sleep(self.begin_takes)
            return self.begins

        membership = GroupMembership("g", "t", kind, sharing, SESSION, lambda: self.partitions, begin)
        made = Member(TopicGroupMember(cast("GroupClient", self._coordinator), membership))

        async def run() -> None:
            with made.scope:
                await made.member.run()

        self._nursery.start_soon(run)
        return made


@asynccontextmanager
async def gateways(coordinator: Coordinator, partitions: int = 4) -> AsyncIterator[Gateways]:
    with trio.fail_after(600):
        async with trio.open_nursery() as nursery:
            yield Gateways(coordinator, nursery, range(partitions))
            nursery.cancel_scope.cancel()


async def test_both_begin_where_the_group_begins(autojump_clock: MockClock) -> None:
    """Two that come together: what one has committed says nothing of the other's partitions."""
    coordinator = Coordinator(delay=3)
    async with gateways(coordinator) as there:
        both = there.join(), there.join()
        given = [(await one.member.next_assignment()).given for one in both]
        assert [len(each) for each in given] == [2, 2]
        assert {**given[0], **given[1]} == dict.fromkeys(range(4), (100, ""))
        assert coordinator.committed == dict.fromkeys(range(4), (100, ""))


async def test_a_new_partition_begins_with_its_first_event(autojump_clock: MockClock) -> None:
    coordinator = Coordinator()
    async with gateways(coordinator, 1) as there:
        one = there.join()
        await one.until(0)
        there.partitions.add(1)
        news = await one.until(0, 1)
        assert news == GroupAssignment({1: (0, "")}, frozenset({0}))


async def test_a_commit_while_the_others_have_not_begun_yet(autojump_clock: MockClock) -> None:
    """The old generation is over and the new one has not come: it is tried again, and nothing is lost."""
    coordinator = Coordinator()
    async with gateways(coordinator) as there:
        one = there.join()
        await one.until(0, 1, 2, 3)
        two = there.join()
        await coordinator.until("preparing")
        joined = await coordinator.until_held("JoinGroup")
        assert coordinator.state == "completing"
        async with trio.open_nursery() as nursery:
            nursery.start_soon(one.member.commit, {0: (101, "x")})
            await trio.sleep(1)
            joined.set()
        assert coordinator.committed[0] == (101, "x")
        assert ILLEGAL_GENERATION in [code for code, _ in coordinator.refused]
        news = await one.until(0, 1)
        assert news == GroupAssignment({}, frozenset({0, 1}), 2)
        await two.until(2, 3)
        assert await one.refuses({2: (101, "")}) == RefusalCode.MOVED


async def test_a_commit_does_not_outlive_what_it_was_made_for(autojump_clock: MockClock) -> None:
    """It has lost the partition and has it again: another may have gone on in it meanwhile."""
    coordinator = Coordinator()
    async with gateways(coordinator, 1) as there:
        one = there.join()
        await one.until(0)
        coordinator.says["OffsetCommit"] = [REBALANCING]
        codes: list[str] = []

        async def commit() -> None:
            codes.append(await one.refuses({0: (101, "old")}))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(commit)
            held = await coordinator.until_held("OffsetCommit")
            coordinator.put_out("member-1")
            await one.until()
            coordinator.committed[0] = (105, "another's")
            await one.until(0)
            held.set()
        assert codes == [RefusalCode.MOVED]
        assert coordinator.committed[0] == (105, "another's")


async def test_what_was_not_taken_yet_cannot_be_committed(autojump_clock: MockClock) -> None:
    coordinator = Coordinator()
    async with gateways(coordinator, 1) as there:
        one = there.join()
        await coordinator.until("stable")
        await trio.sleep(1)
        assert await one.refuses({0: (1, "")}) == RefusalCode.MOVED
        await one.until(0)
        await one.member.commit({0: (101, "")})


@pytest.mark.parametrize("what", ["Heartbeat", "SyncGroup"])
async def test_who_stood_still_does_not_believe_an_old_answer(autojump_clock: MockClock, what: str) -> None:
    """The answer that it is alive has waited for it all that time."""
    coordinator = Coordinator()
    async with gateways(coordinator, 1) as there:
        one = there.join()
        await one.until(0)
        there.partitions.add(1)  # for which it joins anew
        (await coordinator.until_held(what)).set()
        autojump_clock.jump(20)
        await wait_all_tasks_blocked()
        assert await one.refuses({0: (101, "")}) == RefusalCode.MOVED
        await one.until()
        await one.until(0, 1)
        assert coordinator.refused == [], "it does not even ask"


async def test_who_waits_for_others_to_join_is_alive(autojump_clock: MockClock) -> None:
    """They may take longer than its session."""
    coordinator = Coordinator(patience=2 * SESSION)
    async with gateways(coordinator, 1) as there:
        one = there.join()
        await one.until(0)
        coordinator.add_silent_member()
        await trio.sleep(SESSION / 3 + 1.5 * SESSION)
        await one.member.commit({0: (101, "")})
        assert (coordinator.state, len(one.heard)) == ("preparing", 1)
        news = await one.until(0)
        assert news == GroupAssignment({}, frozenset({0}))


async def test_an_answer_about_a_generation_that_is_over(autojump_clock: MockClock) -> None:
    """It says nothing of the present one."""
    coordinator = Coordinator()
    async with gateways(coordinator) as there:
        one = there.join()
        await one.until(0, 1, 2, 3)
        there.join()
        await coordinator.until("preparing")
        joined = await coordinator.until_held("JoinGroup")
        async with trio.open_nursery() as nursery:
            nursery.start_soon(one.member.commit, {0: (101, "x")})
            refused = await coordinator.until_held("OffsetCommit")
            joined.set()
            await one.until(0, 1)
            refused.set()
        assert [code for code, _ in coordinator.refused] == [ILLEGAL_GENERATION]
        assert (coordinator.committed[0], len(one.heard)) == ((101, "x"), 2)


async def test_one_lost_heartbeat_costs_nothing(autojump_clock: MockClock) -> None:
    """Nobody answers for nearly as long as the session."""
    coordinator = Coordinator()
    async with gateways(coordinator, 1) as there:
        one = there.join()
        await one.until(0)
        coordinator.away = True
        await trio.sleep(SESSION - 1.5)
        coordinator.away = False
        await trio.sleep(3 * SESSION)
        assert coordinator.generation == 1
        await one.member.commit({0: (101, "")})
        assert len(one.heard) == 1


async def test_who_has_died_is_missed_when_its_session_is_over(autojump_clock: MockClock) -> None:
    """However long ago it joined, and though one had to ask twice in between: all ask at the same moments."""
    coordinator = Coordinator()
    async with gateways(coordinator, 2) as there:
        one = there.join()
        await one.until(0, 1)
        two = there.join()
        await two.until(1)
        await one.until(0)
        await trio.sleep(10 * SESSION)
        coordinator.says["Heartbeat"] = [NOT_COORDINATOR]
        await trio.sleep(2 * SESSION)
        assert not coordinator.says["Heartbeat"]
        coordinator.away = True
        two.scope.cancel()
        await trio.sleep(0.1)
        coordinator.away = False
        last = min(member.heard for member in coordinator.members.values())
        await one.until(0, 1)
        assert SESSION <= trio.current_time() - last < SESSION + 0.3


async def test_a_cluster_that_is_away_for_longer(autojump_clock: MockClock) -> None:
    """It has nothing meanwhile, and is no stranger afterwards: nobody waits for who it was."""
    coordinator = Coordinator()
    async with gateways(coordinator, 1) as there:
        one = there.join()
        await one.until(0)
        coordinator.away = True
        await one.until()
        assert await one.refuses({0: (101, "")}) == RefusalCode.MOVED
        for member in coordinator.members.values():
            member.heard = trio.current_time() + 30  # a coordinator that begins gives everybody a session
        coordinator.away = False
        with trio.fail_after(3):
            await one.until(0)
        assert list(coordinator.members) == ["member-1"]


async def test_a_beginning_that_takes_long_is_tried_again(autojump_clock: MockClock) -> None:
    """It was put out before it knew where the group begins: that is no reason to give up."""
    coordinator = Coordinator()
    async with gateways(coordinator, 1) as there:
        there.begin_takes = SESSION + 1
        one = there.join()
        await trio.sleep(there.begin_takes)
        there.begin_takes = 0
        await one.until(0)
        assert one.has == {0: (100, "")}
        assert coordinator.refused


async def test_who_has_missed_a_generation_begins_anew(autojump_clock: MockClock) -> None:
    """Others may have had in it what it has before and afterwards."""
    coordinator = Coordinator()
    async with gateways(coordinator, 1) as there:
        one = there.join()
        await one.until(0)
        coordinator.says |= {"Heartbeat": [REBALANCING], "SyncGroup": [REBALANCING]}
        await one.until()
        news = await one.until(0)
        assert (news.given, coordinator.generation) == ({0: (100, "")}, 3)


@pytest.mark.parametrize("data", [b"", bytes(MemberAssignment(0, [("t", [0])], b"").encode())])
async def test_a_group_that_somebody_else_leads(autojump_clock: MockClock, data: bytes) -> None:
    """Kafka itself shares out the partitions of consumers of its newer protocol, and lets older ones join."""
    coordinator = Coordinator(assigns=data)
    async with gateways(coordinator) as there:
        one = there.join()
        with pytest.raises(CommitRefused) as refused:
            await one.until(0)
        assert refused.value.code == RefusalCode.GROUP_IN_USE
        await coordinator.until("empty")


async def test_another_kind(autojump_clock: MockClock) -> None:
    coordinator = Coordinator()
    async with gateways(coordinator) as there:
        await there.join().until(0, 1, 2, 3)
        with pytest.raises(CommitRefused) as refused:
            await there.join("kiwi-gw.failover", Sharing.ONE).until(0)
        assert refused.value.code == RefusalCode.GROUP_IN_USE
        assert len(coordinator.members) == 1


async def test_who_may_not_even_leave(autojump_clock: MockClock) -> None:
    """Its right to the group is taken away."""
    coordinator = Coordinator()
    async with gateways(coordinator) as there:
        one = there.join()
        await one.until(0, 1, 2, 3)
        coordinator.denied = True
        with pytest.raises(CommitRefused) as refused:
            await one.until()
        assert refused.value.code == RefusalCode.ORIGIN_DENIED
        assert await one.refuses({0: (101, "")}) == RefusalCode.MOVED


@pytest.mark.parametrize(
    ("says", "code"),
    [
        (TOPIC_DENIED, RefusalCode.ORIGIN_DENIED),
        (GROUP_DENIED, RefusalCode.ORIGIN_DENIED),
        (TOO_LONG, RefusalCode.POSITIONS),
    ],
)
async def test_why_a_commit_is_refused(autojump_clock: MockClock, says: int, code: str) -> None:
    coordinator = Coordinator()
    async with gateways(coordinator, 1) as there:
        one = there.join()
        await one.until(0)
        coordinator.says["OffsetCommit"] = [says]
        began = trio.current_time()
        assert await one.refuses({0: (101, "")}) == code
        assert trio.current_time() - began < 1
        await one.member.commit({0: (101, "")})


async def test_what_passes_is_tried_again(autojump_clock: MockClock) -> None:
    coordinator = Coordinator(says={"JoinGroup": [GROUP_FULL, 14, 16], "SyncGroup": [15]})
    async with gateways(coordinator, 1) as there:
        await there.join().until(0)


async def test_who_goes_while_it_joins_is_waited_for_by_nobody(autojump_clock: MockClock) -> None:
    coordinator = Coordinator()
    async with gateways(coordinator) as there:
        one = there.join()
        await one.until(0, 1, 2, 3)
        two = there.join()
        await coordinator.until("completing")
        two.scope.cancel()
        began = trio.current_time()
        await one.until(0, 1, 2, 3)
        await coordinator.until("stable")
        assert (len(coordinator.members), trio.current_time() - began < SESSION / 2) == (1, True)


@pytest.mark.parametrize(
    "seed", [0, 1, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(2, 20))]
)
async def test_whatever_happens_no_cursor_goes_back(autojump_clock: MockClock, seed: int) -> None:
    """Members come and go, are put out and hear nothing for a while: who can commit has begun where the last
    one was that could."""
    coordinator, chosen = Coordinator(), random.Random(seed)
    done = 0

    async def use(one: Member) -> None:
        nonlocal done
        while True:
            with trio.move_on_after(chosen.random()):
                await one.until(-1)
            for partition, (offset, _) in list(one.has.items()):
                one.has[partition] = offset + 1, ""
            if wanted := dict(list(one.has.items())[: chosen.randrange(3)]):
                try:
                    await one.member.commit(wanted)
                except CommitRefused as refused:
                    assert refused.code in (RefusalCode.MOVED, RefusalCode.UNAVAILABLE)  # noqa: PT017
                else:
                    assert all(coordinator.committed[p] >= cursor for p, cursor in wanted.items())
                    done += 1

    async with gateways(coordinator) as there, trio.open_nursery() as users:
        members = [there.join() for _ in range(3)]
        for each in members:
            users.start_soon(use, each)
        for _ in range(60):
            await trio.sleep(chosen.random() * 2)
            match chosen.randrange(5):
                case 0:
                    members.pop(0).scope.cancel()
                    members.append(there.join())
                    users.start_soon(use, members[-1])
                case 1 if coordinator.members:
                    coordinator.put_out(chosen.choice(list(coordinator.members)))
                case 2:
                    coordinator.away = True
                    await trio.sleep(chosen.random() * 8)
                    coordinator.away = False
                case 3:
                    answers = ["JoinGroup", "SyncGroup", "Heartbeat", "OffsetCommit"]
                    coordinator.held[name := chosen.choice(answers)] = held = trio.Event()
                    await trio.sleep(chosen.random() * 4)
                    del coordinator.held[name]
                    held.set()
                case _:
                    there.partitions = set(range(chosen.randrange(1, 5)))
        users.cancel_scope.cancel()
    assert done > 20
    assert not coordinator.went_back
