"""What clients write: rights, order, bounds, turns and deadlines, whatever the source does."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import pytest
import trio
from trio.testing import MockClock

from kiwi_gw.api import (
    Action,
    CommitRefused,
    Credential,
    Identity,
    Outgoing,
    Permit,
    Published,
    Refusal,
    SourceInfo,
    Unpublished,
    hookimpl,
)
from kiwi_gw.codes import CloseCode
from kiwi_gw.core.commands import MAX_COMMITS, Close, Commit, Produce
from kiwi_gw.core.notices import CommitDone, Produced
from kiwi_gw.runtime import produce_queue, produce_window
from tests.unit.runtime.fakes import Client, running, settled
from tests.unit.runtime.writable import Vault, vaults

OPEN = vaults("id: a, publish: true, commit: true", "id: b, publish: true")
IN_DOUBT = Unpublished("not known whether it was written", retriable=True, known=False)


def put(*texts: str, source: str = "a") -> list[Produce]:
    return [Produce(text, source, Outgoing(None, text.encode())) for text in texts]


def results(client: Client) -> list[tuple[object, object]]:
    return [(n.handle, n.result) for n in client.session.notices if isinstance(n, Produced)]


def commits(client: Client) -> list[tuple[object, Refusal | None]]:
    return [(n.handle, n.result) for n in client.session.notices if isinstance(n, CommitDone)]


def texts(call: Iterable[Outgoing]) -> list[str]:
    return [(record.value or b"").decode() for record in call]


def codes(client: Client) -> list[str]:
    return [result.code for _, result in results(client) if isinstance(result, Refusal)]


async def test_what_comes_while_the_source_writes_is_what_it_gets_next(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    vault = Vault()
    async with running(tmp_path, OPEN, vault=vault) as bench:
        client = bench.connect()
        client.does(*put("1"))
        await settled()
        client.does(*put("2", "3"))
        client.does(*put("4"))
        await settled()
        assert [texts(call) for call in vault.calls] == [["1"]]
        vault.gate.set()
        await settled()
        assert [texts(call) for call in vault.calls] == [["1"], ["2", "3", "4"]]
        assert results(client) == [(str(n + 1), Published(0, n)) for n in range(4)]
        assert bench.gateway.meters.source("a").produced == {"written": 4}


async def test_answers_have_the_order_of_the_records_whatever_source_is_first(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    vault = Vault()
    async with running(tmp_path, OPEN, vault=vault) as bench:
        client = bench.connect()
        client.does(*put("1"), *put("2", source="nowhere"), *put("3", source="b"))
        await settled()
        assert results(client) == []  # the refusal waits for its turn
        vault.gate.set()
        await settled()
        assert [handle for handle, _ in results(client)] == ["1", "2", "3"]
        assert codes(client) == ["unknown_source"]


async def test_connections_are_taken_in_turn(
    tmp_path: Path, autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(produce_queue, "TURN_RECORDS", 2)
    vault = Vault()
    async with running(tmp_path, OPEN, vault=vault) as bench:
        first, second = bench.connect(), bench.connect()
        first.does(*put("x"))
        await settled()
        first.does(*put("a1", "a2", "a3"))
        second.does(*put("b1", "b2"))
        vault.gate.set()
        await settled()
        assert texts(vault.calls[1]) == ["a1", "a2", "b1", "b2", "a3"]


async def test_a_client_is_not_read_while_too_much_waits(
    tmp_path: Path, autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    vault = Vault()
    async with running(tmp_path, OPEN, vault=vault) as bench:
        many, large, third = bench.connect(), bench.connect(), bench.connect()
        many.does(*put(*map(str, range(produce_window.MOST_RECORDS - 1))))
        assert many.connection.writes is not None
        assert not many.connection.writes.window.full
        many.does(*put("one more"))
        assert many.connection.writes.window.full
        large.does(*put("x" * produce_window.MOST_BYTES))
        assert large.connection.writes is not None
        assert large.connection.writes.window.full
        third.does(*put("small"))
        assert third.connection.writes is not None
        assert not third.connection.writes.window.full
        monkeypatch.setattr(produce_queue, "MOST_BYTES", 1 << 20)
        assert third.connection.writes.window.full  # the source has too much of all together
        async with trio.open_nursery() as nursery:
            for client in (many, large, third):
                assert client.connection.writes is not None
                nursery.start_soon(client.connection.writes.window.wait_room)
            await settled()
            vault.gate.set()
        with trio.fail_after(20):  # some at a time
            while len(results(many)) < produce_window.MOST_RECORDS:  # noqa: ASYNC110
                await trio.sleep(0.001)
        assert [len(results(client)) for client in (many, large, third)] == [1024, 1, 1]


async def test_many_answers_are_one_write(tmp_path: Path, autojump_clock: MockClock) -> None:
    vault = Vault()
    vault.gate.set()
    async with running(tmp_path, OPEN, vault=vault) as bench:
        client = bench.connect()
        corked: list[bool] = []

        def answer(notice: object) -> tuple[()]:
            corked.append(client.socket.corked)
            return ()

        client.session.answer = answer
        times = 0
        uncork = client.socket.uncork

        def counted() -> None:
            nonlocal times
            times += 1
            uncork()

        client.does(*put(*map(str, range(100))))
        client.socket.uncork = counted  # type: ignore[method-assign]
        await settled()
        assert (len(results(client)), times) == (100, 1)
        assert all(corked[-100:])


async def test_what_a_client_that_leaves_still_had_waiting_is_dropped(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    vault = Vault()
    async with running(tmp_path, OPEN, vault=vault) as bench:
        leaves, stays = bench.connect(), bench.connect()
        leaves.does(*put("1"))
        await settled()
        leaves.does(*put("2"))
        stays.does(*put("3"))
        leaves.leave()
        vault.gate.set()
        await settled()
        assert [texts(call) for call in vault.calls] == [["1"], ["3"]]
        assert results(leaves) == []


async def test_what_becomes_of_records_is_not_told_behind_the_close_frame(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    vault = Vault()
    async with running(tmp_path, OPEN, vault=vault) as bench:
        client = bench.connect()
        client.does(*put("1"), Commit("c", "a", "g", {0: (1, "")}))
        await settled()
        client.does(Close(CloseCode.POLICY_VIOLATION, "enough"))
        vault.gate.set()
        await settled()
        assert (results(client), commits(client)) == ([], [])
        assert [texts(call) for call in vault.calls] == [["1"]]


async def test_behind_an_answer_that_ends_the_connection_comes_no_other(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    """Though several have waited for too long, and are refused together."""
    vault = Vault()
    async with running(tmp_path, OPEN, vault=vault) as bench:
        client = bench.connect()
        client.does(*(Commit(n, "a", "g", {0: (n, "")}) for n in range(4)))
        client.session.answer = lambda notice: (
            [Close(CloseCode.POLICY_VIOLATION, "enough")]
            if isinstance(notice, CommitDone) and notice.handle == 1
            else []
        )
        await trio.sleep(3.8)
        vault.gate.set()
        await settled()
        assert [handle for handle, _ in commits(client)] == [0, 1]
        assert client.socket.close_reason == "enough"


async def test_every_record_is_answered_in_time_though_the_source_hangs(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    vault = Vault()
    async with running(tmp_path, OPEN, vault=vault) as bench:
        client = bench.connect()
        asked: dict[object, float] = {}
        took: dict[object, float] = {}

        def note(notice: object) -> tuple[()]:
            if isinstance(notice, Produced):
                took[notice.handle] = trio.current_time() - asked[notice.handle]
            return ()

        client.session.answer = note
        for number in range(100):
            asked[str(number)] = trio.current_time()
            client.does(*put(str(number)))
            await trio.sleep(0.1)
        await trio.sleep(5)
        assert len(took) == 100
        assert max(took.values()) <= 4.5
        assert {result for _, result in results(client)} >= {IN_DOUBT}
        assert all(isinstance(result, Unpublished) for _, result in results(client))


async def test_who_has_less_time_is_answered_sooner(tmp_path: Path, autojump_clock: MockClock) -> None:
    vault = Vault()
    async with running(tmp_path, OPEN, vault=vault) as bench:
        client, none_left = bench.connect(), bench.connect()
        client.does(Produce("1", "a", Outgoing(None, b"1"), within=1.25))
        none_left.does(
            Produce("2", "b", Outgoing(None, b"2"), within=0.0),
            Commit("c", "a", "g", {0: (1, "")}, within=0.0),
        )
        await trio.sleep(1.0)
        assert vault.within == [1.25]
        assert results(client) == []
        assert results(none_left) == [("2", produce_queue._NOT_IN_TIME)]
        assert [refusal and refusal.retry for _, refusal in commits(none_left)] == [True]
        assert vault.groups == {}
        await trio.sleep(0.75)
        assert results(client) == [("1", IN_DOUBT)]


@pytest.mark.parametrize(
    "wrong", [Vault(raises=ValueError("boom")), Vault(short=True)], ids=("raises", "short")
)
async def test_a_source_that_fails_leaves_its_records_in_doubt(
    tmp_path: Path, autojump_clock: MockClock, wrong: Vault
) -> None:
    wrong.gate.set()
    async with running(tmp_path, OPEN, vault=wrong) as bench:
        client = bench.connect()
        client.does(*put("1", "2"))
        await settled()
        assert results(client) == [("1", IN_DOUBT), ("2", IN_DOUBT)]
        assert bench.gateway.meters.source("a").produced == {"unknown": 2}


class Rules:
    """Everybody is known, and may do these."""

    def __init__(self, *allowed: Action, forbidden: tuple[Action, ...] = ()) -> None:
        self.allowed, self.forbidden = allowed, forbidden

    @hookimpl
    def authenticate(self, credential: Credential) -> Identity:
        return Identity("ann")

    @hookimpl
    def authorize(self, identity: Identity, action: Action, source: SourceInfo) -> Permit | Refusal | None:
        if action in self.forbidden:
            return Refusal("forbidden", "no")
        return Permit() if action in self.allowed else None


@pytest.mark.parametrize(
    ("rules", "found"),
    [
        (Rules(Action.PUBLISH), []),
        (Rules(Action.PUBLISH, forbidden=(Action.SUBSCRIBE,)), []),
        (Rules(), ["forbidden"]),
        (Rules(forbidden=(Action.SUBSCRIBE,)), ["unknown_source"]),
    ],
)
async def test_publishing_takes_a_permit_where_clients_are_known(
    tmp_path: Path, autojump_clock: MockClock, rules: Rules, found: list[str]
) -> None:
    vault = Vault()
    vault.gate.set()
    text = OPEN.replace("[vault]", "[vault, rules]")
    async with running(tmp_path, text, vault=vault, rules=rules) as bench:
        client = bench.connect(Identity("ann", authenticator="rules"))
        client.does(*put("1"))
        await settled()
        assert codes(client) == found
        assert bool(vault.calls) == (not found)


async def test_the_configuration_must_open_it(tmp_path: Path, autojump_clock: MockClock) -> None:
    vault = Vault()
    async with running(tmp_path, vaults("id: a"), vault=vault) as bench:
        client, late = bench.connect(), bench.connect(login_seconds=5)
        client.does(*put("1"), Commit("c", "a", "g", {0: (1, "")}))
        late.does(*put("1"))
        assert codes(client) == ["forbidden"]
        assert codes(late) == ["not_logged_in"]
        ((_, refusal),) = commits(client)
        assert refusal is not None
        assert refusal.code == "forbidden"


async def test_commits_are_kept_or_refused_in_words(tmp_path: Path, autojump_clock: MockClock) -> None:
    vault = Vault()
    async with running(tmp_path, OPEN, vault=vault) as bench:
        client = bench.connect()
        client.does(*(Commit(n, "a", "g", {0: (n, "note")}) for n in range(MAX_COMMITS + 1)))
        ((handle, refusal),) = commits(client)
        assert handle == MAX_COMMITS
        assert refusal is not None
        assert refusal.code == "busy"
        vault.gate.set()
        await settled()
        assert [result for _, result in commits(client)[1:]] == [None] * MAX_COMMITS
        assert vault.groups == {"g": {0: (MAX_COMMITS - 1, "note")}}
        vault.refusal = CommitRefused("positions", "there is no partition 7")
        client.does(Commit("wrong", "a", "g", {7: (1, "")}))
        await settled()
        assert commits(client)[-1] == ("wrong", Refusal("positions", "there is no partition 7"))
        assert bench.gateway.meters.source("a").commits == {"ok": 2, "refused": 1}


async def test_a_commit_that_is_refused_refuses_no_other_one(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    vault = Vault()
    async with running(tmp_path, OPEN, vault=vault) as bench:
        client = bench.connect()
        client.does(*(Commit(n, "a", "g", {p: (n, "")}) for n, p in enumerate((0, 1, Vault.NONE, 1, 0))))
        vault.gate.set()
        await settled()
        assert [(handle, result is None) for handle, result in commits(client)] == [
            (0, True),
            (1, True),
            (2, False),
            (3, True),
            (4, True),
        ]
        assert vault.groups == {"g": {0: (4, ""), 1: (3, "")}}


async def test_nothing_is_told_to_a_client_that_left(tmp_path: Path, autojump_clock: MockClock) -> None:
    vault = Vault()
    async with running(tmp_path, OPEN, vault=vault) as bench:
        client = bench.connect()
        client.does(*(Commit(n, "a", "g", {0: (n, "")}) for n in range(3)))
        await settled()
        client.leave()
        vault.gate.set()
        await settled()
        assert commits(client) == []
        assert vault.groups == {"g": {0: (0, "")}}


async def test_a_commit_that_hangs_is_answered(tmp_path: Path, autojump_clock: MockClock) -> None:
    vault = Vault()
    async with running(tmp_path, OPEN, vault=vault) as bench:
        client = bench.connect()
        client.does(Commit("c", "a", "g", {0: (1, "")}))
        with trio.fail_after(4.5):
            await client.session.wait_told(CommitDone)
        ((_, refusal),) = commits(client)
        assert refusal is not None
        assert (refusal.code, refusal.retry) == ("unavailable", True)


async def test_what_waits_is_judged_again_when_the_rules_have_changed(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    vault, rules = Vault(), Rules(Action.PUBLISH, Action.COMMIT)
    text = OPEN.replace("[vault]", "[vault, rules]")
    async with running(tmp_path, text, vault=vault, rules=rules) as bench:
        client = bench.connect(Identity("ann", authenticator="rules"))
        client.does(*put("1"), Commit("c", "a", "g", {0: (1, "")}))
        await settled()
        client.does(*put("2", "3"), *put("4", source="b"), Commit("d", "a", "g", {0: (2, "")}))
        rules.allowed = ()
        client.connection.reauthorize()
        vault.gate.set()
        await settled()
        assert [texts(call) for call in vault.calls if call] == [["1"]]
        assert codes(client) == ["forbidden"] * 3
        assert [handle for handle, _ in results(client)] == ["1", "2", "3", "4"]
        assert [(handle, refusal and refusal.code) for handle, refusal in commits(client)] == [
            ("d", "forbidden"),
            ("c", None),
        ]
        assert vault.groups == {"g": {0: (1, "")}}
