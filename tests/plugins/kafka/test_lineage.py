"""A log that is cut off and grows again, and a topic that is made anew, are told from what was read."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from types import SimpleNamespace

import pytest
import structlog
import trio
from aiokafka.errors import IncompatibleBrokerVersion
from trio.testing import MockClock

from kiwi_gw.api import (
    EventSchema,
    HasLineage,
    OffsetRange,
    Positions,
    SourceChanged,
    SourceInfo,
)
from kiwi_gw.api import Lineage as AnyLineage
from kiwi_gw.core.notices import OpenFailed
from kiwi_gw.model import AtPositions, StartAt
from kiwi_kafka.client.admin import BrokerAdminClient
from kiwi_kafka.lineage import TopicLineage
from kiwi_kafka.ports import FetchedPartition, TopicDescription, TopicPartition, UnreachableError
from kiwi_kafka.positions import BY_TOPIC, LineagePositions
from tests.plugins.kafka.fakes import FakeCluster, Nobody, Run, pool_on
from tests.unit.core.fakes import Client, World


def written(lineage: AnyLineage, positions: Positions) -> dict[str, object]:
    return BY_TOPIC.dump(positions) | dict(lineage.marks(positions))


read = BY_TOPIC.load


@pytest.fixture
def cluster() -> FakeCluster:
    cluster = FakeCluster()
    cluster.create("t")
    cluster.elect("t")
    return cluster


async def running(kafka: object, nursery: trio.Nursery, start: dict[int, int] | None = None) -> Run:
    run = Run(kafka, "t")  # type: ignore[arg-type]
    nursery.start_soon(run, start)
    await trio.sleep(1)
    return run


@asynccontextmanager
async def reading(cluster: FakeCluster, *values: bytes) -> AsyncIterator[tuple[Run, AnyLineage]]:
    """Have a source read these values; gives it, and its lineage."""
    async with pool_on(cluster) as kafka, trio.open_nursery() as nursery:
        run = await running(kafka, nursery)
        cluster.add("t", 0, *values)
        await trio.sleep(1)
        assert isinstance(run.source, HasLineage)
        yield run, run.source.lineage
        nursery.cancel_scope.cancel()


async def test_a_log_that_was_cut_off_and_has_grown_again_ends_the_source(
    autojump_clock: MockClock, cluster: FakeCluster
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
    autojump_clock: MockClock, cluster: FakeCluster
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
    autojump_clock: MockClock, cluster: FakeCluster
) -> None:
    """Though nothing new has come since, so that the live reader could not see it."""
    async with reading(cluster, b"0", b"1", b"2") as (run, _):
        cluster.elect("t", [1])
        cluster.add("t", 0, b"new 1", b"new 2")
        cluster.deaf = False
        async with run.source.read_from({0: 1}) as history:  # type: ignore[attr-defined]
            with trio.fail_after(10), pytest.raises(SourceChanged, match="cut off"):
                await history.read({0: 3})


@pytest.mark.parametrize("anew", [False, True])
async def test_positions_of_another_history_are_refuted_after_a_reconnect(
    autojump_clock: MockClock, cluster: FakeCluster, anew: bool
) -> None:
    async with reading(cluster, b"0", b"1", b"2") as (_, lineage):
        given = written(lineage, {0: 3})
        assert given == {"0": 3, "topic": "AAAAAAAAAAAAAAAAAAAAAQ", "epochs": {"0": [0, 3]}}
        assert BY_TOPIC.load(given) == {0: 3}
    # Another gateway, which has not seen any of it.
    if anew:
        cluster.create("t")
    cluster.elect("t", [1] if not anew else [0])
    cluster.add("t", 0, *(b"new",) * 9)
    async with reading(cluster) as (_, lineage):
        if not anew:
            assert not lineage.knows(read(given))
            await lineage.learn([read(given)])
        assert lineage.knows(read(given))
        words = "deleted and created anew" if anew else "was cut off"
        assert words in str(lineage.refuted(read(given)))
        assert lineage.refuted(read({"0": 3})) is None, "bare offsets are taken as they are"
        assert lineage.knows(read({"0": 3}))


async def test_positions_that_a_client_moved_on_are_good_after_a_change_of_leader(
    autojump_clock: MockClock, cluster: FakeCluster
) -> None:
    async with reading(cluster, b"0", b"1", b"2") as (_, lineage):
        given = written(lineage, {0: 2})
        cluster.elect("t")
        cluster.add("t", 0, b"3", b"4")
        await trio.sleep(1)
        given["0"] = 5  # as the snippet in docs/guides/clients.md does, whose other members stay
        await lineage.learn([read(given)])
        assert lineage.refuted(read(given)) is None


async def test_an_epoch_that_nobody_has_heard_of_is_not_known_and_costs_no_question(
    autojump_clock: MockClock, cluster: FakeCluster
) -> None:
    """One that a client made up is never known, and never called cut off."""
    async with reading(cluster) as (_, lineage):
        given = {"0": 4, "epochs": {"0": [77, 5], "9999": [3, 3]}}
        began, asked = trio.current_time(), len(cluster.epochs_asked)
        await lineage.learn([read(given)] * 100)
        assert trio.current_time() - began < 0.1
        assert len(cluster.epochs_asked) == asked
        assert not lineage.knows(read(given))
        assert lineage.refuted(read(given)) is None
        assert lineage.unknown(read(given)) == (
            "brokers have not heard yet of epoch 77 of partition 0 of topic 't' (the newest is 0)"
        )


async def test_an_epoch_that_a_broker_knows_late_is_good_as_soon_as_it_does(
    autojump_clock: MockClock, cluster: FakeCluster
) -> None:
    async with reading(cluster, b"0", b"1") as (_, lineage):
        cluster.elect("t")
        cluster.knows_epochs = 0
        given = {"0": 2, "epochs": {"0": [1, 2]}}  # from a gateway whose broker knows of it
        await lineage.learn([read(given)])
        assert not lineage.knows(read(given))
        assert lineage.refuted(read(given)) is None
        cluster.knows_epochs = 1
        await lineage.learn([read(given)])
        assert lineage.knows(read(given))
        assert lineage.refuted(read(given)) is None


async def test_a_leader_that_does_not_say_where_an_epoch_ends_holds_up_nobody_else(
    autojump_clock: MockClock, cluster: FakeCluster
) -> None:
    cluster.elect("t")
    async with reading(cluster) as (_, lineage):
        cluster.stubborn = True
        given = {"0": 2, "epochs": {"0": [0, 2]}}
        with trio.fail_after(1):
            await lineage.learn([read(given)])
        assert not lineage.knows(read(given))
        why = lineage.unknown(read(given))
        assert why == "no leader has said where epoch 0 of partition 0 of topic 't' ends"


async def test_a_cluster_without_epochs_is_read_as_before(autojump_clock: MockClock) -> None:
    cluster = FakeCluster()
    cluster.create("t")
    async with reading(cluster, b"0", b"1") as (run, lineage):
        assert run.values == [b"0", b"1"]
        assert set(lineage.marks({0: 2})) == {"topic"}
        given = {"0": 1, "epochs": {"0": [3, 1]}}
        await lineage.learn([read(given)])
        assert lineage.refuted(read(given)) is None


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
    autojump_clock: MockClock, cluster: FakeCluster
) -> None:
    async with reading(cluster) as (_, lineage):
        asked = len(cluster.epochs_asked)
        partitions = {str(partition): [partition, 1] for partition in range(1, 5_000)}
        named: dict[str, object] = {str(partition): 1 for partition in range(5_000)}
        epochs = [read({"0": 1, "epochs": {"0": [epoch, 5]}}) for epoch in range(1, 5_000)]
        with trio.fail_after(5):
            await lineage.learn([read(named | {"epochs": partitions}), *epochs])
        assert len(cluster.epochs_asked) == asked
        assert not lineage._ends  # type: ignore[attr-defined]


async def test_what_many_clients_bring_is_looked_at_in_turns_with_others(
    autojump_clock: MockClock, cluster: FakeCluster
) -> None:
    """400 clients, each with as many partitions and epochs as go into one message (64 KiB)."""
    partitions = 2_000
    lineage = TopicLineage(Large(partitions), "t", b"1" * 16)
    names = list(map(str, range(partitions)))
    offsets: dict[str, object] = dict.fromkeys(names, 2)
    given = [read(offsets | {"epochs": {name: [n % 9, 2] for name in names}}) for n in range(400)]
    asked, turns = Large.asked, 0

    async def other() -> None:
        nonlocal turns
        while True:
            await trio.lowlevel.checkpoint()
            turns += 1

    async with trio.open_nursery() as nursery:
        nursery.start_soon(other)
        await lineage.learn(given)
        nursery.cancel_scope.cancel()
    assert turns >= 2 * len(given) - 4, "every look at one of them is a turn of its own"  # in any order
    assert Large.asked - asked == 9, "one question for each epoch, however many clients ask"
    assert all(map(lineage.knows, given))


async def test_the_newest_epochs_are_asked_for_first_and_only_so_many_at_a_time() -> None:
    large = Large(1, epoch=200)
    lineage = TopicLineage(large, "t", b"1" * 16)
    given = [read({"0": 2, "epochs": {"0": [number * 7 % 100, 2]}}) for number in range(100)]
    for known in (16, 32):
        await lineage.learn([one for one in given if not lineage.knows(one)])
        assert [*map(lineage.knows, sorted(given, key=epoch_of))] == [False] * (100 - known) + [True] * known


def epoch_of(given: Positions) -> int:
    assert isinstance(given, LineagePositions)
    return given.epochs[0][0]


async def test_a_partition_that_is_added_while_clients_are_looked_at_is_no_mistake() -> None:
    """Another source of the same topic has heard of it meanwhile."""
    large = Large(1)
    lineage = TopicLineage(large, "t", b"1" * 16)
    given = [read({"0": 2, "1": 2, "epochs": {"0": [3, 2], "1": [3, 2]}})] * 3_000
    async with trio.open_nursery() as nursery:
        nursery.start_soon(lineage.learn, given)
        await large.found.wait()
        large.grow(2)
        large.slow = True
        await lineage.learn(given[:1])
    assert all(map(lineage.knows, given))


class Large:
    """A cluster whose topic has so many partitions."""

    asked = 0

    def __init__(self, partitions: int, epoch: int = 9) -> None:
        self.found = trio.Event()
        self.slow = False
        self._epoch = epoch
        self.grow(partitions)

    def grow(self, partitions: int) -> None:
        numbers = range(partitions)
        self._info = TopicDescription(
            "t", b"1" * 16, dict.fromkeys(numbers, 1), None, dict.fromkeys(numbers, self._epoch)
        )

    async def find(self, topic: str) -> TopicDescription:
        self.found.set()
        return self._info

    async def epoch_end_offsets(self, info: TopicDescription, epochs: Mapping[int, int]) -> dict[int, int]:
        Large.asked += 1
        if self.slow:
            await trio.testing.wait_all_tasks_blocked()
        return dict.fromkeys(epochs, 5)


def test_of_what_a_client_says_of_epochs_only_what_can_matter_is_kept() -> None:
    given = read({"0": 3, "1": 0, "topic": "x", "epochs": {"0": [1, 2], "1": [1, 2], "7": [1, 2]}})
    assert given == {0: 3, 1: 0}
    assert isinstance(given, LineagePositions)
    assert (given.topic, given.epochs) == ("x", {0: (1, 2)})
    assert not isinstance(read({"0": 3}), LineagePositions)


async def test_where_a_reader_is_to_end_is_of_the_same_history_too(
    autojump_clock: MockClock, cluster: FakeCluster
) -> None:
    """`until` of a topic made anew, or of a log that was cut off, is told as `from` is."""
    async with pool_on(cluster) as kafka, trio.open_nursery() as nursery:
        cluster.add("t", 0, *(b"old",) * 9)
        cluster.elect("t", [4])
        run = await running(kafka, nursery)
        lineage = run.source.lineage  # type: ignore[attr-defined]
        world = World(
            info=SourceInfo("t", "kafka", EventSchema(()), codec=BY_TOPIC, replayable=True), start={0: 4}
        )
        assert isinstance(run.source, HasLineage)
        world.hub.lineage_source = run.source
        for start in (StartAt.LATEST, StartAt.EARLIEST, AtPositions({"0": 1})):
            for until, words in (
                ({"0": 5, "topic": "elsewhere"}, "deleted and created anew"),
                ({"0": 5, "epochs": {"0": [0, 5]}}, "was cut off"),
                ({"0": 4, "epochs": {"0": [0, 4]}}, None),
                ({"0": 5}, None),
            ):
                client = Client()
                subscription = world.subscribe(client, start=start, until=until)
                if subscription in world.hub.unresolved:
                    await lineage.learn(world.hub.requested_positions(subscription))
                    world.hub.resolved(subscription, OffsetRange({0: 0}, {0: 9}))
                refused = [one.message for one in client.notices if isinstance(one, OpenFailed)]
                assert len(refused) == (words is not None)
                assert words is None or words in refused[0]
        nursery.cancel_scope.cancel()


async def test_a_leader_that_does_not_answer_is_asked_again(
    autojump_clock: MockClock, cluster: FakeCluster
) -> None:
    async with pool_on(cluster) as kafka, trio.open_nursery() as nursery:
        cluster.add("t", 0, b"0", b"1")
        cluster.elect("t")
        cluster.add("t", 0, b"2")
        lineage = (await running(kafka, nursery)).source.lineage  # type: ignore[attr-defined]
        cluster.frozen = True
        nursery.start_soon(lineage.learn, [read({"0": 2, "epochs": {"0": [0, 2]}})])
        await trio.sleep(5)
        assert not lineage.knows(read({"0": 2, "epochs": {"0": [0, 2]}}))
        cluster.frozen = False
        await trio.sleep(5)
        assert lineage.knows(read({"0": 2, "epochs": {"0": [0, 2]}}))
        assert lineage.refuted(read({"0": 2, "epochs": {"0": [0, 2]}})) is None
        nursery.cancel_scope.cancel()


def test_records_of_a_later_leader_are_doubted_until_they_are_known() -> None:
    lineage = TopicLineage(Nobody(), "t", b"1" * 16)
    lineage.note(FetchedPartition(0, [], 5, epoch=1))
    assert not lineage.needs_verification(FetchedPartition(0, [], 6, epoch=1))
    assert lineage.needs_verification(FetchedPartition(0, [], 6, epoch=2))
    lineage.adopt(0, 2, 5)
    assert not lineage.needs_verification(FetchedPartition(0, [], 6, epoch=2))
    assert not lineage.needs_verification(FetchedPartition(1, [], 6, epoch=2))


class Leader:
    """A leader that answers the question where an epoch ends in one way."""

    def __init__(self, answer: int | Exception) -> None:
        self.answer = answer

    async def ask(self, node: int, request: object) -> object:
        if isinstance(self.answer, Exception):
            raise self.answer
        return SimpleNamespace(topics=[("t", [(self.answer, 0, 3, 7)])])


@pytest.mark.parametrize(
    ("answer", "known", "refused"),
    [
        (0, True, False),
        (29, False, True),
        (35, False, True),
        (IncompatibleBrokerVersion("no API_KEY 23"), False, True),
        (6, False, False),
        (74, False, False),
        (75, False, False),
        (UnreachableError("gone"), False, False),
    ],
    ids=["said", "not allowed", "unsupported", "too old", "not leader", "fenced", "unknown", "not there"],
)
async def test_a_broker_that_never_says_where_an_epoch_ends_is_told_from_one_that_may_yet(
    answer: int | Exception, known: bool, refused: bool
) -> None:
    info = TopicDescription("t", b"1" * 16, {0: 1}, None, {0: 3})
    admin = BrokerAdminClient(Leader(answer), 5, {})  # type: ignore[arg-type]
    said = await admin.epoch_end_offsets(info, {0: 3})
    assert (TopicPartition("t", 0) in said.known, TopicPartition("t", 0) in said.refused) == (known, refused)


async def test_leaders_that_do_not_answer_are_waited_for_at_the_same_time() -> None:
    """One after the other, two of them used up the time for all."""
    asked: set[int] = set()
    all_asked = trio.Event()

    class Slow(Leader):
        async def ask(self, node: int, request: object) -> object:
            asked.add(node)
            if len(asked) == 3:
                all_asked.set()
            await all_asked.wait()
            return await Leader(0 if node == 3 else UnreachableError("gone")).ask(node, request)

    info = TopicDescription("t", b"1" * 16, {0: 3, 1: 1, 2: 2}, None, dict.fromkeys(range(3), 3))
    admin = BrokerAdminClient(Slow(0), 2, {})  # type: ignore[arg-type]
    said = await admin.epoch_end_offsets(info, dict.fromkeys(range(3), 3))
    assert (dict(said.known), said.silent_nodes) == ({TopicPartition("t", 0): 7}, frozenset({1, 2}))


async def test_brokers_that_never_say_where_an_epoch_ends_stop_nothing(
    autojump_clock: MockClock, cluster: FakeCluster
) -> None:
    cluster.refused = "not authorized"
    with structlog.testing.capture_logs() as lines:
        async with pool_on(cluster) as kafka, trio.open_nursery() as nursery:
            run = await running(kafka, nursery)
            for number in range(3):
                cluster.add("t", 0, b"%d" % number)
                await trio.sleep(2)
                cluster.elect("t")
            cluster.add("t", 0, b"3")
            await trio.sleep(2)
            assert run.values == [b"0", b"1", b"2", b"3"]
            lineage = run.source.lineage  # type: ignore[attr-defined]
            with trio.fail_after(5):
                await lineage.learn([read({"0": 1, "epochs": {"0": [1, 1]}})])
            assert lineage.knows(read({"0": 1, "epochs": {"0": [1, 1]}}))
            assert lineage.refuted(read({"0": 1, "epochs": {"0": [1, 1]}})) is None
            nursery.cancel_scope.cancel()
    told = [line for line in lines if line["event"] == "kafka does not say whether a log was cut off"]
    assert [(line["topic"], line["error"]) for line in told] == [("t", "not authorized")]


async def test_a_leader_that_does_not_say_where_an_epoch_ends_fails_the_source_in_time(
    autojump_clock: MockClock, cluster: FakeCluster
) -> None:
    """It is restarted then: an error that passes, with the reason, and no doubtful record."""
    async with (
        pool_on(cluster, client={"request_timeout_ms": 3_000}) as kafka,
        trio.open_nursery() as nursery,
    ):
        run = await running(kafka, nursery)
        cluster.add("t", 0, b"0")
        await trio.sleep(1)
        cluster.elect("t")
        cluster.stubborn = True
        cluster.add("t", 0, b"1")
        with trio.fail_after(10):
            await run.ended.wait()
        assert isinstance(run.error, UnreachableError)
        assert "no leader of partition 0 of topic 't' has said within 3 s" in str(run.error)
        assert run.values == [b"0"]
        cluster.stubborn = False
        again = await running(kafka, nursery, {0: 1})
        assert again.values == [b"1"]
        nursery.cancel_scope.cancel()
