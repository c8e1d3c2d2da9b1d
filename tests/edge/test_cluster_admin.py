"""Workers that ask each other, and what is kept of those that died."""

from __future__ import annotations

import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trio

from kiwi_gw.config import UnixAddress
from kiwi_gw.edge.admin.admin_view import ListingPage, LocalAdmin, Topic
from kiwi_gw.edge.admin.cluster_admin import ClusterAdmin
from kiwi_gw.edge.admin.counter_store import CounterStore
from kiwi_gw.edge.admin.worker_api import WorkerSilent, add_private_routes, ask
from kiwi_gw.edge.http_errors import HttpError
from kiwi_gw.edge.listener import Listener, listen
from kiwi_gw.edge.metrics.snapshot import MetricsSnapshot
from kiwi_gw.edge.routing import Routes
from tests.unit.runtime.fakes import Bench, Sources, config, running


def worth(delivered: float, connections: float = 0) -> MetricsSnapshot:
    snapshot = MetricsSnapshot()
    snapshot.put("events_delivered_total", delivered, "a", "kiwi")
    snapshot.put("connections", connections, "kiwi", "ws")
    snapshot.put_histogram("event_loop_lag_seconds", (1.0,), (int(delivered), 0), 0.5)
    return snapshot


def delivered(total: MetricsSnapshot) -> float:
    (count,) = total.values["kiwigw_events_delivered_total"].values()
    assert total.histograms["kiwigw_event_loop_lag_seconds"][()].counts[0] == count
    return count


def test_what_dead_workers_had_counted_stays(tmp_path: Path) -> None:
    book = CounterStore(tmp_path, workers=2)
    total = book.merge({0: (0, worth(10, 1)), 1: (0, worth(5, 2))})
    assert (delivered(total), total.values["kiwigw_connections"]["kiwi", "ws"]) == (15, 3)
    # Worker 1 is dead.
    total = book.merge({0: (0, worth(11, 1))})
    assert (delivered(total), total.values["kiwigw_connections"]["kiwi", "ws"]) == (16, 1)
    assert total.values["kiwigw_worker_up"] == {("0",): 1, ("1",): 0}
    assert total.values["kiwigw_worker_restarts_total"][()] == 0
    # Another one works in its place, and dies, and so does the next, before anybody looked at it.
    assert delivered(book.merge({0: (0, worth(11)), 1: (1, worth(2))})) == 18
    total = CounterStore(tmp_path, workers=2).merge({0: (0, worth(11)), 1: (3, worth(1))})
    assert delivered(total) == 11 + 5 + 2 + 1, "whichever worker is asked: the book is in a file"
    assert total.values["kiwigw_worker_restarts_total"][()] == 3
    assert delivered(book.merge({0: (0, worth(11)), 1: (3, worth(1))})) == 19, "counted once"


def test_an_answer_of_one_that_was_replaced_meanwhile_is_not_counted_again(tmp_path: Path) -> None:
    book = CounterStore(tmp_path, workers=1)
    book.merge({0: (0, worth(5))})
    book.merge({0: (1, worth(2))})
    assert delivered(book.merge({0: (0, worth(5))})) == 7


