"""The whole runtime: sources come, go and change under their subscribers; the gateway goes in good order."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import trio
from structlog.testing import capture_logs
from structlog.typing import EventDict
from trio.testing import MockClock

from kiwi_gw.api import (
    Action,
    EventSchema,
    Identity,
    PluginContext,
    PluginError,
    Positions,
    Publisher,
    Refusal,
    Section,
    SourceChanged,
    SourceContext,
    SourceFailed,
    SourceInfo,
    hookimpl,
)
from kiwi_gw.config import ConfigDifference, load_again
from kiwi_gw.core.hub_limits import HubState
from kiwi_gw.core.notices import Ended, SourceAppeared
from kiwi_gw.errors import ConfigError
from tests.unit.runtime.fakes import SHAPE, Bench, Run, Sources, batch, config, open_it, running, settled

Logged = Callable[[str], list[EventDict]]

DRAIN = "server: {drain_ms: 2s}"


def apply(bench: Bench, text: str) -> ConfigDifference:
    """What a reload does."""
    bench.write(text)
    return bench.gateway.apply(load_again(bench.gateway.loaded))


def publishes(outs: list[Publisher]) -> Run:
    """A source whose `out` is handed to the test."""

    async def run(publisher: Publisher, start: Positions | None, context: SourceContext) -> None:
        await publisher.ready({0: 0} if start is None else start)
        outs.append(publisher)
        await trio.sleep_forever()

    return run


def tasks() -> int:
    return trio.lowlevel.current_statistics().tasks_living


# --- applying a configuration ------------------------------------------------------------------


async def test_sources_are_added_altered_and_removed_under_their_subscribers(tmp_path: Path) -> None:
    sources = Sources()
    async with running(tmp_path, config("stays", "alters", "goes"), fake=sources) as bench:
        client = bench.subscribe("stays", "alters", "goes")
        stays = bench.gateway.hub("stays")
        before = tasks()
        found = apply(bench, config("stays", "alters 2", "comes"))
        assert (found.added, found.removed, found.altered) == (("comes",), ("goes",), ("alters",))
        assert client.ends == ["removed", "altered"]
        assert [n.source.id for n in client.told(SourceAppeared)[3:]] == ["alters", "comes"]  # type: ignore[union-attr]
        assert list(client.connection.subscriptions) == ["stays"]
        assert bench.gateway.hub("stays") is stays
        assert bench.gateway.hub("goes") is None
        client.does(open_it("alters"), open_it("comes"), open_it("goes"))
        await settled()
        assert sorted(map(str, client.connection.subscriptions)) == ["alters", "comes", "stays"]
        assert sorted(sources.built) == ["alters", "alters", "comes", "goes", "stays"]
        assert tasks() == before


async def test_the_end_of_an_altered_source_says_where_to_go_on(tmp_path: Path) -> None:
    outs: list[Publisher] = []
    async with running(tmp_path, config("a"), fake=Sources({"a": publishes(outs)})) as bench:
        client = bench.subscribe("a")
        await outs[0].publish(batch(0, 5))
        apply(bench, config("a 2"))
        (end,) = client.told(Ended)
        assert isinstance(end, Ended)
        assert end.positions == {"0": 5}


async def test_what_was_not_sent_yet_is_sent_for_a_while(autojump_clock: MockClock, tmp_path: Path) -> None:
    outs: list[Publisher] = []
    async with running(tmp_path, config("a", more=DRAIN), fake=Sources({"a": publishes(outs)})) as bench:
        quick, slow = bench.subscribe("a"), bench.subscribe("a")
        for client in (quick, slow):
            client.socket.take = lambda size: 0
        await outs[0].publish(batch(0, 3))
        apply(bench, config("a 2", more=DRAIN))
        assert quick.ends == slow.ends == []
        await trio.sleep(1.5)
        quick.socket.take = len_of
        quick.socket.drain()
        assert (quick.offsets, quick.ends) == ([0, 1, 2], ["altered"])
        await trio.sleep(0.7)
        assert slow.ends == ["altered"]
        (end,) = slow.told(Ended)
        assert isinstance(end, Ended)
        assert end.dropped == 3


def len_of(size: int) -> int:
    return size


async def test_a_source_altered_twice_in_one_tick_and_again_while_it_drains(
    autojump_clock: MockClock, tmp_path: Path
) -> None:
    outs: list[Publisher] = []
    sources = Sources({"a": publishes(outs)})
    async with running(tmp_path, config("a", more=DRAIN), fake=sources) as bench:
        before = tasks()
        clients = []
        for note in range(4):
            await settled()
            client = bench.subscribe("a")
            client.socket.take = lambda size: 0
            await outs[-1].publish(batch(0, 2))
            clients.append(client)
            apply(bench, config(f"a {note}x", more=DRAIN))
            apply(bench, config(f"a {note}y", more=DRAIN))
        await trio.sleep(2.2)
        assert [client.ends for client in clients] == [["altered"]] * 4
        assert tasks() == before
        assert bench.gateway.hub("a").state is HubState.RUNNING  # type: ignore[union-attr]
        assert [runner.hub.info.id for runner in bench.gateway.runners()] == ["a"]


async def test_a_source_that_is_removed_gives_its_memory_back(
    autojump_clock: MockClock, tmp_path: Path
) -> None:
    outs: list[Publisher] = []
    async with running(tmp_path, config("a", more=DRAIN), fake=Sources({"a": publishes(outs)})) as bench:
        bench.subscribe("a")
        await outs[0].publish(batch(0, 100))
        hub = bench.gateway.hub("a")
        assert hub is not None
        assert hub.window.bytes > 0
        apply(bench, config(more=DRAIN))
        await trio.sleep(0.3)
        assert hub.window.bytes == 0


@pytest.mark.parametrize("error", [None, SourceFailed("no such table")], ids=["ends", "fails"])
async def test_a_failed_source_gives_its_memory_back_and_an_ended_one_when_it_is_removed(
    autojump_clock: MockClock, tmp_path: Path, error: Exception | None
) -> None:
    release = trio.Event()

    async def finite(publisher: Publisher, start: Positions | None, context: SourceContext) -> None:
        await publisher.ready({0: 0})
        await release.wait()
        await publisher.publish(batch(0, 100))
        if error is not None:
            raise error

    async with running(tmp_path, config("a"), fake=Sources({"a": finite})) as bench:
        client = bench.subscribe("a")
        client.socket.take = lambda size: 0
        hub = bench.gateway.hub("a")
        assert hub is not None
        release.set()
        await trio.sleep(1)
        assert (hub.window.bytes > 0) == (error is None)
        client.socket.take = len_of
        client.socket.drain()
        await trio.sleep(0.3)
        assert client.ends == ["failed" if error else "ended"]
        assert (hub.window.bytes == 0) == (error is not None)
        client.does(open_it("a"))
        assert client.refusals == ["failed" if error else "ended"]
        apply(bench, config())
        await trio.sleep(0.3)
        assert hub.window.bytes == 0


async def test_a_source_that_changes_gets_a_new_feed_and_begins_anew(
    autojump_clock: MockClock, tmp_path: Path
) -> None:
    change = trio.Event()
    starts: list[Positions | None] = []

    async def run(publisher: Publisher, start: Positions | None, context: SourceContext) -> None:
        starts.append(start)
        await publisher.ready({0: 7})
        if len(starts) == 1:
            await publisher.publish(batch(7, 1))
            await change.wait()
            await trio.sleep(0.6)
            raise SourceChanged("more partitions")
        await trio.sleep_forever()

    async with running(tmp_path, config("a"), fake=Sources({"a": run})) as bench:
        client = bench.subscribe("a")
        old = bench.gateway.hub("a")
        change.set()
        await trio.sleep(0.7)
        await settled()
        assert client.ends == ["changed"]
        assert starts == [None, None]
        assert bench.gateway.hub("a") is not old
        client.does(open_it("a"))
        assert client.opened == 2


async def test_a_source_that_says_it_changed_while_it_is_removed(
    autojump_clock: MockClock, tmp_path: Path
) -> None:
    """The reload and the change meet: there must be one new source for an altered one, none for a removed."""
    change = trio.Event()

    async def run(publisher: Publisher, start: Positions | None, context: SourceContext) -> None:
        await publisher.ready({0: 0})
        await trio.sleep(1)
        await change.wait()
        raise SourceChanged("more partitions")

    sources = Sources({"a": run, "b": run})
    async with running(tmp_path, config("a", "b"), fake=sources) as bench:
        client = bench.subscribe("a", "b")
        await trio.sleep(2)
        change.set()
        apply(bench, config("a 2"))
        change = trio.Event()  # for the new one
        await trio.sleep(3)
        assert client.ends == ["removed", "altered"]
        assert sorted(sources.built) == ["a", "a", "b"]
        assert [runner.hub.info.id for runner in bench.gateway.runners()] == ["a"]


async def test_a_source_that_always_changes_does_not_fill_the_memory(
    autojump_clock: MockClock, tmp_path: Path
) -> None:
    async def run(publisher: Publisher, start: Positions | None, context: SourceContext) -> None:
        raise SourceChanged("again")

    sources = Sources({"a": run})
    async with running(tmp_path, config("a"), fake=sources):
        before = tasks()
        await trio.sleep(60)
        assert 60 <= len(sources.built) <= 121
        assert tasks() <= before + 1


# --- plugins that refuse -----------------------------------------------------------------------


class Careful:
    """A plugin that remembers what it was configured with, and refuses some."""

    def __init__(self) -> None:
        self.seen: list[int] = []
        self.refuses: BaseException | None = None

    @hookimpl
    def configure(self, context: PluginContext) -> None:
        if self.refuses is not None and context.section("dial").number != 1:  # type: ignore[attr-defined]
            raise self.refuses
        self.seen.append(context.section("dial").number)  # type: ignore[attr-defined]


async def test_a_refused_configuration_changes_nothing_not_even_in_plugins_that_agreed(
    tmp_path: Path,
) -> None:
    first, second = Careful(), Careful()
    text = config("a", plugins=("fake", "first", "second"))
    async with running(tmp_path, text, fake=Sources(), first=first, second=second) as bench:
        loaded, client = bench.gateway.loaded, bench.subscribe("a")
        for refusing, agreeing in ((first, second), (second, first)):
            refusing.refuses = ValueError("not with 2")
            with pytest.raises(PluginError, match="refuses the configuration: not with 2"):
                apply(bench, config("b", plugins=("fake", "first", "second"), more="dial: {number: 2}"))
            refusing.refuses = None
            assert agreeing.seen[-1] == refusing.seen[-1] == 1
        assert bench.gateway.loaded is loaded
        assert client.ends == []
        assert bench.gateway.hub("b") is None


async def test_a_plugin_that_cannot_describe_a_source_changes_nothing(tmp_path: Path) -> None:
    sources = Sources()
    async with running(tmp_path, config("a", "b"), fake=sources) as bench:
        loaded, client = bench.gateway.loaded, bench.subscribe("a", "b")

        def shape(settings: Section) -> EventSchema:
            if settings.model_dump()["note"] == "2":
                raise ValueError("no shape")
            return SHAPE

        wanted = config("a 1", "b 2", "c")
        bench.write(wanted)
        reloaded = load_again(loaded)
        sources.shape = shape
        with pytest.raises(ValueError, match="no shape"):
            bench.gateway.apply(reloaded)
        with pytest.raises(ConfigError, match="cannot be checked: ValueError in the plugin that reads it"):
            apply(bench, wanted)
        assert bench.gateway.loaded is loaded
        assert client.ends == []
        assert [runner.hub.info.id for runner in bench.gateway.runners()] == ["a", "b"]


class Rules:
    def __init__(self) -> None:
        self.error: Exception | None = None
        self.refusal: Refusal | None = None

    @hookimpl
    def authorize(self, identity: Identity, action: Action, source: SourceInfo) -> Refusal | None:
        if self.error is not None:
            raise self.error
        return self.refusal


@pytest.mark.parametrize(
    "now",
    [{"refusal": Refusal("forbidden", "no")}, {"error": ValueError("boom")}],
    ids=["forbidden", "fails"],
)
async def test_a_reload_withdraws_what_is_no_longer_allowed(tmp_path: Path, now: dict[str, object]) -> None:
    rules = Rules()
    text = config("a", plugins=("fake", "rules"))
    async with running(tmp_path, text, fake=Sources(), rules=rules) as bench:
        clients = [bench.subscribe("a") for _ in range(3)]
        vars(rules).update(now)
        apply(bench, text + "\n# again\n")
        await trio.testing.wait_all_tasks_blocked()  # they are judged a few milliseconds at a time
        assert [client.ends for client in clients] == [["unauthorized"]] * 3
        assert bench.gateway.hooks.failures["authorize"] == (3 if rules.error else 0)


# --- services ----------------------------------------------------------------------------------


class Service:
    """Opens `pool`. open: how many are."""

    def __init__(self) -> None:
        self.open = self.opened = 0
        self.nurseries: list[trio.Nursery] = []

    @asynccontextmanager
    async def __call__(self, context: PluginContext) -> AsyncIterator[object]:
        self.open += 1
        self.opened += 1
        try:
            async with trio.open_nursery() as nursery:
                self.nurseries.append(nursery)
                yield self.opened
                nursery.cancel_scope.cancel()
        finally:
            self.open -= 1


async def test_sources_share_a_service_and_altering_one_leaves_it_open(
    autojump_clock: MockClock, tmp_path: Path
) -> None:
    service = Service()
    sources = Sources(services_of_sources=("pool",), open={"pool": service})
    async with running(tmp_path, config("a", "b"), fake=sources) as bench:
        assert (service.open, service.opened) == (1, 1)
        apply(bench, config("a 2"))
        await settled()
        assert (service.open, service.opened) == (1, 1)
        apply(bench, config("a 2", more="dial: {number: 2}"))
        await trio.sleep(2)
        assert (service.open, service.opened) == (1, 2)
        apply(bench, config())
        await trio.sleep(2)
        assert service.open == 0


async def test_a_service_that_fails_restarts_its_sources_and_touches_no_connection(
    autojump_clock: MockClock, tmp_path: Path
) -> None:
    service = Service()
    sources = Sources(services_of_sources=("pool",), open={"pool": service})
    async with running(tmp_path, config("a", "b"), fake=sources) as bench:
        client = bench.subscribe("a", "b")

        async def fail() -> None:
            raise OSError("gone")

        service.nurseries[-1].start_soon(fail)
        await trio.sleep(1)
        assert [runner.restarts for runner in bench.gateway.runners()] == [1, 1]
        assert service.open == 1
        service.nurseries[-1].cancel_scope.cancel()  # it ends without a word: no source has ended
        await trio.sleep(2)
        assert [runner.restarts for runner in bench.gateway.runners()] == [2, 2]
        assert service.open == 1
        assert client.ends == []
        assert client.socket.close_code is None


async def test_a_service_that_no_plugin_provides(autojump_clock: MockClock, tmp_path: Path) -> None:
    async with running(tmp_path, config("a"), fake=Sources(services_of_sources=("pool",))) as bench:
        (runner,) = bench.gateway.runners()
        await trio.sleep(1)
        assert runner.restarts > 0
        assert "pool" in runner.last_error


async def test_whatever_sources_and_services_do_at_the_end_the_gateway_ends_well(
    tmp_path: Path, logged: Logged
) -> None:
    async def bad(publisher: Publisher, start: Positions | None, context: SourceContext) -> None:
        async def late() -> None:
            try:
                await trio.sleep_forever()
            finally:
                raise ValueError("cannot close")

        async with trio.open_nursery() as nursery:
            nursery.start_soon(late)
            nursery.start_soon(late)

    @asynccontextmanager
    async def sulks(context: PluginContext) -> AsyncIterator[object]:
        try:
            yield 1
        finally:
            raise OSError("cannot close")

    sources = Sources({"a": bad}, services_of_sources=("pool",), open={"pool": sulks})
    async with running(tmp_path, config("a", "b"), fake=sources):
        pass
    assert [line["source"] for line in logged("source raised while it was stopped")] == ["a"]
    assert len(logged("a service failed")) == 1


# --- coming and going --------------------------------------------------------------------------


async def test_drain_tells_everyone_and_waits_for_those_who_answer(
    autojump_clock: MockClock, tmp_path: Path
) -> None:
    async with running(tmp_path, config("a"), fake=Sources()) as bench:
        clients = [bench.subscribe("a") for _ in range(200)]

        async def leave() -> None:
            for index, client in enumerate(clients):
                if index % 50 == 0:
                    await trio.sleep(0.1)
                client.leave()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(leave)
            await bench.gateway.drain("draining", 5)
        assert trio.current_time() == pytest.approx(0.4)
        assert {client.socket.close_code for client in clients} == {1001}
        assert bench.gateway.connections == set()


async def test_drain_waits_no_longer_than_it_is_told_for_those_who_do_not(
    autojump_clock: MockClock, tmp_path: Path
) -> None:
    async with running(tmp_path, config("a"), fake=Sources()) as bench:
        client = bench.subscribe("a")
        await bench.gateway.drain("draining", 5)
        assert trio.current_time() == 5
        assert client.connection in bench.gateway.connections


async def test_whoever_comes_while_it_drains_is_told_at_once(tmp_path: Path) -> None:
    async with running(tmp_path, config("a"), fake=Sources()) as bench:
        await bench.gateway.drain("draining", 0)
        client = bench.connect()
        assert client.socket.close_code == 1001


async def test_retry_after_is_spread_over_a_second_for_every_thousand(tmp_path: Path) -> None:
    async with running(tmp_path, config("a"), fake=Sources()) as bench:
        clients = [bench.connect() for _ in range(500)]
        await bench.gateway.drain("draining", 0)
        hints = sorted(hint_of(client.session.notices[-1]) for client in clients)
        assert hints[0] == 100
        assert 1_000 <= hints[-1] <= 1_100
        assert len(set(hints)) == 500


def hint_of(notice: object) -> int:
    found = getattr(notice, "retry_after_ms", None)
    assert isinstance(found, int)
    return found


async def test_a_reload_while_it_drains_is_applied_to_those_who_are_left(tmp_path: Path) -> None:
    async with running(tmp_path, config("a"), fake=Sources()) as bench:
        client = bench.subscribe("a")
        await bench.gateway.drain("draining", 0)
        apply(bench, config("b"))
        assert client.ends == []
        client.leave()
        assert bench.gateway.connections == set()


async def test_it_has_started_when_every_source_has_worked_or_never_will(tmp_path: Path) -> None:
    release = trio.Event()

    async def late(publisher: Publisher, start: Positions | None, context: SourceContext) -> None:
        await release.wait()
        raise SourceFailed("no such table")

    async with running(tmp_path, config("a", "late"), fake=Sources({"late": late})) as bench:
        assert not bench.gateway.started
        release.set()
        await settled()
        assert bench.gateway.started


async def test_a_source_that_a_reload_adds_takes_nobody_out_of_service(tmp_path: Path) -> None:
    async def never(publisher: Publisher, start: Positions | None, context: SourceContext) -> None:
        await trio.sleep_forever()

    waits = Sources(dict.fromkeys(("waits", "too"), never))
    async with running(tmp_path, config("a"), fake=waits) as bench:
        await settled()
        apply(bench, config("a", "waits"))
        await settled()
        assert bench.gateway.started
        apply(bench, config("a", "waits", "too"))
        await settled()
        assert bench.gateway.started
    async with running(tmp_path, config("a", "waits"), fake=waits) as bench:
        apply(bench, config("a", "waits", "too"))
        await settled()
        assert not bench.gateway.started
        apply(bench, config("a"))
        assert bench.gateway.started


async def test_the_pulse_looks_for_silent_clients_with_the_limits_of_now(
    autojump_clock: MockClock, tmp_path: Path
) -> None:
    async with running(tmp_path, config("a"), fake=Sources()) as bench:
        client = bench.subscribe("a")
        await trio.sleep(10)
        apply(bench, config("a", more="server: {limits: {ping_interval_ms: 2s, dead_after_ms: 20s}}"))
        await trio.sleep(12)
        assert client.socket.close_code == 4408
        assert client.cut
        assert bench.gateway.keepalive.unresponsive == 1


async def test_numbers_are_never_given_twice(tmp_path: Path) -> None:
    async with running(tmp_path, config("a"), fake=Sources()) as bench:
        assert [bench.gateway.next_number() for _ in range(3)] == [1, 2, 3]


@pytest.mark.parametrize(("number", "level"), [(100, "info"), (101, "debug")])
async def test_sources_that_run_are_said_one_by_one_unless_there_are_very_many(
    tmp_path: Path, autojump_clock: MockClock, number: int, level: str
) -> None:
    with capture_logs() as lines:
        async with running(tmp_path, config(*(f"s{n}" for n in range(number))), fake=Sources()):
            pass
    said = [line for line in lines if line["event"] == "source runs"]
    assert sorted(line["source"] for line in said) == sorted(f"s{n}" for n in range(number))
    assert {(line["type"], line["partitions"], line["log_level"]) for line in said} == {("fake", 1, level)}
