"""Identities are judged again: after a reload, and when a plugin says that it is time."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import trio
from structlog.typing import EventDict
from trio.testing import MockClock

from kiwi_gw.api import (
    ANONYMOUS,
    Action,
    Credential,
    Identity,
    Password,
    Permit,
    Refusal,
    SourceInfo,
    Token,
    hookimpl,
)
from kiwi_gw.core.notices import SourceAppeared
from kiwi_gw.plugin_manager import PluginManager
from kiwi_gw.runtime.hooks import Hooks
from kiwi_gw.runtime.reauthorization import Reauthorization
from tests.unit.runtime.fakes import (
    Bench,
    Client,
    Sources,
    config,
    load_text,
    log_in,
    open_it,
    running,
    settled,
)

Logged = Callable[[str], list[EventDict]]
ANN, BOB = Identity("ann"), Identity("bob")
REVOKED = Refusal("revoked", "no more")


class Judge:
    """Says of every identity what `says` has for its name, and refuses the source `b` to those of no role."""

    def __init__(self) -> None:
        self.says: dict[str, object] = {}
        self.due: object = False
        self.judged: list[str] = []

    @hookimpl
    def authenticate(self, credential: Credential) -> Identity:
        return ANN

    @hookimpl
    def reauthenticate(self, identity: Identity) -> object:
        self.judged.append(identity.name)
        answer = self.says.get(identity.name)
        if isinstance(answer, Exception):
            raise answer
        return answer

    @hookimpl
    def reauthentication_due(self) -> object:
        if isinstance(self.due, Exception):
            raise self.due
        due, self.due = self.due, False
        return due

    @hookimpl
    def authorize(self, identity: Identity, action: Action, source: SourceInfo) -> Permit | Refusal:
        allowed = source.id == "a" or "all" in identity.roles
        return Permit() if allowed else Refusal("forbidden", "no")


def reload(bench: Bench) -> None:
    bench.gateway.apply(bench.gateway.loaded)


def closed(client: Client) -> tuple[int | None, str]:
    return client.socket.close_code, client.socket.close_reason


WAYS: dict[str, Callable[[Bench, Judge], None]] = {
    "reload": lambda bench, judge: reload(bench),
    "due": lambda bench, judge: setattr(judge, "due", True),
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(
    ("refusal", "code", "reason"),
    [
        (REVOKED, 4503, "revoked"),
        (Refusal("invalid_token", "for another audience"), 4503, "revoked"),
        (Refusal("token_expired", "too late", retry=True), 4402, "token_expired"),
        (Refusal("key_withdrawn", "another key", retry=True), 4402, "key_withdrawn"),
        (ZeroDivisionError("rules"), 1011, "internal_error"),
        ("ann", 1011, "internal_error"),
        (Identity("ann", expires_at=float("nan")), 1011, "internal_error"),
    ],
    ids=repr,
)
async def test_who_is_refused_now_is_gone_within_a_second_and_others_stay(
    tmp_path: Path,
    autojump_clock: MockClock,
    way: str,
    refusal: object,
    code: int,
    reason: str,
    logged: Logged,
) -> None:
    judge = Judge()
    text = config("a", plugins=("fake", "judge"))
    async with running(tmp_path, text, fake=Sources(), judge=judge) as bench:
        ann, bob = bench.connect(ANN), bench.connect(BOB)
        for client in (ann, bob):
            client.does(open_it("a"))
        judge.judged.clear()
        judge.says["ann"] = refusal
        WAYS[way](bench, judge)
        await trio.sleep(1)
        assert closed(ann) == (code, reason)
        assert ann.connection.subscriptions == {}
        assert closed(bob) == (None, "")
        assert list(bob.connection.subscriptions) == ["a"]
        assert sorted(judge.judged) == ["ann", "bob"], "each once"
        assert len(logged("a plugin failed")) == (1 if code == 1011 else 0)


@pytest.mark.parametrize("way", WAYS)
async def test_another_identity_has_its_own_rights_from_now_on(
    tmp_path: Path, autojump_clock: MockClock, way: str
) -> None:
    judge = Judge()
    text = config("a", "b", plugins=("fake", "judge"))
    async with running(tmp_path, text, fake=Sources(), judge=judge) as bench:
        client = bench.connect(Identity("ann", frozenset({"all"})))
        client.does(open_it("a"), open_it("b"))
        judge.says["ann"] = ANN
        WAYS[way](bench, judge)
        await trio.sleep(1)
        assert client.connection.identity is ANN
        assert (client.ends, list(client.connection.subscriptions)) == (["unauthorized"], ["a"])


async def test_nobody_is_judged_while_nothing_is_due(tmp_path: Path, autojump_clock: MockClock) -> None:
    judge = Judge()
    text = config("a", plugins=("fake", "judge"))
    async with running(tmp_path, text, fake=Sources(), judge=judge) as bench:
        client = bench.connect(ANN)
        judge.judged.clear()
        judge.says["ann"] = REVOKED
        await trio.sleep(10)
        assert (judge.judged, closed(client)) == ([], (None, ""))


async def test_a_plugin_that_cannot_say_whether_it_is_due_ends_nobody(
    tmp_path: Path, autojump_clock: MockClock, logged: Logged
) -> None:
    judge = Judge()
    text = config("a", plugins=("fake", "judge"))
    async with running(tmp_path, text, fake=Sources(), judge=judge) as bench:
        client = bench.connect(ANN)
        judge.judged.clear()
        judge.due = OSError("no")
        await trio.sleep(10)
        assert (judge.judged, closed(client)) == ([], (None, ""))
        assert len(logged("a plugin failed")) == 1


@pytest.mark.parametrize("broken", ["first", "last"])
async def test_one_plugin_that_cannot_say_does_not_speak_for_the_others(
    tmp_path: Path, autojump_clock: MockClock, broken: str
) -> None:
    judge, other = Judge(), Judge()
    names = ("other", "judge") if broken == "first" else ("judge", "other")
    text = config("a", plugins=("fake", *names))
    async with running(tmp_path, text, fake=Sources(), judge=judge, other=other) as bench:
        client = bench.connect(ANN)
        judge.says["ann"] = REVOKED
        judge.due, other.due = True, OSError("no")
        await trio.sleep(1)
        assert closed(client) == (4503, "revoked")
        assert bench.gateway.hooks.failures["reauthentication_due"] >= 1


async def test_an_answer_that_has_grown_old_is_judged_before_it_counts(tmp_path: Path) -> None:
    """The key was withdrawn, or the file changed, while a thread looked at the credentials."""
    judge = Judge()
    text = config("a", plugins=("fake", "judge"))
    async with running(tmp_path, text, fake=Sources(), judge=judge) as bench:
        client = bench.connect(BOB)
        client.does(log_in("good"))
        judge.says["ann"] = REVOKED
        await client.wait_login(Refusal)
        assert client.logins == [REVOKED]
        assert client.connection.identity is BOB
        judge.says["ann"] = Identity("ann", frozenset({"all"}))
        client.does(log_in("good"))
        await client.wait_login(Identity)
        assert client.connection.identity.roles == {"all"}


async def test_who_was_on_his_way_when_all_were_judged_is_judged_when_he_is_there(tmp_path: Path) -> None:
    """As with a ticket: the identity is older than the connection."""
    judge = Judge()
    judge.says["ann"] = REVOKED
    text = config("a", plugins=("fake", "judge"))
    async with running(tmp_path, text, fake=Sources(), judge=judge) as bench:
        client = bench.connect(ANN)
        client.does(open_it("a"))
        assert closed(client) == (4503, "revoked")
        assert (client.opened, client.connection.subscriptions) == (0, {})


async def test_who_came_before_anybody_was_asked_is_asked_now(tmp_path: Path) -> None:
    async with running(tmp_path, config("a"), fake=Sources()) as bench:
        unasked = await bench.gateway.authenticate(Token("whatever"))
        assert unasked == ANONYMOUS
        client = bench.connect(unasked)
        client.does(open_it("a"))
        plugins = {"fake": Sources(), "judge": Judge()}
        bench.gateway.apply(load_text(tmp_path, config("a", plugins=("fake", "judge")), plugins))
        await settled()
        assert closed(client) == (4402, "no_credentials")
        assert client.connection.subscriptions == {}


class Forger(Judge):
    """Says that its identities are another plugin's, and when asked again that they are nobody's."""

    @hookimpl
    def authenticate(self, credential: Credential) -> Identity:
        return replace(ANN, authenticator="other")

    @hookimpl
    def reauthenticate(self, identity: Identity) -> object:
        return replace(identity, authenticator=None)


async def test_who_was_let_in_by_a_plugin_that_is_gone_must_say_again_who_he_is(tmp_path: Path) -> None:
    for plugin in (Judge(), Forger()):
        plugins = {"fake": Sources(), "judge": plugin, "other": Judge()}
        text = config("a", plugins=("fake", "judge"))
        async with running(tmp_path, text, **plugins) as bench:
            known = await bench.gateway.authenticate(Token("good"))
            assert isinstance(known, Identity)
            client = bench.connect(known)
            client.does(open_it("a"))
            bench.gateway.apply(load_text(tmp_path, config("a", plugins=("fake", "judge", "other")), plugins))
            await settled()
            assert closed(client) == (None, "")
            bench.gateway.apply(load_text(tmp_path, config("a", plugins=("fake", "other")), plugins))
            await settled()
            assert closed(client) == (4402, "no_credentials")
            assert client.connection.subscriptions == {}
            assert isinstance(bench.gateway.hooks.reauthenticate(known), Refusal)  # as that of a ticket


class Slow(Judge):
    """Takes 2 ms for every identity, on a clock that only it moves."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0

    @hookimpl
    def reauthenticate(self, identity: Identity) -> object:
        self.now += 0.002
        return super().reauthenticate(identity)


