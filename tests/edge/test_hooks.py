"""Every hook, exercised by a real plugin on a running gateway, and what happens when it raises."""

from __future__ import annotations

import json
import threading
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Literal

import pytest
import trio
import trio.testing
from click.testing import CliRunner
from structlog.typing import EventDict

from kiwi_gw import hookspecs
from kiwi_gw.api import (
    Action,
    Batch,
    ConfigSection,
    Credential,
    HeadCredential,
    Identity,
    PluginContext,
    Positions,
    Publisher,
    Refusal,
    Section,
    ServiceType,
    Source,
    SourceContext,
    SourceDescription,
    SourceFailed,
    SourceInfo,
    SourceType,
    hookimpl,
)
from kiwi_gw.cli.check import check
from kiwi_gw.cli.explain import explain
from kiwi_gw.errors import ConfigError, PluginError
from kiwi_gw.model import CloseReason
from kiwi_gw.testing import open_gateway
from kiwi_gw.testing.scripted import SHAPE
from tests.edge import test_engine_queries, test_intercept
from tests.edge.hooks_bench import configuration, knock, running, tracebacks
from tests.edge.wall import Wall
from tests.edge.wire import Over, connect
from tests.plugins.line_protocol import test_line_protocol
from tests.stalls import within

HOOKS = {
    "source_types": "test_a_source_type_is_built_with_its_settings_sections_and_services",
    "dialect_types": "test_line_protocol.test_a_conversation",
    "services": "test_a_service_is_opened_once_shared_and_closed_after_the_last_source",
    "config_sections": "test_a_section_has_its_defaults_and_its_errors_have_lines",
    "configure": "test_configure_sees_every_configuration_and_may_refuse_a_reload",
    "authenticate": "test_authenticate_says_who_it_is_in_a_thread",
    "reauthenticate": "test_reauthenticate_ends_who_is_known_no_longer",
    "reauthentication_due": "test_reauthentication_due_has_everybody_judged_within_a_second",
    "authorize": "test_unknown_and_forbidden_are_the_same_to_the_client",
    "intercept": "test_intercept.test_intercept_changes_and_withholds",
    "query_engine": (
        "test_engine_queries.test_an_engine_answers_a_protocol_that_has_queries_over_whole_sources"
    ),
    "check": "test_check_connects_for_the_command_line",
    "explain": "test_explain_answers_the_command_line",
}
"""Which test shows a hook at work."""


def test_every_hook_has_its_test() -> None:
    assert {name for name in vars(hookspecs) if hasattr(getattr(hookspecs, name), "kiwi_gw_spec")} == {*HOOKS}
    files = (test_engine_queries, test_intercept, test_line_protocol)
    others = {file.__name__.rpartition(".")[2]: file for file in files}
    found = {f"{file}.{name}": item for file, other in others.items() for name, item in vars(other).items()}
    here = {**globals(), **found}
    assert all(name in here for name in HOOKS.values())


# --- source_types, config_sections, services ------------------------------------------------------


class StoreSection(Section):
    place: str = "memory"


class StoredSettings(Section):
    type: Literal["stored"]
    id: str
    start: int = 0


class Store:
    """A plugin with a section, a service that its sources share, and a source type that needs both.

    `events` says what happened to the service and its sources, in order.
    """

    def __init__(self) -> None:
        self.events: list[str] = []
        self.contexts: list[SourceContext] = []
        self.breaks: Exception | None = None
        self.broken = trio.Event()
        self.opened = 0

    @hookimpl
    def config_sections(self) -> Sequence[ConfigSection]:
        return [ConfigSection("store", StoreSection)]

    @hookimpl
    def services(self) -> Sequence[ServiceType]:
        return [ServiceType("store", self.open, ("store",))]

    @hookimpl
    def source_types(self) -> Sequence[SourceType]:
        return [
            SourceType(
                "stored",
                StoredSettings,
                self.build,
                SourceDescription(SHAPE, services=("store",), sections=("store",)),
            )
        ]

    @asynccontextmanager
    async def open(self, context: PluginContext) -> AsyncIterator[object]:
        section = context.section("store")
        assert isinstance(section, StoreSection)
        self.opened += 1
        self.events.append(f"open {section.place}")
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._break)
                yield f"service {self.opened}"
                nursery.cancel_scope.cancel()
        finally:
            self.events.append("close")

    async def _break(self) -> None:
        await self.broken.wait()
        self.broken = trio.Event()
        assert self.breaks is not None
        raise self.breaks

    def build(self, settings: Section, context: SourceContext) -> Source:
        assert isinstance(settings, StoredSettings)
        self.contexts.append(context)
        return StoredSource(self, settings)


