"""A subscription that begins where a group has committed."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from kiwi_gw.api import Action, CommitRefused
from kiwi_gw.core.commands import Cancel, Commit, Produce
from kiwi_gw.core.notices import CommitDone, Ended, Lagged, OpenFailed, Produced
from kiwi_gw.model import AtPositions, AtTime, Committed, Outgoing, Published, Start, StartAt
from kiwi_gw.testing import Script, ScriptedSources
from tests.unit.runtime.fakes import Bench, Client, running, settled
from tests.unit.runtime.test_history import CONFIG, begin, gateway, publish
from tests.unit.runtime.test_replay_rights import TEXT, Rules, reasons


@asynccontextmanager
async def written(folder: Path, text: str = CONFIG, **plugins: object) -> AsyncIterator[tuple[Bench, Script]]:
    scripted = ScriptedSources(writable=True)
    async with running(folder, text, scripted=scripted, **plugins) as bench:
        yield bench, scripted["news"]


async def begun(bench: Bench, group: str = "g") -> Client:
    client = bench.connect()
    client.does(begin(Committed(group)))
    await trio.sleep(0.5)
    return client


async def test_it_gets_what_lies_behind_the_commit(tmp_path: Path, autojump_clock: MockClock) -> None:
    async with written(tmp_path) as (bench, script):
        await publish(script, 1000)
        client = bench.connect()
        client.does(Commit("c", "news", "g", {0: (300, "so far")}))
        await settled()
        assert client.told(CommitDone) == [CommitDone("c", None)]
        assert (await begun(bench)).offsets == list(range(300, 1000))
        other = await begun(bench, "nobody's")
        assert other.offsets == []
        other.does(Produce("p", "news", Outgoing(b"k", b"v")))
        await trio.sleep(0.5)
        assert other.offsets == [1000]
        assert other.told(Produced) == [Produced("p", Published(0, 1000))]


async def test_a_partition_without_a_commit_begins_at_its_end(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    async with written(tmp_path) as (bench, script):
        script.positions[1] = 0
        await publish(script, 100)
        await script.publish([b"x"] * 10, partition=1)
        script.groups["g"] = {1: (4, "")}
        client = await begun(bench)
        assert client.offsets == [4, 5, 6, 7, 8, 9]


async def test_what_is_gone_is_announced_as_lost(tmp_path: Path, autojump_clock: MockClock) -> None:
    async with written(tmp_path) as (bench, script):
        await publish(script, 1000)
        script.history.delete(0, 400)
        script.groups["g"] = {0: (100, "")}
        client = await begun(bench)
        assert client.offsets == list(range(400, 1000))
        lag = client.told(Lagged)[0]
        assert isinstance(lag, Lagged)
        assert lag.ranges == {0: (100, 399)}


async def test_beyond_the_end_is_the_end(tmp_path: Path, autojump_clock: MockClock) -> None:
    async with written(tmp_path) as (bench, script):
        await publish(script, 100)
        script.groups["g"] = {0: (5000, "")}
        assert (await begun(bench)).offsets == []


async def test_a_source_that_keeps_no_commits_says_so(tmp_path: Path, autojump_clock: MockClock) -> None:
    rules = Rules()
    async with gateway(tmp_path, TEXT, rules=rules) as (bench, _):
        client = await begun(bench)
        assert client.refusals == ["forbidden"]  # its configuration opens none

    class Vague(ScriptedSources):
        """One that says it does."""

    scripted = Vague(writable=True)
    async with running(tmp_path, CONFIG, scripted=scripted) as bench:
        group = "not to be known"
        source = next(iter(bench.gateway.runners())).source

        async def refuse(group: str) -> None:
            raise CommitRefused("origin_denied", f"no right to group {group!r}")

        source.committed = refuse  # type: ignore[union-attr]
        client = await begun(bench, group)
        (failed,) = client.told(OpenFailed)
        assert isinstance(failed, OpenFailed)
        assert (failed.code, failed.message) == ("origin_denied", "no right to group 'not to be known'")


class SomeHang:
    """In the place of `committed`, of a source that does not answer about groups called `dead`. asked: of
    which it was asked, and not given up since."""

    def __init__(self, bench: Bench) -> None:
        source: Any = next(iter(bench.gateway.runners())).source
        self.asked: list[str] = []
        self._answer, source.committed = source.committed, self.committed

    async def committed(self, group: str) -> Mapping[int, tuple[int, str]]:
        if not group.startswith("dead"):
            found: Mapping[int, tuple[int, str]] = await self._answer(group)
            return found
        self.asked.append(group)
        try:
            await trio.sleep_forever()
        finally:
            self.asked.remove(group)


PATIENT = CONFIG.replace("1000", "5000")


async def test_a_group_that_cannot_be_looked_up_holds_nobody_else_up(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    async with written(tmp_path, PATIENT) as (bench, script):
        await publish(script, 1000, timestamp=5)
        script.groups["g"] = {0: (300, "")}
        source = SomeHang(bench)
        stuck = [bench.connect() for _ in range(8)]
        for number, client in enumerate(stuck):
            client.does(begin(Committed(f"dead{number}")))
        await trio.sleep(0.5)
        assert len(source.asked) == 8
        others = [bench.connect() for _ in range(4)]
        starts: tuple[Start, ...] = (AtTime(5), StartAt.EARLIEST, AtPositions({"0": 20}), Committed("g"))
        for other, start in zip(others, starts, strict=True):
            other.does(begin(start))
        await trio.sleep(0.5)
        assert [other.offsets[:1] for other in others] == [[0], [0], [20], [300]]
        assert not any(client.refusals for client in stuck)


async def test_a_group_that_cannot_be_looked_up_is_refused_for_now(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    async with written(tmp_path, PATIENT) as (bench, _):
        source = SomeHang(bench)
        first, second = bench.connect(), bench.connect()
        first.does(begin(Committed("dead")))
        await trio.sleep(2)
        second.does(begin(Committed("dead")))
        await trio.sleep(0.9)
        assert (first.refusals, second.refusals) == ([], [])
        await trio.sleep(0.2)
        assert (first.refusals, second.refusals) == (["unavailable"], [])  # the second one has its own time
        await trio.sleep(3)
        assert second.refusals == ["unavailable"]
        assert not source.asked


async def test_a_question_that_nobody_asks_any_more_is_given_up(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    async with written(tmp_path, PATIENT) as (bench, _):
        source = SomeHang(bench)
        leaves, comes = bench.connect(), bench.connect()
        leaves.does(begin(Committed("dead")))
        leaves.does(replace(begin(Committed("dead too")), handle="stays"))
        await trio.sleep(0.5)
        leaves.does(Cancel("news"))
        await trio.sleep(0.5)
        assert source.asked == ["dead too"]
        leaves.does(Cancel("stays"))
        await trio.sleep(0.1)
        comes.does(begin(Committed("dead too")))  # before it was given up: it goes on for this one
        await trio.sleep(0.5)
        assert source.asked == ["dead too"]
        comes.does(Cancel("news"))
        await trio.sleep(0.5)
        assert source.asked == []
        comes.does(begin(Committed("dead")))  # and is asked again, if somebody wants to know
        await trio.sleep(0.5)
        assert source.asked == ["dead"]


@pytest.mark.parametrize("action", [Action.COMMIT, Action.REPLAY])
async def test_it_takes_the_right_to_commit_and_not_that_to_replay(
    tmp_path: Path, autojump_clock: MockClock, action: Action
) -> None:
    rules = Rules()
    async with written(tmp_path, TEXT, rules=rules) as (bench, script):
        await publish(script, 1000)
        script.groups["g"] = {0: (0, "")}
        waits = bench.connect()
        waits.does(begin(Committed("g"), credit=0))
        await trio.sleep(0.5)
        rules.withdraw(bench, action)
        await trio.sleep(0.5)
        lost = action is Action.COMMIT
        assert reasons(waits) == (["unauthorized"] if lost else [])
        assert (await begun(bench)).refusals == (["forbidden"] if lost else [])
        assert bool(waits.told(Ended)) == lost
