"""Going on behind the last event after a reconnect."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import UNSET
from trio.testing import MockClock

from kiwi_gw.client.messages import Event
from kiwi_gw.client.watch import NotResumed, SubscriptionOpened, WatchPlan
from kiwi_gw.dialects.kiwi.messages import CurrentPositions, Positions
from tests.unit.client.scripted import Peer, Script
from tests.unit.client.test_watch import Watching, follow, gateway

Command = Mapping[str, object]


class Seen:
    """The SUBSCRIBEs that came. Each connection ends after its events."""

    def __init__(self) -> None:
        self.commands: list[Command] = []

    @property
    def starts(self) -> list[object]:
        return [command.get("from") for command in self.commands]

    def script(
        self, positions: Positions | None, *offsets: int, notice: CurrentPositions | None = None
    ) -> Script:
        async def served(peer: Peer) -> None:
            self.commands.append(await peer.subscribed(UNSET if positions is None else positions))
            await peer.records(0, *offsets)
            if notice is not None:
                await peer.notice(notice)

        return served


def offsets(watching: Watching) -> list[object]:
    return [h.data["offset"] for h in watching.happenings if isinstance(h, Event)]


async def test_behind_the_last_event(autojump_clock: MockClock) -> None:
    seen = Seen()
    scripts = seen.script({"0": 5, "1": 7}, 5, 6), seen.script({"0": 7, "1": 7}, 7, 8, 9)
    async with gateway(*scripts) as served:
        watching = await follow(served, WatchPlan("s", limit=5, start="earliest"))
    assert seen.starts == ["earliest", {"positions": {"0": 7, "1": 7}}]
    assert [command.get("onMissing") for command in seen.commands] == [None, "earliest"]
    assert offsets(watching) == [5, 6, 7, 8, 9]
    first, second = [h for h in watching.happenings if isinstance(h, SubscriptionOpened)]
    assert (first.resumed, second.resumed, second.repeats) == (None, {"0": 7, "1": 7}, 0)


async def test_what_the_gateway_says_counts(autojump_clock: MockClock) -> None:
    seen = Seen()
    first = seen.script({"0": 5}, 5, 6, notice=CurrentPositions("s", {"0": 40}))  # the rest was filtered
    async with gateway(first, seen.script({"0": 40}, 40)) as served:
        await follow(served, WatchPlan("s", limit=3))
    assert seen.starts == [None, {"positions": {"0": 40}}]


async def test_refused_it_goes_on_with_what_comes(autojump_clock: MockClock) -> None:
    seen = Seen()

    async def forgetful(peer: Peer) -> None:
        seen.commands.append(await peer.refused("there is no partition 0"))
        seen.commands.append(await peer.subscribed(positions={"0": 0}))
        await peer.records(0, 0)

    scripts = seen.script({"0": 5}, 5), forgetful, seen.script({"0": 1}, 1)
    async with gateway(*scripts) as served:
        watching = await follow(served, WatchPlan("s", limit=3, start={"timestamp": 1}))
    assert seen.starts == [{"timestamp": 1}, {"positions": {"0": 6}}, None, {"positions": {"0": 1}}]
    assert [h.why for h in watching.happenings if isinstance(h, NotResumed)] == ["there is no partition 0"]


async def test_events_that_do_not_say_where_they_are_come_again(autojump_clock: MockClock) -> None:
    starts: list[object] = []

    async def counts(peer: Peer) -> None:
        starts.append((await peer.subscribed(positions={"0": 5})).get("from"))
        await peer.count(5, 6)

    async with gateway(counts, counts) as served:
        watching = await follow(served, WatchPlan("s", limit=4))
    assert starts == [None, {"positions": {"0": 5}}]
    assert [h.repeats for h in watching.happenings if isinstance(h, SubscriptionOpened)] == [0, 2]


async def test_told_not_to_resume(autojump_clock: MockClock) -> None:
    seen = Seen()
    async with gateway(seen.script({"0": 5}, 5), seen.script({"0": 9}, 9)) as served:
        await follow(served, WatchPlan("s", limit=2, start="earliest", resume=False))
    assert seen.starts == ["earliest", None]
    assert all("positionsEveryMs" not in command for command in seen.commands)


async def test_a_server_that_says_no_positions(autojump_clock: MockClock) -> None:
    seen = Seen()
    async with gateway(seen.script(None, 5), seen.script(None, 9)) as served:
        await follow(served, WatchPlan("s", limit=2, start="earliest"))
    assert seen.starts == ["earliest", None]


async def test_a_snapshot_is_taken_again(autojump_clock: MockClock) -> None:
    seen = Seen()
    async with gateway(seen.script({"0": 50}, 7), seen.script({"0": 50}, 7)) as served:
        await follow(served, WatchPlan("s", limit=2, start="snapshot"))
    assert seen.starts == ["snapshot", "snapshot"]


async def test_the_query_is_asked_again(autojump_clock: MockClock) -> None:
    seen = Seen()
    scripts = seen.script({"0": 5}, 5), seen.script({"0": 6}, 6)
    plan = WatchPlan("s", limit=2, where="value.n > 1", select="value.n")
    async with gateway(*scripts) as served:
        await follow(served, plan)
    assert [command["where"] for command in seen.commands] == ["value.n > 1"] * 2
    assert [command["select"] for command in seen.commands] == ["value.n"] * 2
