"""A log that is cut off and grows again, and a topic that is made anew, are told from what was read."""

from __future__ import annotations

import pytest
import trio
from trio.testing import MockClock

from kiwi_gw.api import Lineage as AnyLineage
from kiwi_gw.api import Positions, SourceChanged, Traced
from kiwi_kafka.columns import Fetched
from kiwi_kafka.epochs import Epochs
from kiwi_kafka.lineage import Lineage
from kiwi_kafka.positions import BY_TOPIC
from tests.plugins.kafka.fakes import FakeTransport, Nobody, Run, pool_on


def written(lineage: AnyLineage, positions: Positions) -> dict[str, object]:
    return BY_TOPIC.dump(positions) | dict(lineage.marks(positions))


@pytest.fixture
def cluster() -> FakeTransport:
    cluster = FakeTransport()
    cluster.create("t")
    cluster.elect("t")
    return cluster


async def running(kafka: object, nursery: trio.Nursery, start: dict[int, int] | None = None) -> Run:
    run = Run(kafka, "t")  # type: ignore[arg-type]
    nursery.start_soon(run, start)
    await trio.sleep(1)
    return run


async def test_a_log_that_was_cut_off_and_has_grown_again_ends_the_source(
    autojump_clock: MockClock, cluster: FakeTransport
) -> None:
    async with pool_on(cluster) as kafka, trio.open_nursery() as nursery:
        run = await running(kafka, nursery)
        cluster.add("t", 0, b"0", b"1", b"2")
        await trio.sleep(1)
        cluster.elect("t", [1])
        cluster.add("t", 0, b"new 1", b"new 2", b"new 3", b"new 4")
        with trio.fail_after(10):
            await run.ended.wait()
        assert run.values == [b"0", b"1", b"2"], "nothing of the other log"
        assert isinstance(run.error, SourceChanged)
        assert "ends at offset 1, before 3" in str(run.error)
        again = await running(kafka, nursery)
        cluster.add("t", 0, b"new 5")
        await trio.sleep(1)
        assert again.values == [b"new 5"]
        nursery.cancel_scope.cancel()


async def test_another_leader_with_the_same_log_costs_one_question_and_no_record(
    autojump_clock: MockClock,
    cluster: FakeTransport,
) -> None:
    async with pool_on(cluster) as kafka, trio.open_nursery() as nursery:
        run = await running(kafka, nursery)
        for number in range(3):
            cluster.add("t", 0, b"%d" % number, b"more")
            await trio.sleep(1)
            cluster.elect("t")
            asked = len(cluster.epochs_asked)
        cluster.add("t", 0, *(b"last",) * 5)
        await trio.sleep(2)
        cluster.add("t", 0, b"very last")
        await trio.sleep(1)
        assert len(cluster.epochs_asked) == asked + 1
        values = [b"0", b"more", b"1", b"more", b"2", b"more", *(b"last",) * 5, b"very last"]
        assert run.values == values
        assert [record["offset"] for record in run.out.records] == list(range(len(values)))
        assert run.error is None
        nursery.cancel_scope.cancel()


async def test_history_of_a_log_that_was_cut_off_is_not_served(
    autojump_clock: MockClock, cluster: FakeTransport
) -> None:
    """Though nothing new has come since, so that the live reader could not see it."""
    async with pool_on(cluster) as kafka, trio.open_nursery() as nursery:
        run = await running(kafka, nursery)
        cluster.add("t", 0, b"0", b"1", b"2")
        await trio.sleep(1)
        cluster.elect("t", [1])
        cluster.add("t", 0, b"new 1", b"new 2")
        cluster.deaf = False
        async with run.source.read_from({0: 1}) as history:  # type: ignore[attr-defined]
            with trio.fail_after(10), pytest.raises(SourceChanged, match="cut off"):
                await history.read({0: 3})
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize("anew", [False, True])
async def test_positions_of_another_history_are_refuted_after_a_reconnect(
    autojump_clock: MockClock, cluster: FakeTransport, anew: bool
) -> None:
    async with pool_on(cluster) as kafka, trio.open_nursery() as nursery:
        run = await running(kafka, nursery)
        assert isinstance(run.source, Traced)
        cluster.add("t", 0, b"0", b"1", b"2")
        await trio.sleep(1)
        given = written(run.source.lineage, {0: 3})
        assert given == {"0": 3, "topic": "AAAAAAAAAAAAAAAAAAAAAQ", "epochs": {"0": [0, 3]}}
        assert BY_TOPIC.load(given) == {0: 3}
        run.scope.cancel()
        await run.ended.wait()
    # Another gateway, which has not seen any of it.
    if anew:
        cluster.create("t")
    cluster.elect("t", [1] if not anew else [0])
    cluster.add("t", 0, *(b"new",) * 9)
    async with pool_on(cluster) as kafka, trio.open_nursery() as nursery:
        lineage = (await running(kafka, nursery)).source.lineage  # type: ignore[attr-defined]
        if not anew:
            assert not lineage.knows(given)
            await lineage.learn([given])
        assert lineage.knows(given)
        words = "deleted and created anew" if anew else "was cut off"
        assert words in str(lineage.refuted(given))
        assert lineage.refuted({"0": 3}) is None, "bare offsets are taken as they are"
        assert lineage.knows({"0": 3})
        nursery.cancel_scope.cancel()