def test_many_scrapes_at_a_time_keep_the_book_in_order(tmp_path: Path) -> None:
    def scrape() -> None:
        book = CounterStore(tmp_path, workers=1)
        for incarnation in range(20):
            book.merge({0: (incarnation, worth(1))})

    threads = [threading.Thread(target=scrape) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert delivered(CounterStore(tmp_path, workers=1).merge({0: (20, worth(1))})) == 21


@asynccontextmanager
async def worker(folder: Path, slot: int, incarnation: int = 0) -> AsyncIterator[tuple[LocalAdmin, Bench]]:
    """A gateway without sockets that answers the others."""
    own = folder / f"w{slot}"
    own.mkdir()
    async with running(own, config("a", "b"), fake=Sources()) as bench:
        alone = LocalAdmin(bench.gateway, None, lone=False)
        routes = Routes()
        add_private_routes(routes, alone, incarnation)
        listener = Listener(bench.gateway, routes, [listen(UnixAddress(str(folder / f"{slot}.sock")))], None)
        async with trio.open_nursery() as nursery:
            await nursery.start(listener.run)
            yield alone, bench
            nursery.cancel_scope.cancel()


def team(folder: Path, alone: LocalAdmin, workers: int = 3) -> ClusterAdmin:
    """As worker 0 sees it."""
    return ClusterAdmin(
        alone, 0, 0, [folder / f"{slot}.sock" for slot in range(workers)], CounterStore(folder, workers)
    )


async def everything(fleet: ClusterAdmin, topic: Topic, limit: int) -> tuple[list[dict[str, Any]], set[int]]:
    items: list[dict[str, Any]] = []
    silent: set[int] = set()
    page = ListingPage([], "")
    while True:
        page = await fleet.page(topic, page.next, limit)
        assert len(page.items) <= limit
        items += page.items
        silent |= set(page.silent)
        if not page.next:
            return items, silent


async def test_pages_go_from_worker_to_worker(tmp_path: Path) -> None:
    async with (
        worker(tmp_path, 0) as (alone, zero),
        worker(tmp_path, 1) as (_, one),
        worker(tmp_path, 2) as (_, two),
    ):
        for bench, count in ((zero, 2), (one, 0), (two, 3)):
            for _ in range(count):
                bench.subscribe("a", "b")
        fleet = team(tmp_path, alone)
        for limit in (1, 2, 3, 4, 100):
            items, silent = await everything(fleet, "connections", limit)
            assert [item["id"] for item in items] == ["0-1", "0-2", "2-1", "2-2", "2-3"]
            assert not silent
            items, _ = await everything(fleet, "subscriptions", limit)
            assert len({(item["connection"], item["source"]) for item in items}) == len(items) == 10
            items, _ = await everything(fleet, "sources", limit)
            assert [(item["worker"], item["id"]) for item in items] == [
                (slot, name) for slot in range(3) for name in ("a", "b")
            ]
        for after in ("0:x", "2:x", "3:", "x", "-1:"):
            with pytest.raises(HttpError) as refused:
                await fleet.page("connections", after, 3)
            assert refused.value.status == 400
        assert await fleet.disconnect("2-3")
        assert not await fleet.disconnect("1-1")
        closing = [c for c in (await everything(fleet, "connections", 9))[0] if c["closing"]]
        assert [(c["id"], c["closing"]) for c in closing] == [("2-3", 4409)]


async def test_a_worker_that_does_not_answer_is_named(tmp_path: Path, autojump_clock: object) -> None:
    stuck = listen(UnixAddress(str(tmp_path / "1.sock")))  # accepts, by its backlog, and says nothing
    with stuck:
        async with worker(tmp_path, 0) as (alone, bench):
            bench.subscribe("a")
            fleet = team(tmp_path, alone)
            items, silent = await everything(fleet, "connections", 10)
            assert ([item["id"] for item in items], silent) == (["0-1"], {1, 2})
            total = await fleet.snapshot()
            assert total.values["kiwigw_worker_up"] == {("0",): 1, ("1",): 0, ("2",): 0}
            with pytest.raises(HttpError, match="does not answer"):
                await fleet.disconnect("2-1")


async def test_what_is_no_answer(tmp_path: Path) -> None:
    async with worker(tmp_path, 0):
        with pytest.raises(WorkerSilent):
            await ask(tmp_path / "0.sock", "/nothing")
        with pytest.raises(WorkerSilent):
            await ask(tmp_path / "none.sock", "/snapshot")
        body, incarnation = await ask(tmp_path / "0.sock", "/snapshot")
        assert (MetricsSnapshot.load(body).values, incarnation) == ({}, "0")
