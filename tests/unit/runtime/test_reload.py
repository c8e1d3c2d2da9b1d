"""The file as people and tools really change it: renamed, linked, cut and written, gone and back."""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from logging import ERROR, LogRecord
from pathlib import Path

import pytest
import trio
from structlog.typing import EventDict
from trio.testing import MockClock

from kiwi_gw.api import ConfigSection, Diagnostic, PluginContext, Section, SourceContext, hookimpl
from kiwi_gw.config import LoadedConfig
from kiwi_gw.logs import RepeatLimit
from kiwi_gw.runtime.gateway import Gateway
from kiwi_gw.runtime.reload import LONGEST_PAUSE, LOOK_SECONDS, Reloader
from tests.unit.runtime.fakes import Bench, Sources, config, load_text

Logged = Callable[[str], list[EventDict]]


async def at_once(load: Callable[[], LoadedConfig]) -> LoadedConfig:
    """A clock that jumps over every wait knows nothing of threads, so most tests here do without."""
    return load()


class Watched(Bench):
    """A gateway whose file is watched, and what it was told of."""

    def __init__(self, gateway: Gateway) -> None:
        super().__init__(gateway)
        self.applied: list[LoadedConfig] = []
        self.reloader = Reloader(gateway, self.applied.append, at_once)

    @property
    def sources(self) -> list[str]:
        return [source.id for source in self.gateway.sources()]

    @property
    def counts(self) -> tuple[int, int]:
        return self.reloader.applied, self.reloader.refused

    async def looks(self, number: int = 3) -> None:
        await trio.sleep(number * LOOK_SECONDS + LOOK_SECONDS / 2)


@asynccontextmanager
async def watching(folder: Path, text: str, **plugins: object) -> AsyncIterator[Watched]:
    gateway = Gateway(load_text(folder, text, {"fake": Sources(), **plugins}), trio.current_time)
    async with trio.open_nursery() as nursery:
        await nursery.start(gateway.run)
        watched = Watched(gateway)
        nursery.start_soon(watched.reloader.watch)
        await watched.looks()
        assert watched.counts == (0, 0)
        yield watched
        nursery.cancel_scope.cancel()


@pytest.fixture
async def watched(autojump_clock: MockClock, tmp_path: Path) -> AsyncIterator[Watched]:
    async with watching(tmp_path, config("a")) as found:
        yield found


async def test_a_file_that_is_replaced(autojump_clock: MockClock, watched: Watched, logged: Logged) -> None:
    before = watched.reloader.applied_at
    watched.write(config("a", "b"))
    await watched.looks()
    assert watched.sources == ["a", "b"]
    assert watched.counts == (1, 0)
    assert watched.reloader.applied_at >= before
    assert watched.applied == [watched.gateway.loaded]
    (line,) = logged("configuration applied")
    assert line["added"] == ("b",)


async def test_a_file_that_is_written_in_place(autojump_clock: MockClock, watched: Watched) -> None:
    watched.file.write_text(config("a", "b"))
    await watched.looks()
    assert watched.sources == ["a", "b"]
    assert watched.counts == (1, 0)


async def test_a_link_that_is_swapped(autojump_clock: MockClock, tmp_path: Path) -> None:
    """As Kubernetes does it: the file is a link into a folder that is a link."""
    for name, text in (("one", config("a")), ("two", config("a", "b"))):
        (tmp_path / name).mkdir()
        (tmp_path / name / "kiwi.yml").write_text(text)
    (tmp_path / "data").symlink_to("one")
    (tmp_path / "kiwi.yml").symlink_to("data/kiwi.yml")
    async with watching(tmp_path, config("a")) as watched:  # writes into `one`
        (tmp_path / "fresh").symlink_to("two")
        (tmp_path / "fresh").rename(tmp_path / "data")
        await watched.looks()
        assert watched.sources == ["a", "b"]
        assert watched.counts == (1, 0)


async def test_a_file_that_is_touched_changes_nothing(autojump_clock: MockClock, watched: Watched) -> None:
    client = watched.subscribe("a")
    watched.file.touch()
    await watched.looks()
    assert watched.counts == (1, 0)
    assert client.ends == []