async def test_positions_that_a_client_moved_on_are_good_after_a_change_of_leader(
    autojump_clock: MockClock,
    cluster: FakeTransport,
) -> None:
    async with pool_on(cluster) as kafka, trio.open_nursery() as nursery:
        run = await running(kafka, nursery)
        cluster.add("t", 0, b"0", b"1", b"2")
        await trio.sleep(1)
        given = written(run.source.lineage, {0: 2})  # type: ignore[attr-defined]
        cluster.elect("t")
        cluster.add("t", 0, b"3", b"4")
        await trio.sleep(1)
        given["0"] = 5  # as the README's snippet does, whose other members stay
        lineage = run.source.lineage  # type: ignore[attr-defined]
        await lineage.learn([given])
        assert lineage.refuted(given) is None
        nursery.cancel_scope.cancel()


async def test_an_epoch_that_never_was_is_of_another_history(
    autojump_clock: MockClock, cluster: FakeTransport
) -> None:
    async with pool_on(cluster) as kafka, trio.open_nursery() as nursery:
        lineage = (await running(kafka, nursery)).source.lineage  # type: ignore[attr-defined]
        given = {"0": 0, "epochs": {"0": [77, 5], "9999": [3, 3]}}
        with trio.fail_after(5):
            await lineage.learn([given] * 100)
        assert lineage.refuted(given | {"0": 4}) is not None
        nursery.cancel_scope.cancel()


async def test_a_cluster_without_epochs_is_read_as_before(autojump_clock: MockClock) -> None:
    cluster = FakeTransport()
    cluster.create("t")
    async with pool_on(cluster) as kafka, trio.open_nursery() as nursery:
        run = await running(kafka, nursery)
        cluster.add("t", 0, b"0", b"1")
        await trio.sleep(1)
        assert run.values == [b"0", b"1"]
        assert set(run.source.lineage.marks({0: 2})) == {"topic"}  # type: ignore[attr-defined]
        given = {"0": 1, "epochs": {"0": [3, 1]}}
        await run.source.lineage.learn([given])  # type: ignore[attr-defined]
        assert run.source.lineage.refuted(given) is None  # type: ignore[attr-defined]
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize(
    "extra",
    [
        {"topic": 1},
        {"epochs": 1},
        {"epochs": {"0": 1}},
        {"epochs": {"0": [1]}},
        {"epochs": {"0": [1, -1]}},
        {"epochs": {"0": [True, 1]}},
        {"epochs": {"x": [1, 1]}},
        {"epochs": {"0": [2**31, 1]}},
        {"other": 1},
    ],
)
def test_members_that_were_not_written_here_are_refused(extra: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=r"topic must|epochs must|is not a partition number"):
        BY_TOPIC.load({"0": 1} | extra)


async def test_what_clients_make_up_is_neither_asked_nor_kept(
    autojump_clock: MockClock, cluster: FakeTransport
) -> None:
    async with pool_on(cluster) as kafka, trio.open_nursery() as nursery:
        lineage = (await running(kafka, nursery)).source.lineage  # type: ignore[attr-defined]
        asked = len(cluster.epochs_asked)
        partitions = {str(partition): [partition, 1] for partition in range(1, 5_000)}
        epochs = [{"0": 0, "epochs": {"0": [epoch, 5]}} for epoch in range(1, 5_000)]
        with trio.fail_after(5):
            await lineage.learn([{"0": 0, "epochs": partitions}, *epochs])
        assert len(cluster.epochs_asked) == asked
        assert not lineage._ends
        nursery.cancel_scope.cancel()


async def test_a_leader_that_does_not_answer_is_asked_again(
    autojump_clock: MockClock, cluster: FakeTransport
) -> None:
    async with pool_on(cluster) as kafka, trio.open_nursery() as nursery:
        cluster.add("t", 0, b"0", b"1")
        cluster.elect("t")
        cluster.add("t", 0, b"2")
        lineage = (await running(kafka, nursery)).source.lineage  # type: ignore[attr-defined]
        cluster.frozen = True
        nursery.start_soon(lineage.learn, [{"0": 2, "epochs": {"0": [0, 2]}}])
        await trio.sleep(5)
        assert not lineage.knows({"0": 2, "epochs": {"0": [0, 2]}})
        cluster.frozen = False
        await trio.sleep(5)
        assert lineage.knows({"0": 2, "epochs": {"0": [0, 2]}})
        assert lineage.refuted({"0": 2, "epochs": {"0": [0, 2]}}) is None
        nursery.cancel_scope.cancel()


def batch(first: int, epoch: int, size: int = 60) -> bytes:
    body = epoch.to_bytes(4, "big") + b"\2" + bytes(size - 5)
    return first.to_bytes(8, "big") + len(body).to_bytes(4, "big") + body


def test_epochs_are_read_off_the_heads_of_batches() -> None:
    epochs, place = Epochs(), ("t", 0)
    epochs.note(place, batch(0, 1) + batch(5, 1) + batch(9, 3) + batch(12, 3)[:40])
    assert [epochs.before(place, offset) for offset in (0, 1, 5, 9, 10, 99)] == [-1, 1, 1, 1, 3, 3]
    epochs.note(place, batch(5, 2))  # another log, from there on
    assert [epochs.before(place, offset) for offset in (5, 6, 99)] == [1, 2, 2]
    epochs.note(place, batch(20, 4)[:16] + b"\1" + bytes(50))  # a format without
    assert epochs.before(place, 99) == -1
    for first in range(100):
        epochs.note(place, batch(first, first))
    assert len(epochs._changes[place]) == 16


def test_records_of_a_later_leader_are_doubted_until_they_are_known() -> None:
    lineage = Lineage(Nobody(), "t", b"1" * 16)
    lineage.note(Fetched(0, [], 5, epoch=1))
    assert not lineage.doubts(Fetched(0, [], 6, epoch=1))
    assert lineage.doubts(Fetched(0, [], 6, epoch=2))
    lineage.adopt(0, 2, 5)
    assert not lineage.doubts(Fetched(0, [], 6, epoch=2))
    assert not lineage.doubts(Fetched(1, [], 6, epoch=2))
