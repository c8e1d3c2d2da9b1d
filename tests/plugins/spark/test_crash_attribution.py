"""A query that the driver dies of every time is found out, and the others go on."""

from __future__ import annotations

from pathlib import Path

import pytest
import structlog
import trio
import trio.testing

from kiwi_gw.api import SourceFailed
from kiwi_spark.gateway.crash_attribution import GUILTY, SUSPECTED, CrashAttribution
from kiwi_spark.gateway.driver_supervisor import MessageConnection
from kiwi_spark.gateway.placed_results import PlacedResults
from kiwi_spark.gateway.positions import RECORD_ROWS, partition_of
from kiwi_spark.gateway.query_run import READING_SECONDS, QueryRun
from kiwi_spark.protocol.messages import PlacedRows, QueryReads, QueryStarted, frame_of
from kiwi_spark.protocol.packed_rows import pack
from tests.plugins.spark.bench import fake_spark, memory, numbers, source

SECONDS = 50


def test_who_was_there_alone_every_time_is_guilty() -> None:
    suspects = CrashAttribution()
    for _ in range(SUSPECTED):
        suspects.died(["a", "b"], others=True)
    assert suspects.suspected("a")
    assert not suspects.guilty("a")
    for _ in range(GUILTY):
        assert not suspects.guilty("a")
        suspects.died(["a"], others=True)
    assert suspects.guilty("a")
    assert not suspects.guilty("b")


def test_who_has_proved_itself_is_not_suspected_any_more() -> None:
    suspects = CrashAttribution()
    for _ in range(9):
        suspects.died(["a", "b"], others=True)
        suspects.died(["a"], others=True)
        suspects.proved("a")
        assert not suspects.suspected("a")
    assert suspects.suspected("b")
    assert not suspects.guilty("b"), "it never was the only one"


def test_who_is_in_nobodys_way_is_not_given_up() -> None:
    suspects = CrashAttribution()
    for _ in range(99):
        suspects.died(["a"], others=False)
    assert not suspects.guilty("a")


async def test_a_query_in_real_time_has_proved_itself_when_it_has_read_for_a_while(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """It reports nothing before its first epoch is over. Else two deaths of the driver within it would make
    suspects of all of them, each of which waits until those before it have proved themselves."""
    run = QueryRun(1, None, lambda progress: None)
    run.receive(QueryStarted(run=1, query="q", next_batch=0, real_time=True))
    await trio.sleep(2 * READING_SECONDS)
    assert not run.proved
    run.receive(QueryReads(run=1))
    await trio.sleep(0.9 * READING_SECONDS)
    run.reads()
    assert not run.proved
    await trio.sleep(0.2 * READING_SECONDS)
    assert run.proved


class _Nobody:
    """Wants to know nothing of a query."""

    def input_found(self) -> None: ...
    def rows_arrived(self) -> None: ...
    def batch_arrived(self) -> None: ...


@pytest.mark.parametrize(
    ("records", "moves"),
    [([(0, 5), (1, 5)], True), ([(0, 5), (0, 6)], False), ([(0, 5), (1, 4)], False)],
    ids=["all have", "one has none", "one has what came before"],
)
async def test_a_query_in_real_time_has_proved_itself_when_every_partition_has_new_rows(
    records: list[tuple[int, int]], moves: bool
) -> None:
    """Whoever kills drivers every few seconds has no query given up. A record that does stops its
    partition."""
    start = {partition_of(0, n): 5 * RECORD_ROWS for n in (0, 1)}
    out, run = memory(start), QueryRun(1, None, lambda progress: None)
    await out.ready(start)
    placed = PlacedResults(out, _Nobody(), ["a"], start)
    ours, theirs = trio.socket.socketpair()
    for partition, offset in records:
        rows = pack([b"1"], None, [offset * RECORD_ROWS])
        await theirs.send(frame_of(PlacedRows(input=0, partition=partition, timestamp=5, rows=rows)))
    theirs.close()
    await placed.receive(MessageConnection(trio.SocketStream(ours)), run.reads, run.moves)
    assert run.proved is moves


@pytest.mark.slow
@pytest.mark.usefixtures("short_pauses")
async def test_the_others_go_on_without_a_query_that_kills_the_driver(tmp_path: Path) -> None:
    outs = {name: memory() for name in ("one", "two")}
    raised: list[SourceFailed] = []
    with structlog.testing.capture_logs() as lines, trio.fail_after(SECONDS):
        async with fake_spark() as spark, trio.open_nursery() as nursery:
            for name, out in outs.items():
                nursery.start_soon(source({}, tmp_path, spark, source_id=name).run, out, None)

            async def deadly() -> None:
                with pytest.raises(
                    SourceFailed, match="has died 3 times when it began to run this"
                ) as caught:
                    await source({"deadly": 1}, tmp_path, spark, source_id="deadly").run(memory(), None)
                raised.append(caught.value)

            nursery.start_soon(deadly)
            for out in outs.values():
                await out.wait_events(15)
            while not raised:  # noqa: ASYNC110  nothing tells
                await trio.sleep(0.01)
            deaths = spark.driver.deaths
            while not all(run.worked for run in spark._runs.values()) or len(spark._runs) < 2:  # noqa: ASYNC110
                await trio.sleep(0.01)
            assert spark.driver.deaths == deaths
            nursery.cancel_scope.cancel()
    assert "SIGKILL" in str(raised[0])
    assert SUSPECTED + GUILTY <= deaths <= SUSPECTED + GUILTY + 2
    for out in outs.values():
        assert sorted(numbers(out.batches)) == list(range(15))
    assert len([line for line in lines if line["event"] == "spark driver is ready"]) == deaths + 1