async def test_a_file_that_is_cut_and_written_a_while_later(
    autojump_clock: MockClock, watched: Watched, logged: Logged
) -> None:
    client = watched.subscribe("a")
    watched.file.write_text("")
    await watched.looks(10)
    assert watched.counts == (0, 1)
    assert watched.sources == ["a"]
    assert "is empty" in logged("configuration refused; the old one stays")[0]["problem"]
    watched.file.write_text(config("a", "b"))
    await watched.looks()
    assert watched.counts == (1, 1)
    assert watched.sources == ["a", "b"]
    assert client.ends == []


async def test_a_file_that_is_still_being_written_is_not_read(
    autojump_clock: MockClock, watched: Watched
) -> None:
    text = config("a", "b", "c", "d")
    for end in range(1, len(text), 10):
        watched.file.write_text(text[:end])
        await trio.sleep(LOOK_SECONDS)
        assert watched.counts == (0, 0)
    watched.file.write_text(text)
    await watched.looks()
    assert watched.counts == (1, 0)
    assert watched.sources == ["a", "b", "c", "d"]


async def test_a_file_that_is_broken_changes_nothing_and_is_told_of_once(
    autojump_clock: MockClock, watched: Watched, logged: Logged
) -> None:
    client = watched.subscribe("a")
    watched.write(config("a", "b") + "sorces: []\n")
    await watched.looks(20)
    assert watched.counts == (0, 1)
    assert watched.sources == ["a"]
    assert client.ends == []
    (line,) = logged("configuration refused; the old one stays")
    line_number = watched.file.read_text().splitlines().index("sorces: []") + 1
    assert line["problem"].startswith(f"{watched.file}:{line_number}: sorces: ")
    assert watched.applied == []
    watched.write(config("a"))
    await watched.looks()
    assert watched.counts == (1, 1)


async def test_all_mistakes_of_a_file_are_logged(
    autojump_clock: MockClock, watched: Watched, logged: Logged
) -> None:
    watched.write(config("a") + "".join(f"wrong{number}: 1\n" for number in range(12)))
    await watched.looks(20)
    lines = logged("configuration refused; the old one stays")
    assert len(lines) == 12
    passes = RepeatLimit(now=lambda: 0.0).filter
    assert all(passes(LogRecord("reload", ERROR, "", 0, dict(line), None, None)) for line in lines)


async def test_a_file_that_vanishes_and_returns(autojump_clock: MockClock, watched: Watched) -> None:
    client = watched.subscribe("a")
    text = watched.file.read_text()
    watched.file.unlink()
    await watched.looks(20)
    assert watched.counts == (0, 1)
    assert client.ends == []
    watched.file.write_text(text)
    await watched.looks()
    assert watched.counts == (1, 1)
    assert client.ends == []


async def test_a_file_that_vanishes_for_a_moment(autojump_clock: MockClock, watched: Watched) -> None:
    aside = watched.file.with_suffix(".aside")
    watched.file.rename(aside)
    await trio.sleep(LOOK_SECONDS)
    aside.rename(watched.file)
    await watched.looks()
    assert watched.counts == (0, 0)


async def test_two_reloads_in_one_tick(autojump_clock: MockClock, watched: Watched) -> None:
    client = watched.subscribe("a")
    watched.write(config("a", "b"))
    assert await watched.reloader.reload()
    watched.write(config("a", "c"))
    assert await watched.reloader.reload()
    assert watched.sources == ["a", "c"]
    await watched.looks(10)
    assert watched.counts == (2, 0)  # the watch has nothing left to find
    assert client.ends == []