class StoredSource:
    def __init__(self, store: Store, settings: StoredSettings) -> None:
        self.store = store
        self.settings = settings

    async def run(self, publisher: Publisher, start: Positions | None) -> None:
        name = self.settings.id
        service = self.store.contexts[-1].services["store"]
        self.store.events.append(f"{name} runs")
        try:
            offset = self.settings.start if start is None else start[0]
            await publisher.ready({0: offset})
            await publisher.wait_subscribed()
            columns: dict[str, Sequence[object]] = {"key": [None], "value": [str(service).encode()]}
            await publisher.publish(Batch({0: offset}, [0], [offset], columns, cost=10))
            await trio.sleep_forever()
        finally:
            self.store.events.append(f"{name} stops")


STORED = [{"type": "stored", "id": "x", "start": 7}, {"type": "stored", "id": "y"}]


async def test_a_source_type_is_built_with_its_settings_sections_and_services() -> None:
    store = Store()
    async with running(store, sources=STORED[:1]) as (gateway, _), connect(gateway) as client:
        assert (await client.subscribe("x"))["positions"] == {"0": 7}
        result = (await client.message())["data"]
        assert (result["sourceType"], result["offset"], result["value"]) == ("stored", 7, "service 1")
        (context,) = store.contexts
        assert context.source_id == "x"
        assert context.plugins.section("store") == StoreSection()


@pytest.mark.slow
async def test_a_service_is_opened_once_shared_and_closed_after_the_last_source() -> None:
    store = Store()
    async with running(store, sources=STORED) as (gateway, _):
        async with connect(gateway) as client:
            for name in ("x", "y"):
                await client.subscribe(name)
                assert (await client.message())["data"]["value"] == "service 1"
        assert store.events[0] == "open memory"
        assert sorted(store.events[1:]) == ["x runs", "y runs"]
        del store.events[:]
        gateway.file.write_text(configuration(["scripted", "p0"], sources=STORED[1:]))
        assert await gateway.reloader.reload()
        await trio.testing.wait_all_tasks_blocked(0.01)
        assert store.events == ["x stops"]
        # Another section: the source restarts, with another service; the old one is closed behind it.
        store.events.clear()
        gateway.file.write_text(
            configuration(["scripted", "p0"], {"store": {"place": "disk"}}, sources=STORED[1:])
        )
        assert await gateway.reloader.reload()
        while len(store.events) < 4:
            await trio.lowlevel.checkpoint()
        assert sorted(store.events) == ["close", "open disk", "y runs", "y stops"]
        assert store.events.index("y stops") < store.events.index("close")
        store.events.clear()
        assert await gateway.stop() == 0
        assert store.events == ["y stops", "close"], "the last source first, also at the end"