async def test_many_are_judged_a_slice_at_a_time_and_told_of_sources_only_after_it(tmp_path: Path) -> None:
    judge = Slow()
    judge.says["bob"] = REVOKED
    plugins = {"fake": Sources(), "judge": judge}
    async with running(tmp_path, config("a", plugins=("fake", "judge")), **plugins) as bench:
        clients = [bench.connect(ANN) for _ in range(20)]
        judge.judged.clear()
        bench.gateway._reauthorization._clock = lambda: judge.now
        more = load_text(tmp_path, config("a", "b", "c", plugins=("fake", "judge")), plugins)
        bench.gateway.apply(more)
        assert len(judge.judged) == 3, "5 ms"
        waiting = [client for client in clients if client.connection.due]
        assert [sources(client) for client in waiting] == [["a"]] * 17
        for client in waiting[1:]:
            client.connection.access.identity = BOB
        waiting[-1].does(open_it("a"))  # asks for more before it is its turn
        assert closed(waiting[-1]) == (4503, "revoked")
        assert waiting[-1].connection.subscriptions == {}
        await settled()
        assert len(judge.judged) == 20, "each once"
        assert [closed(client)[0] for client in waiting] == [None] + [4503] * 16
        assert [sources(client) for client in waiting] == [["a", "b", "c"]] + [["a"]] * 16