async def test_a_change_while_the_file_is_read_is_found(autojump_clock: MockClock, tmp_path: Path) -> None:
    class Slow:
        """Writes the file again while its last change is being applied."""

        texts = [config("a", "b", "c", plugins=("fake", "slow"))]  # noqa: RUF012
        started = False

        @hookimpl
        def configure(self, context: PluginContext) -> None:
            if self.started and self.texts:
                file.write_text(self.texts.pop())

    slow, file = Slow(), tmp_path / "kiwi.yml"
    async with watching(tmp_path, config("a", plugins=("fake", "slow")), slow=slow) as watched:
        slow.started = True
        watched.write(config("a", "b", plugins=("fake", "slow")))
        await watched.looks()
        assert watched.sources in (["a", "b"], ["a", "b", "c"])
        await watched.looks()
        assert watched.sources == ["a", "b", "c"]
        assert watched.counts == (2, 0)


# --- what cannot be read ---------------------------------------------------------------------------


async def test_a_file_that_could_not_be_opened_is_tried_again_though_nothing_of_it_changes(
    autojump_clock: MockClock, watched: Watched, logged: Logged, monkeypatch: pytest.MonkeyPatch
) -> None:
    def out_of_descriptors(path: Path) -> bytes:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    with monkeypatch.context() as patch:
        patch.setattr(Path, "read_bytes", out_of_descriptors)
        watched.write(config("a", "b"))
        await trio.sleep(20)
        assert watched.counts == (0, 1), "and is complained about once"
        assert len(logged("configuration refused; the old one stays")) == 1
    await trio.sleep(LONGEST_PAUSE + 1)
    assert watched.sources == ["a", "b"]
    assert watched.counts == (1, 1)


async def test_a_secret_that_comes_later_is_found(
    autojump_clock: MockClock, watched: Watched, tmp_path: Path
) -> None:
    secret = tmp_path / "name"
    watched.write(config("a", "b").replace("id: b", f'id: "${{file:{secret}}}"'))
    await watched.looks()
    assert watched.counts == (0, 1)
    secret.write_text("later")
    await trio.sleep(2)
    assert watched.sources == ["a", "later"]


class Ponders:
    """Its declarations take as long as a test wants. asked: how often they were asked for."""

    def __init__(self) -> None:
        self.free = threading.Event()
        self.free.set()
        self.begun = trio.Event()
        self.asked = 0
        self.token: trio.lowlevel.TrioToken | None = None

    @hookimpl
    def config_sections(self) -> Sequence[ConfigSection]:
        if self.token is not None and not self.free.is_set():
            self.asked += 1
            self.token.run_sync_soon(self.begun.set)
            assert self.free.wait(30)
        return ()

    def hold(self) -> None:
        self.token, self.begun = trio.lowlevel.current_trio_token(), trio.Event()
        self.free.clear()


PONDERS = ("fake", "ponders")


@asynccontextmanager
async def pondering(folder: Path) -> AsyncIterator[tuple[Watched, Ponders]]:
    """With the threads and the clock of the real world. At the end the plugin ponders no more."""
    plugin = Ponders()
    loaded = load_text(folder, config("a", plugins=PONDERS), {"fake": Sources(), "ponders": plugin})
    gateway = Gateway(loaded)
    async with trio.open_nursery() as nursery:
        await nursery.start(gateway.run)
        watched = Watched(gateway)
        watched.reloader = Reloader(gateway, watched.applied.append)
        await trio.testing.wait_all_tasks_blocked()
        try:
            yield watched, plugin
        finally:
            plugin.free.set()
        nursery.cancel_scope.cancel()


async def test_the_gateway_serves_its_clients_while_a_file_is_read(tmp_path: Path) -> None:
    async with pondering(tmp_path) as (watched, plugin):
        client = watched.subscribe("a")
        plugin.hold()
        watched.write(config("a", "b", plugins=PONDERS))
        async with trio.open_nursery() as nursery:
            nursery.start_soon(watched.reloader.reload)
            await plugin.begun.wait()
            # Half-way through the file, and the loop is ours: nothing of the new configuration is in use.
            assert watched.sources == ["a"]
            late = watched.subscribe("a")
            assert (late.opened, client.ends, watched.counts) == (1, [], (0, 0))
            plugin.free.set()
        assert watched.sources == ["a", "b"]
        assert watched.counts == (1, 0)
        assert client.ends == []