async def test_a_service_that_fails_restarts_its_sources_only(
    log_lines: list[EventDict], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kiwi_gw.runtime.source_runner.FIRST_PAUSE", 0.01)
    store = Store()
    scripted = [{"type": "scripted", "id": "a"}]
    async with (
        running(store, sources=[*STORED, *scripted]) as (gateway, other),
        connect(gateway) as client,
    ):
        await client.subscribe("a")
        for name in ("x", "y"):
            await client.subscribe(name)
            assert (await client.message())["data"]["value"] == "service 1"
        store.breaks = OSError("the disk is gone")
        store.broken.set()
        messages = [await client.message() for _ in range(6)]
        told = sorted(
            (item["data"]["type"], item["data"]["sourceId"]) for item in messages if is_notice(item)
        )
        assert told == [
            ("SOURCE_DEGRADED", "x"),
            ("SOURCE_DEGRADED", "y"),
            ("SOURCE_RESTORED", "x"),
            ("SOURCE_RESTORED", "y"),
        ]
        results = [item for item in messages if not is_notice(item)]
        assert {item["data"]["sourceId"]: item["data"]["value"] for item in results} == {
            "x": "service 2",
            "y": "service 2",
        }, "the same subscriptions go on, with the next offset"
        assert {item["data"]["offset"] for item in results} == {8, 1}
        await other["a"].publish([b"undisturbed"])
        assert (await client.message())["data"]["value"] == "undisturbed"
        assert other["a"].runs == 1
    failed = [line for line in log_lines if line["event"] == "a service failed"]
    assert len(failed) == 1


def is_notice(message: dict[str, Any]) -> bool:
    return bool(message["type"] == "NOTICE")


async def test_source_failed_closes_its_subscriptions_also_with_a_service() -> None:
    class Failing(Store):
        def build(self, settings: Section, context: SourceContext) -> Source:
            return FailingSource()

    class FailingSource:
        async def run(self, publisher: Publisher, start: Positions | None) -> None:
            await publisher.ready({0: 0})
            await publisher.wait_subscribed()
            raise SourceFailed("there is nothing to read")

    async with running(Failing(), sources=STORED[:1]) as (gateway, _), connect(gateway) as client:
        await client.subscribe("x")
        closed = (await client.message())["data"]
        assert (closed["reason"], closed["message"]) == ("failed", "there is nothing to read")


async def test_a_section_has_its_defaults_and_its_errors_have_lines() -> None:
    store = Store()
    text = "plugins: [p0]\nstore:\n  plaec: disk\n"
    with pytest.raises(ConfigError, match=r"kiwi.yml:3: store.plaec: unknown key.*place"):
        async with open_gateway(text, plugins={"p0": store}):
            pass
    async with running(store, extra={"store": {"place": "disk"}}, sources=STORED[:1]) as (gateway, _):
        section = gateway.gateway.loaded.context().section("store")
        assert section == StoreSection(place="disk")


# --- configure ------------------------------------------------------------------------------------


class Choosy:
    def __init__(self) -> None:
        self.seen: list[str] = []

    @hookimpl
    def configure(self, context: PluginContext) -> None:
        if context.gateway_name == "wrong":
            raise ValueError("this name is taken")
        self.seen.append(context.gateway_name)


async def test_configure_sees_every_configuration_and_may_refuse_a_reload(
    log_lines: list[EventDict],
) -> None:
    choosy = Choosy()
    async with running(choosy, extra={"name": "first"}) as (gateway, scripted), connect(gateway) as client:
        await client.subscribe("a")
        gateway.file.write_text(configuration(["scripted", "p0"], {"name": "wrong"}, sources=[]))
        assert not await gateway.reloader.reload()
        await scripted["a"].publish([b"still here"])
        assert (await client.message())["data"]["value"] == "still here"
        gateway.file.write_text(configuration(["scripted", "p0"], {"name": "third"}))
        assert await gateway.reloader.reload()
        # Whoever had agreed to what another plugin then refused is told the old one again.
        assert choosy.seen == ["first", "first", "third"]
    (refused,) = tracebacks(log_lines)
    assert str(refused["exc_info"]) == "a plugin refuses the configuration: this name is taken"


async def test_configure_that_raises_at_the_start_ends_the_gateway_with_its_words() -> None:
    with pytest.RaisesGroup(
        pytest.RaisesExc(PluginError, match="a plugin refuses the configuration: this name is taken"),
        flatten_subgroups=True,
    ):
        async with running(Choosy(), extra={"name": "wrong"}):
            pass


# --- authenticate ---------------------------------------------------------------------------------


class Doorman:
    """Answers with what the path says, or with what `answers` has for it."""

    def __init__(self, answers: Mapping[str, object]) -> None:
        self.answers = answers
        self.threads: set[int] = set()
        self.heads: list[HeadCredential] = []

    @hookimpl
    def authenticate(self, credential: Credential) -> object:
        assert isinstance(credential, HeadCredential)
        self.threads.add(threading.get_ident())
        self.heads.append(credential)
        answer = self.answers[credential.query]
        if isinstance(answer, Exception):
            raise answer
        if isinstance(answer, threading.Event):
            answer.wait(20)
            return Identity("late")
        return answer


@pytest.mark.parametrize(
    ("answer", "status"),
    [
        (Identity("me"), 101),
        (None, 101),
        (Identity("old", expires_at=1.0), 401),
        (Refusal("invalid_token", "the token is not one of ours"), 401),
        (Refusal("no_token", "credentials are needed"), 401),
        (Refusal("forbidden", "you may not be here"), 403),
        (Refusal("auth_timeout", "the keys cannot be read"), 503),
    ],
)
async def test_authenticate_says_who_it_is_in_a_thread(answer: object, status: int) -> None:
    doorman = Doorman({"t": answer})
    async with running(doorman) as (gateway, _):
        found, headers, body = await knock(gateway, "/?t", ("Authorization", "Bearer x"))
        assert found == status
        assert threading.get_ident() not in doorman.threads
        (head,) = doorman.heads
        assert (head.method, head.path, head.header("authorization")) == ("GET", "/", "Bearer x")
        assert head.remote.startswith("127.0.0.1:")
        assert head.secure is False
        if status == 101:
            return
        assert gateway.listener.rejected == {"auth": 1}
        assert ("www-authenticate" in headers) == (status == 401)
        if isinstance(answer, Refusal):
            assert body.decode() == f"{answer.code}: {answer.message}\n"


@pytest.mark.parametrize(
    "answer", [RuntimeError("the hook is broken"), "somebody", True], ids=["raises", "text", "bool"]
)
async def test_an_authenticate_that_fails_lets_nobody_in_and_is_logged_once(
    answer: object, log_lines: list[EventDict]
) -> None:
    async with running(Doorman({"": answer})) as (gateway, _):
        for _ in range(3):
            status, _, body = await knock(gateway)
            assert status == 500
            assert b"internal_error" in body
            assert b"broken" not in body
        assert gateway.gateway.hooks.failures == {"authenticate": 3}
    assert len(tracebacks(log_lines)) == 1


async def test_an_authenticate_that_hangs_is_given_up_after_its_time() -> None:
    release = threading.Event()
    doorman = Doorman({"slow": release, "": Identity("me")})
    async with running(doorman, extra={"server": {"auth_timeout_ms": 100}}) as (gateway, _):
        try:
            status, headers, _ = await knock(gateway, "/?slow")
            assert status == 503
            assert "retry-after" in headers
            # The next one is not to be late here as well, however slow this machine is.
            gateway.file.write_text(configuration(["scripted", "p0"]))
            assert await gateway.reloader.reload()
            assert (await knock(gateway))[0] == 101
        finally:
            release.set()


@pytest.mark.slow
async def test_an_identity_that_expires_ends_its_connection(wall: Wall) -> None:
    class Brief:
        @hookimpl
        def authenticate(self, credential: Credential) -> Identity:
            return Identity("me", expires_at=wall.now + 0.5)

    async with running(Brief()) as (gateway, _), connect(gateway) as client:
        told = await client.message()
        assert (told["type"], told["data"]["type"]) == ("NOTICE", "TOKEN_EXPIRING")
        assert told["data"]["expiresInMs"] == pytest.approx(500, abs=1)
        wall.now += 0.51
        over = await client.over()
        assert (over.code, over.reason) == (4402, "token_expired")


@pytest.mark.slow
async def test_clients_of_the_original_are_not_told_that_credentials_expire(wall: Wall) -> None:
    class Brief:
        @hookimpl
        def authenticate(self, credential: Credential) -> Identity:
            return Identity("me", expires_at=wall.now + 1)

    nested = {"kiwi": {"envelope": "nested"}}
    async with running(Brief(), extra=nested) as (gateway, _), connect(gateway) as client:
        wall.now += 1.01
        with pytest.raises(Over) as over:
            await client.message()
        assert over.value.code == 4402


# --- reauthenticate, reauthentication_due ---------------------------------------------------------


class Guests:
    """Knows everybody as the query says, and ends those who are not `welcome` any more."""

    def __init__(self) -> None:
        self.welcome = {"ann", "bob"}
        self.changed = False

    @hookimpl
    def authenticate(self, credential: Credential) -> Identity:
        assert isinstance(credential, HeadCredential)
        return Identity(credential.query)

    @hookimpl
    def reauthenticate(self, identity: Identity) -> Refusal | None:
        return None if identity.name in self.welcome else Refusal("revoked", "not any more")

    @hookimpl
    def reauthentication_due(self) -> bool:
        changed, self.changed = self.changed, False
        return changed


async def test_reauthenticate_ends_who_is_known_no_longer() -> None:
    guests = Guests()
    async with (
        running(guests) as (gateway, scripted),
        connect(gateway, "/?ann") as ann,
        connect(gateway, "/?bob") as bob,
    ):
        for client in (ann, bob):
            await client.subscribe("a")
        guests.welcome = {"bob"}
        assert (await knock(gateway, "/?ann"))[0] == 401, "also who comes now"
        assert await gateway.reloader.reload()
        over = await ann.over()
        assert (over.code, over.reason) == (4503, "revoked")
        await scripted["a"].publish([b"x"])
        assert (await bob.message())["data"]["value"] == "x"


async def test_reauthentication_due_has_everybody_judged_within_a_second() -> None:
    guests = Guests()
    async with running(guests) as (gateway, _), connect(gateway, "/?ann") as ann:
        guests.welcome = {"bob"}
        guests.changed = True
        with within(1):
            assert (await ann.over()).code == 4503


# --- authorize ------------------------------------------------------------------------------------


class Rules:
    """Who may not have which source. `raises`: what the hook raises instead."""

    def __init__(self) -> None:
        self.forbidden: set[str] = set()
        self.asked: list[tuple[str, Action, str]] = []
        self.raises: Exception | None = None

    @hookimpl
    def authorize(self, identity: Identity, action: Action, source: SourceInfo) -> Refusal | None:
        self.asked.append((identity.name, action, source.id))
        if self.raises is not None:
            raise self.raises
        return Refusal("forbidden", f"{source.id} is not for you") if source.id in self.forbidden else None


async def test_unknown_and_forbidden_are_the_same_to_the_client() -> None:
    rules = Rules()
    rules.forbidden = {"b"}
    async with running(rules) as (gateway, _), connect(gateway) as client:
        forbidden = await client.ask("SUBSCRIBE", "b")
        unknown = await client.ask("SUBSCRIBE", "c")
        assert forbidden["data"].pop("sourceId") == "b"
        assert unknown["data"].pop("sourceId") == "c"
        assert forbidden == unknown
        await client.subscribe("a")
        assert rules.asked == [("anonymous", Action.SUBSCRIBE, "b"), ("anonymous", Action.SUBSCRIBE, "a")]


async def test_one_refusal_of_several_plugins_suffices() -> None:
    first, second = Rules(), Rules()
    first.forbidden = {"a"}
    second.forbidden = {"b"}
    async with running(first, second) as (gateway, _), connect(gateway) as client:
        for name in ("a", "b"):
            assert (await client.ask("SUBSCRIBE", name))["type"] == "SUBSCRIBE_ERROR"


async def test_rules_that_change_end_what_they_forbid_with_the_next_reload() -> None:
    rules = Rules()
    async with running(rules) as (gateway, scripted), connect(gateway) as client:
        await client.subscribe("a")
        await client.subscribe("b")
        rules.forbidden = {"b"}
        assert await gateway.reloader.reload()
        closed = (await client.message())["data"]
        assert (closed["sourceId"], closed["reason"]) == ("b", CloseReason.UNAUTHORIZED.value)
        await scripted["b"].publish([b"secret"])
        await scripted["a"].publish([b"open"])
        assert (await client.message())["data"]["value"] == "open"


async def test_an_authorize_that_raises_refuses_and_is_logged_once(log_lines: list[EventDict]) -> None:
    rules = Rules()
    rules.raises = ZeroDivisionError("rules")
    async with running(rules) as (gateway, _), connect(gateway) as client:
        for name in ("a", "b", "a"):
            assert (await client.ask("SUBSCRIBE", name))["type"] == "SUBSCRIBE_ERROR"
        assert gateway.gateway.hooks.failures == {"authorize": 3}
        rules.raises = None
        await client.subscribe("a")
    assert len(tracebacks(log_lines)) == 1


# --- check ----------------------------------------------------------------------------------------


CHECKED = """
from kiwi_gw.api import Diagnostic, hookimpl

class Plugin:
    @hookimpl
    def check(self, context, sources):
        async def connect():
            known = f"known to {context.gateway_name}"
            return [Diagnostic("ok", f"source {one.id}", known) for one in sources]
        return connect

plugin = Plugin()
"""


def test_check_connects_for_the_command_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a_checked_plugin.py").write_text(CHECKED)
    monkeypatch.syspath_prepend(str(tmp_path))
    file = tmp_path / "kiwi.yml"
    file.write_text(
        "name: here\n"
        "plugins: ['a_checked_plugin:plugin']\n"
        "sources: [{type: counter, id: c, min: 0, interval_ms: 1}]\n"
    )
    result = CliRunner().invoke(check, [str(file), "--json"])
    assert result.exit_code == 0, result.output
    (finding,) = json.loads(result.stdout)["findings"]
    assert finding == {"level": "ok", "subject": "source c", "message": "known to here"}


# --- explain --------------------------------------------------------------------------------------


EXPLAINED = """
from kiwi_gw.api import hookimpl

class Plugin:
    @hookimpl
    def explain(self, context, sources, source_id):
        async def say():
            return f"{source_id} is a {context.sources[source_id].type}\\n  of {len(sources)}\\n"
        return say if source_id == "c" else None

plugin = Plugin()
"""


def test_explain_answers_the_command_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "an_explaining_plugin.py").write_text(EXPLAINED)
    monkeypatch.syspath_prepend(str(tmp_path))
    file = tmp_path / "kiwi.yml"
    file.write_text(
        "plugins: ['an_explaining_plugin:plugin']\n"
        "sources: [{type: counter, id: c, min: 0, interval_ms: 1}]\n"
    )
    result = CliRunner().invoke(explain, ["c", "-c", str(file)])
    assert result.exit_code == 0, result.output
    assert result.stdout == "c is a counter\n  of 1\n"