def sources(client: Client) -> list[str]:
    """Those that it was told of."""
    return [notice.source.id for notice in client.told(SourceAppeared) if isinstance(notice, SourceAppeared)]


def hooks(*answers: object) -> Hooks:
    manager = PluginManager()
    for number, answer in enumerate(answers):
        judge = Judge()
        judge.says["ann"] = answer
        manager.register(judge, f"p{number}")
    return Hooks(manager)


@pytest.mark.parametrize(
    ("answers", "expected"),
    [
        ((), ANN),
        ((None, None), ANN),
        ((BOB, None), BOB),
        ((BOB, REVOKED), REVOKED),
        ((REVOKED, BOB), REVOKED),
        ((None, REVOKED, None), REVOKED),
    ],
)
def test_one_refusal_of_several_plugins_suffices(
    answers: tuple[object, ...], expected: Identity | Refusal
) -> None:
    assert hooks(*answers).reauthenticate(ANN) is expected


class Issuing(Judge):
    """Gives a token to whom it lets in, once."""

    @hookimpl
    def authenticate(self, credential: Credential) -> Identity:
        return replace(ANN, issued_token="new-token")


async def test_a_token_that_was_issued_reaches_who_asked_whatever_is_judged_behind_it() -> None:
    judge, manager = Issuing(), PluginManager()
    manager.register(judge, "judge")
    asking = Hooks(manager)
    for judge.says["ann"] in (None, Identity("ann", frozenset({"all"}))):
        answer = await asking.authenticate(Password("ann", "right"), 5)
        assert isinstance(answer, Identity)
        assert answer == (judge.says["ann"] or ANN)
        assert answer.issued_token == "new-token"
        assert "new-token" not in repr(answer)


class Counted:
    """A connection that takes 0.1 ms to be judged, on the clock of a test."""

    closed = False

    def __init__(self, clock: list[float]) -> None:
        self.due = False
        self._clock = clock

    def reauthorize(self) -> None:
        self.due = False
        self._clock[0] += 0.0001


async def test_ten_thousand_are_judged_in_turns_of_five_milliseconds_that_others_have_between() -> None:
    clock = [0.0]
    connections = {Counted(clock) for _ in range(10_000)}
    judging = Reauthorization(lambda source_id: None, lambda: clock[0])
    judging.ask(connections)  # type: ignore[arg-type]
    assert sum(one.due for one in connections) == 10_000 - 50, "all the others are, before they do anything"
    turns = 0
    async with trio.open_nursery() as nursery:
        nursery.start_soon(judging.run)
        while any(one.due for one in connections):
            turns += 1
            before = clock[0]
            await trio.lowlevel.checkpoint()
            assert clock[0] - before < 0.0104, "two turns, where Trio's dice have it so"
        nursery.cancel_scope.cancel()
    assert 190 <= turns <= 210