async def test_reloads_wait_for_each_other_and_the_newest_file_wins(tmp_path: Path) -> None:
    async with pondering(tmp_path) as (watched, plugin):
        plugin.hold()
        watched.write(config("a", "b", plugins=PONDERS))
        async with trio.open_nursery() as nursery:
            nursery.start_soon(watched.reloader.reload)
            await plugin.begun.wait()
            watched.write(config("a", "c", plugins=PONDERS))  # the first one has read its file
            nursery.start_soon(watched.reloader.reload)
            nursery.start_soon(watched.reloader.reload)
            await trio.testing.wait_all_tasks_blocked()
            assert plugin.asked == 1
            plugin.free.set()
        assert watched.sources == ["a", "c"]
        applied = [list(loaded.settings.sources) for loaded in watched.applied]
        assert applied == [["a", "b"], ["a", "c"], ["a", "c"]]


async def test_however_often_it_is_asked_for_meanwhile_the_file_is_read_once_more(tmp_path: Path) -> None:
    async with pondering(tmp_path) as (watched, plugin), trio.open_nursery() as nursery:
        nursery.start_soon(watched.reloader.watch)
        plugin.hold()
        watched.reloader.ask()
        await plugin.begun.wait()
        watched.write(config("a", "c", plugins=PONDERS))
        for _ in range(100):
            watched.reloader.ask()
        plugin.free.set()
        while watched.counts != (2, 0):
            await trio.testing.wait_all_tasks_blocked()
            await trio.sleep(0.001)  # until its thread is done
        assert watched.sources == ["a", "c"]
        await trio.testing.wait_all_tasks_blocked(LOOK_SECONDS / 4)
        assert watched.counts == (2, 0)
        nursery.cancel_scope.cancel()


async def test_a_stop_does_not_wait_for_a_file_that_is_read(tmp_path: Path) -> None:
    async with pondering(tmp_path) as (watched, plugin), trio.open_nursery() as nursery:
        plugin.hold()
        nursery.start_soon(watched.reloader.reload)
        await plugin.begun.wait()
        nursery.cancel_scope.cancel()  # and the plugin still ponders when this is left
    assert watched.counts == (0, 0)


async def test_a_file_that_was_read_when_the_stop_began_is_not_used(tmp_path: Path) -> None:
    async with pondering(tmp_path) as (watched, plugin):
        plugin.hold()
        watched.write(config("b", plugins=PONDERS))
        async with trio.open_nursery() as nursery:
            nursery.start_soon(watched.reloader.reload)
            await plugin.begun.wait()
            await watched.gateway.drain("draining", 0)
            plugin.free.set()
        assert watched.sources == ["a"]
        assert watched.counts == (0, 0)


async def test_a_change_before_the_watch_begins_is_found(autojump_clock: MockClock, tmp_path: Path) -> None:
    gateway = Gateway(load_text(tmp_path, config("a"), {"fake": Sources()}), trio.current_time)
    watched = Watched(gateway)
    watched.write(config("a", "b"))
    async with trio.open_nursery() as nursery:
        await nursery.start(gateway.run)
        nursery.start_soon(watched.reloader.watch)
        await watched.looks()
        assert watched.sources == ["a", "b"]
        nursery.cancel_scope.cancel()


async def test_many_changes_a_minute(autojump_clock: MockClock, watched: Watched) -> None:
    client = watched.subscribe("a")
    before = trio.lowlevel.current_statistics().tasks_living
    for number in range(30):
        watched.write(config("a", f"b{number}", f"c {number}"))
        await trio.sleep(0.6)
    assert watched.counts == (30, 0)
    assert client.ends == []
    assert trio.lowlevel.current_statistics().tasks_living == before + 2


class Refuses:
    error: BaseException | None = None

    @hookimpl
    def configure(self, context: PluginContext) -> None:
        if self.error is not None and context.section("dial").number == 2:  # type: ignore[attr-defined]
            raise self.error


