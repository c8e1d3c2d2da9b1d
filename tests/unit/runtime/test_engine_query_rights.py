"""Who may have a query run over whole sources: and what happens to it when that changes."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest
from trio.testing import MockClock

from kiwi_gw.api import Action, Credential, Identity, Refusal, hookimpl
from kiwi_gw.config import load_again
from kiwi_gw.core.notices import Ended
from tests.unit.runtime.engines import Engine, Rules, ask
from tests.unit.runtime.fakes import Bench, Client, Sources, config, log_in, running, settled
from tests.unit.runtime.test_engine_queries import PLUGINS, World, ends, failures, world

NO_SOURCE = ("unknown_source", "no source has this id")
NO_REPLAY = ("forbidden", 'not for you: to begin in the past needs the right "replay"')
NOT_ALL = ("forbidden", "this client sees only a part of b, or other values, so no query may read all of it")

HOW = {"allowed": None, "unknown": NO_SOURCE, "forbidden": NO_SOURCE, "no replay": NO_REPLAY, "part": NOT_ALL}


def rule(it: World, how: str) -> None:
    """Let this be the rule for the source `b`."""
    it.rules.forbidden.clear()
    it.rules.intercepted.clear()
    if how == "forbidden":
        it.rules.forbidden |= {("b", Action.SUBSCRIBE), ("b", Action.REPLAY)}
    elif how == "no replay":
        it.rules.forbidden.add(("b", Action.REPLAY))
    elif how == "part":
        it.rules.intercepted.add("b")


@pytest.mark.parametrize(("how", "order"), [*itertools.product(HOW, ["ab", "ba", "b"])])
async def test_every_table_must_be_there_and_be_readable_as_a_whole(
    tmp_path: Path, how: str, order: str
) -> None:
    async with world(tmp_path) as it:
        rule(it, how)
        client = it.connect()
        names = ["nothing" if name == "b" and how == "unknown" else name for name in order]
        client.does(ask(*names))
        why = HOW[how]
        assert failures(client) == ([] if why is None else [why]), "at once"
        await settled()
        assert len(it.engine.built) == (why is None)
        if why is not None:
            assert it.nothing_is_left


async def test_what_the_engine_says_of_a_source_is_not_for_everybody(tmp_path: Path) -> None:
    async with world(tmp_path, Engine(refuses="`b` is a topic without a schema")) as it:
        rule(it, "forbidden")
        client = it.connect()
        client.does(ask("b"))
        assert failures(client) == [NO_SOURCE]


async def test_who_has_not_logged_in_learns_nothing(tmp_path: Path, autojump_clock: MockClock) -> None:
    async with world(tmp_path) as it:
        client = it.bench.connect(login_seconds=5)
        client.does(ask("a"))
        client.does(ask("nothing"))
        assert client.refusals == ["not_logged_in"] * 2


# --- taken away --------------------------------------------------------------------------------


def reload(bench: Bench, text: str | None = None) -> None:
    if text is not None:
        bench.write(text)
    bench.gateway.apply(load_again(bench.gateway.loaded) if text else bench.gateway.loaded)


@pytest.mark.parametrize("credit", [None, 0])
@pytest.mark.parametrize(
    ("how", "words"),
    [
        ("allowed", None),
        ("forbidden", "not for you"),
        ("no replay", NO_REPLAY[1]),
        ("part", NOT_ALL[1]),
    ],
)
async def test_a_reload_that_takes_a_right_away_ends_it(
    tmp_path: Path, how: str, words: str | None, credit: int | None
) -> None:
    async with world(tmp_path) as it:
        client, other = it.connect(), it.connect()
        client.does(ask("a", "b", credit=credit))
        other.does(ask("a"))
        await settled()
        rule(it, how)
        reload(it.bench)
        assert ends(client) == ([] if words is None else [("unauthorized", words)])
        assert ends(other) == []
        await settled()
        assert len(it.engine.running) == (2 if words is None else 1)
        other.leave()
        client.leave()
        await settled()
        assert it.nothing_is_left


async def test_a_right_that_is_taken_away_before_it_is_open(tmp_path: Path) -> None:
    engine = Engine(services_of_queries=("engine",))
    async with world(tmp_path, engine) as it:
        client = it.connect()
        client.does(ask("b"))
        await settled()
        assert engine.service == "opening"
        rule(it, "forbidden")
        reload(it.bench)
        assert failures(client) == [("unauthorized", "not for you")]
        await settled()
        assert engine.service == "closed"
        assert it.nothing_is_left


@pytest.mark.parametrize(
    ("sources", "why"), [(("a", "b 2"), "altered"), (("a",), "removed"), (("a 2", "b"), None)]
)
async def test_a_source_that_is_removed_or_altered_ends_the_queries_that_read_it(
    tmp_path: Path, sources: tuple[str, ...], why: str | None
) -> None:
    async with world(tmp_path) as it:
        client, opening = it.connect(), it.connect()
        client.does(ask("b", credit=0))
        await settled()
        opening.does(ask("b"))
        reload(it.bench, config(*sources, plugins=PLUGINS))
        words = f"the source b, which the query reads, was {why}"
        assert ends(client) == ([] if why is None else [(why, words)])
        assert failures(opening) == ([] if why is None else [(why, words)])
        await settled()
        assert len(it.engine.running) == (2 if why is None else 0)


class Logins:
    """Lets `ann` in, and whoever logs in later."""

    def __init__(self) -> None:
        self.good = True

    @hookimpl
    def authenticate(self, credential: Credential) -> Identity:
        return Identity("bob")

    @hookimpl
    def reauthenticate(self, identity: Identity) -> Refusal | None:
        return None if self.good else Refusal("token_expired", "too old", retry=True)


async def ann(bench: Bench) -> Client:
    """A client of that name, with a query that runs."""
    client = bench.connect(Identity("ann", authenticator="logins"))
    client.does(ask("a"))
    await settled()
    assert client.opened == 1
    return client


async def test_who_becomes_another_client_has_that_ones_rights(tmp_path: Path) -> None:
    it, engine, rules = Logins(), Engine(), Rules()
    text = config("a", plugins=(*PLUGINS, "logins"))
    async with running(tmp_path, text, fake=Sources(), engine=engine, rules=rules, logins=it) as bench:
        client = await ann(bench)
        rules.only = "bob"
        client.does(log_in())
        await client.wait_login(Identity)
        assert client.ends == []
        rules.only = "ann"
        client.does(log_in(handle="again"))
        await client.session.wait_told(Ended)
        assert ends(client) == [("unauthorized", "not for you")]
        await settled()
        assert engine.running == []


async def test_credentials_that_expire_end_it(tmp_path: Path) -> None:
    it, engine = Logins(), Engine()
    text = config("a", plugins=("fake", "engine", "logins"))
    async with running(tmp_path, text, fake=Sources(), engine=engine, logins=it) as bench:
        client = await ann(bench)
        it.good = False
        reload(bench)
        assert client.socket.close_code == 4402
        await settled()
        assert (engine.running, len(bench.gateway.engine_queries)) == ([], 0)
