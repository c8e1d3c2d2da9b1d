"""The right to `replay`: to begin in the past. A reload may take it away while somebody does."""

from __future__ import annotations

from pathlib import Path

import pytest
import trio
from trio.testing import MockClock

from kiwi_gw.api import Action, Identity, Refusal, SourceInfo, hookimpl
from kiwi_gw.core.notices import Ended, OpenFailed
from kiwi_gw.core.states import SubscriptionState
from kiwi_gw.model import AtPositions, CloseReason, StartAt
from tests.unit.runtime.fakes import Bench, Client
from tests.unit.runtime.test_history import CONFIG, begin, gateway, publish, state

TEXT = CONFIG.replace("[scripted]", "[scripted, rules]")
NO = Refusal("forbidden", "no")


class Rules:
    """Who may not do what with any source."""

    def __init__(self, refusal: Refusal = NO) -> None:
        self.refusal = refusal
        self.forbidden: set[Action] = set()

    @hookimpl
    def authorize(self, identity: Identity, action: Action, source: SourceInfo) -> Refusal | None:
        return self.refusal if action in self.forbidden else None

    def withdraw(self, bench: Bench, action: Action = Action.REPLAY) -> None:
        self.forbidden = {action}
        bench.gateway.apply(bench.gateway.loaded)


def reasons(client: Client) -> list[str]:
    return [notice.reason.value for notice in client.told(Ended) if isinstance(notice, Ended)]


@pytest.mark.parametrize("start", [StartAt.EARLIEST, AtPositions({"0": 10})], ids=repr)
async def test_a_running_replay_ends_with_the_right_to_it(
    tmp_path: Path, autojump_clock: MockClock, start: StartAt | AtPositions
) -> None:
    rules = Rules()
    async with gateway(tmp_path, TEXT, rules=rules) as (bench, script):
        await publish(script, 1000)
        reads, waits = bench.connect(), bench.connect()
        reads.does(begin(start, credit=60))
        waits.does(begin(start, credit=0))
        await trio.sleep(0.5)
        assert state(reads) in (SubscriptionState.HISTORY, SubscriptionState.HISTORY_WAITING)
        assert state(waits) is SubscriptionState.HISTORY_WAITING
        had = len(reads.offsets)
        rules.withdraw(bench)
        await publish(script, 100)
        await trio.sleep(0.5)
        assert (reasons(reads), len(reads.offsets)) == (["unauthorized"], had)
        assert (reasons(waits), waits.offsets) == (["unauthorized"], [])
        assert reads.socket.close_code is None
        assert next(iter(bench.gateway.runners())).hub.replaying == 0


async def test_a_replay_that_has_not_begun_yet_ends_too(tmp_path: Path, autojump_clock: MockClock) -> None:
    rules = Rules()
    async with gateway(tmp_path, TEXT, rules=rules) as (bench, script):
        await publish(script, 1000)
        script.history.hold()
        client = bench.connect()
        client.does(begin())
        assert state(client) is SubscriptionState.OPENING
        rules.withdraw(bench)
        assert client.refusals == ["unauthorized"]


async def test_a_replay_within_the_window_is_one(tmp_path: Path, autojump_clock: MockClock) -> None:
    rules = Rules()
    async with gateway(tmp_path, TEXT, rules=rules) as (bench, script):
        await publish(script, 50)
        client = bench.connect()
        client.does(begin(AtPositions({"0": 10}), credit=5))
        assert (state(client), client.offsets) == (SubscriptionState.BEHIND, [10, 11, 12, 13, 14])
        rules.withdraw(bench)
        (ended,) = client.told(Ended)
        assert isinstance(ended, Ended)
        assert ended.reason is CloseReason.UNAUTHORIZED
        assert ended.message == 'no: to begin in the past needs the right "replay"'


async def test_a_refusal_for_another_reason_is_told_as_it_is(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    """Who has an old token has all the rights that it had."""
    rules = Rules(Refusal("token_expired", "the token has expired"))
    async with gateway(tmp_path, TEXT, rules=rules) as (bench, _):
        rules.withdraw(bench)
        client = bench.connect()
        client.does(begin())
        (failed,) = client.told(OpenFailed)
        assert isinstance(failed, OpenFailed)
        assert (failed.code, failed.message) == ("token_expired", "the token has expired")


async def test_who_has_come_to_what_is_live_stays_and_misses_nothing_without_the_right(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    """The policy `replay` repeats nothing: it brings what came since the subscription began."""
    rules = Rules()
    async with gateway(tmp_path, TEXT, rules=rules) as (bench, script):
        await publish(script, 1000)
        clients = [bench.connect(), bench.connect()]
        clients[0].does(begin())
        clients[1].does(begin(StartAt.LATEST))
        await trio.sleep(0.5)
        assert [state(client) for client in clients] == [SubscriptionState.LIVE, SubscriptionState.LIVE]
        rules.withdraw(bench)
        for client in clients:
            client.socket.take = lambda size: 0
        await publish(script, 1000)
        assert [state(client) for client in clients] == [SubscriptionState.HISTORY_WAITING] * 2
        rules.withdraw(bench)
        for client in clients:
            client.socket.take = lambda size: size
            client.socket.drain()
        await trio.sleep(0.5)
        assert [client.offsets for client in clients] == [list(range(2000)), list(range(1000, 2000))]
        assert [reasons(client) for client in clients] == [[], []]


async def test_without_the_right_no_new_replay_begins(tmp_path: Path, autojump_clock: MockClock) -> None:
    rules = Rules()
    async with gateway(tmp_path, TEXT, rules=rules) as (bench, script):
        await publish(script, 1000)
        rules.withdraw(bench)
        client = bench.connect()
        client.does(begin())
        assert client.refusals == ["forbidden"]
        client.does(begin(StartAt.LATEST))
        assert state(client) is SubscriptionState.LIVE


async def test_a_snapshot_needs_the_right(tmp_path: Path, autojump_clock: MockClock) -> None:
    """Of a compacted topic the newest event of every key is everything."""
    rules = Rules()
    async with gateway(tmp_path, TEXT, rules=rules) as (bench, _):
        client = bench.connect()
        client.does(begin(StartAt.SNAPSHOT))
        rules.withdraw(bench)
        client.does(begin(StartAt.SNAPSHOT))
        assert client.refusals == ["start", "forbidden"], "its keys are not kept; and then it may not"
