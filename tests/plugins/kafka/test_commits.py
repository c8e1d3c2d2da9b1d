"""Commits of groups, gathered, over a cluster in memory."""

from __future__ import annotations

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from kiwi_gw.api import CommitRefused
from kiwi_kafka.commits import GroupCommits
from tests.plugins.kafka.fakes import FakeGroups


async def test_what_comes_within_a_moment_is_one_write(autojump_clock: MockClock) -> None:
    groups = FakeGroups()
    groups.gate.set()
    async with trio.open_nursery() as nursery:
        commits = GroupCommits(groups, nursery)
        began = trio.current_time()
        async with trio.open_nursery() as askers:
            for partition in range(5):
                askers.start_soon(commits.commit, "g", "t", {partition: (partition, "")})
            askers.start_soon(commits.commit, "other", "t", {0: (9, "")})
        assert trio.current_time() - began == pytest.approx(0.1)
        assert sorted(group for group, _ in groups.written) == ["g", "other"]
        assert groups.offsets["g", "t"] == {p: (p, "") for p in range(5)}


async def test_writes_of_a_group_keep_their_order(autojump_clock: MockClock) -> None:
    groups = FakeGroups()
    async with trio.open_nursery() as nursery:
        commits = GroupCommits(groups, nursery)
        nursery.start_soon(commits.commit, "g", "t", {0: (1, "")})
        await trio.sleep(0.2)
        nursery.start_soon(commits.commit, "g", "t", {0: (2, "")})
        await trio.sleep(0.2)
        assert groups.written == [("g", {0: (1, "")})]
        groups.gate.set()
    assert groups.written == [("g", {0: (1, "")}), ("g", {0: (2, "")})]
    assert groups.offsets["g", "t"] == {0: (2, "")}


async def test_a_cluster_that_says_nothing_leaves_a_doubt(autojump_clock: MockClock) -> None:
    async with trio.open_nursery() as nursery:
        commits = GroupCommits(FakeGroups(), nursery)
        began = trio.current_time()
        with pytest.raises(CommitRefused, match="not known whether") as refused:
            await commits.commit("g", "t", {0: (1, "")})
        assert refused.value.retry
        assert trio.current_time() - began < 4


async def test_who_is_gone_takes_no_commit_of_others_along(autojump_clock: MockClock) -> None:
    groups = FakeGroups()
    async with trio.open_nursery() as nursery:
        commits = GroupCommits(groups, nursery)
        with trio.CancelScope() as scope:
            async with trio.open_nursery() as asker:
                asker.start_soon(commits.commit, "g", "t", {0: (1, "")})
                await wait_all_tasks_blocked()
                nursery.start_soon(commits.commit, "g", "t", {1: (1, "")})
                await wait_all_tasks_blocked()
                scope.cancel()
        groups.gate.set()
    assert groups.offsets["g", "t"] == {0: (1, ""), 1: (1, "")}


@pytest.mark.parametrize("group", ["", "x" * 8193, "\u00e9" * 4097, "\ud800"])
async def test_names_that_are_none(group: str) -> None:
    async with trio.open_nursery() as nursery:
        commits = GroupCommits(FakeGroups(), nursery)
        with pytest.raises(CommitRefused) as refused:
            await commits.commit(group, "t", {0: (1, "")})
        assert (refused.value.code, refused.value.retry) == ("group", False)
        with pytest.raises(CommitRefused) as refused:
            await commits.fetch(group, "t", {0: 0})
        assert (refused.value.code, refused.value.retry) == ("group", False)