@pytest.mark.parametrize("error", [ValueError("boom"), SystemExit(1)], ids=repr)
async def test_a_plugin_that_refuses(
    autojump_clock: MockClock, tmp_path: Path, error: BaseException, logged: Logged
) -> None:
    plugin = Refuses()
    plugins = ("fake", "refuses")
    async with watching(tmp_path, config("a", plugins=plugins), refuses=plugin) as watched:
        plugin.error = error
        watched.write(config("b", plugins=plugins, more="dial: {number: 2}"))
        await watched.looks(10)
        assert watched.counts == (0, 1)
        assert watched.sources == ["a"]
        assert len(logged("configuration refused by a plugin; the old one stays")) == 1


async def test_what_cannot_be_put_to_use_afterwards_is_logged_and_the_watch_goes_on(
    autojump_clock: MockClock, tmp_path: Path, logged: Logged
) -> None:
    gateway = Gateway(load_text(tmp_path, config("a"), {"fake": Sources()}), trio.current_time)

    def fails(loaded: LoadedConfig) -> None:
        raise OSError("no such certificate")

    watched = Watched(gateway)
    watched.reloader = Reloader(gateway, fails, at_once)
    async with trio.open_nursery() as nursery:
        await nursery.start(gateway.run)
        nursery.start_soon(watched.reloader.watch)
        for text in (config("a", "b"), config("c")):
            watched.write(text)
            await watched.looks()
        assert watched.sources == ["c"]
        assert len(logged("not all of the new configuration is in use")) == 2
        nursery.cancel_scope.cancel()


async def test_nothing_is_applied_while_the_gateway_stops(
    autojump_clock: MockClock, watched: Watched
) -> None:
    await watched.gateway.drain("draining", 0)
    watched.write(config("a", "b"))
    await watched.looks()
    assert not await watched.reloader.reload()
    assert watched.sources == ["a"]
    assert watched.counts == (0, 0)


async def test_settings_that_need_a_restart_are_named(
    autojump_clock: MockClock, watched: Watched, logged: Logged
) -> None:
    watched.write(config("a", more="name: other\nserver: {drain_ms: 1s, limits: {max_message_bytes: 1KiB}}"))
    await watched.looks()
    later = [line["key"] for line in logged("this change needs a restart to take effect")]
    assert later == ["name", "server.limits.max_message_bytes"]
    assert logged("settings changed")[0]["keys"] == ("server.drain_ms",)


async def test_secret_files_are_watched_too(autojump_clock: MockClock, tmp_path: Path) -> None:
    secret = tmp_path / "note"
    secret.write_text("one")
    text = config("a").replace("note: ''", f"note: '${{file:{secret}}}'")
    async with watching(tmp_path, text) as watched:
        client = watched.subscribe("a")
        secret.write_text("another")
        await watched.looks()
        assert watched.counts == (1, 0)
        assert client.ends == ["altered"]
        secret.unlink()
        await watched.looks(10)
        assert watched.counts == (1, 1)
        secret.write_text("a third one")
        await watched.looks()
        assert watched.counts == (2, 1)


@pytest.mark.parametrize(
    ("answer", "why"),
    [(None, "there was no answer within 5 s"), (RuntimeError("no idea"), "RuntimeError: no idea")],
    ids=["silent", "broken"],
)
async def test_a_source_works_on_where_nobody_says_that_the_altered_one_can(
    autojump_clock: MockClock, tmp_path: Path, logged: Logged, answer: Exception | None, why: str
) -> None:
    answers: list[Exception | None] = [answer]

    async def vet(settings: Section, context: SourceContext) -> list[Diagnostic]:
        if answers:
            if (raised := answers.pop()) is not None:
                raise raised
            await trio.sleep_forever()
        return []

    async with watching(tmp_path, config("a"), fake=Sources(vet=vet)) as watched:
        hub = watched.gateway.hub("a")
        watched.file.write_text(config("a other", "b"))
        await watched.looks()
        await trio.sleep(6)
        assert watched.counts == (0, 1)
        assert watched.gateway.hub("a") is hub
        (line,) = logged("configuration refused; the old one stays")
        told = f"sources[0]: could not be analysed ({why}); the old one stays, reload again"
        assert line["problem"].endswith(told)
        assert await watched.reloader.reload(), "the next one asks again"
        assert watched.gateway.hub("a") is not hub
