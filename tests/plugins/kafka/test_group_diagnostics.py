"""What `kiwi-gw check` says of groups, over a cluster in memory."""

from __future__ import annotations

import pytest
import trio
from trio.testing import MockClock

from kiwi_gw.api import CommitRefused, RefusalCode
from kiwi_kafka.group_diagnostics import MOST_SHOWN, SoughtGroups, check_groups
from tests.plugins.kafka.fakes import FakeCluster

SOUGHT = [SoughtGroups("p/orders/", "orders", "t"), SoughtGroups("p/prices/", "prices", "u")]


@pytest.fixture
def cluster() -> FakeCluster:
    found = FakeCluster()
    found.create("t", 3)
    for partition in range(3):
        found.add("t", partition, *[b"x"] * 10)
    return found


def commit(cluster: FakeCluster, group: str, topic: str = "t", **offsets: int) -> None:
    cluster.kept.offsets[group, topic] = {int(p.removeprefix("p")): (o, "") for p, o in offsets.items()}


async def said(cluster: FakeCluster) -> list[tuple[str, str, str]]:
    found = await check_groups(cluster, SOUGHT)
    return [(each.level, each.subject, each.message) for each in found]


async def test_lag_and_members(cluster: FakeCluster) -> None:
    commit(cluster, "p/orders/billing", p0=10, p1=4, p2=9)
    commit(cluster, "p/orders/audit", p0=0, p1=0, p2=0)
    cluster.kept.members["p/orders/audit"] = 2, "shared"
    cluster.kept.members["p/orders/new"] = 1, "exclusive"
    commit(cluster, "another's/orders/x", p0=3)
    commit(cluster, "p/ordersx", p0=3)
    assert await said(cluster) == [
        ("ok", "kafka group p/orders/audit", "topic t; lag: 30; members: 2 (shared)"),
        ("ok", "kafka group p/orders/billing", "topic t; lag: 7; no members"),
        ("ok", "kafka group p/orders/new", "topic t; lag: nothing is committed yet; members: 1 (exclusive)"),
    ]
    first, *_ = await check_groups(cluster, SOUGHT)
    assert first.where == ("sources", "orders")


async def test_a_new_partition_counts_from_its_first_record(cluster: FakeCluster) -> None:
    cluster.forget("t", 2, 4)
    commit(cluster, "p/orders/s", p0=10, p1=12)  # further than there is: nothing
    assert [message for _, _, message in await said(cluster)] == ["topic t; lag: 6; no members"]


async def test_a_topic_that_is_not_there(cluster: FakeCluster) -> None:
    commit(cluster, "p/prices/s", "u", p0=3)
    ((level, _, message),) = await said(cluster)
    assert (level, message) == ("ok", "topic u; lag: not known, the topic is not there; no members")


async def test_there_are_none(cluster: FakeCluster) -> None:
    assert await said(cluster) == [("ok", "kafka groups", "clients have made none yet")]


async def test_the_longest_name_that_fits(cluster: FakeCluster) -> None:
    commit(cluster, "p/orders/old/s", p0=3)
    cluster.create("old")
    sought = [*SOUGHT, SoughtGroups("p/orders/old/", "old", "old")]
    (finding,) = await check_groups(cluster, sought)
    assert finding.where == ("sources", "old")


async def test_of_many_some_are_shown(cluster: FakeCluster) -> None:
    for number in range(MOST_SHOWN + 20):
        commit(cluster, f"p/orders/{number:03}", p0=10, p1=10, p2=10)
    *shown, last = await said(cluster)
    assert [subject[-3:] for _, subject, _ in shown] == [f"{number:03}" for number in range(MOST_SHOWN)]
    assert last == ("ok", "kafka groups", "20 more, which are not shown")


async def test_who_does_not_answer_holds_up_nothing(cluster: FakeCluster, autojump_clock: MockClock) -> None:
    for name in "abcdefghijkl":
        commit(cluster, f"p/orders/{name}", p0=10, p1=10, p2=10)
    cluster.kept.silent.add("p/orders/c")
    cluster.unlisted = frozenset({2, 1})
    with trio.fail_after(10):
        *shown, late, silent = await said(cluster)
        assert trio.current_time() == pytest.approx(5, abs=0.1)
    assert [subject[-1] for _, subject, _ in shown] == list("abdefghijkl")
    assert late == ("warning", "kafka groups", "1 of them: no answer in time")
    assert silent == ("warning", "kafka groups", "those of broker 1, 2 are not known")


async def test_nobody_answers(cluster: FakeCluster, autojump_clock: MockClock) -> None:
    cluster.frozen = True
    assert await said(cluster) == [("error", "kafka groups", "nobody answers")]
    with trio.fail_after(3):
        assert await said(cluster) == [
            ("error", "kafka groups", "the brokers do not say in time which there are")
        ]


async def test_a_group_of_which_nothing_may_be_known(
    cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def refuse(group: str) -> tuple[int, str]:
        await trio.lowlevel.checkpoint()
        raise CommitRefused(RefusalCode.ORIGIN_DENIED, "no right to the group")

    commit(cluster, "p/orders/s", p0=3)
    monkeypatch.setattr(cluster.kept, "state", refuse)
    assert await said(cluster) == [("warning", "kafka group p/orders/s", "no right to the group")]
