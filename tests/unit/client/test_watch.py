from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
import trio
from msgspec import UNSET
from trio.testing import MockClock

from kiwi_gw.backoff import Backoff
from kiwi_gw.client.address import parse_address
from kiwi_gw.client.messages import Event, MalformedMessage, Noticed
from kiwi_gw.client.watch import Happening, Reconnecting, SubscriptionOpened, WatchEnded, WatchPlan, watch
from kiwi_gw.dialects.kiwi.messages import (
    AnyNotice,
    Draining,
    Error,
    Lag,
    QueryHint,
    Refused,
    SubscribeError,
    SubscriptionClosed,
    TokenExpiring,
)
from tests.unit.client.scripted import Peer, Script, ScriptedGateway, one_event

ADDRESS = parse_address("ws://gw.example/kiwi")


class Watching:
    def __init__(self) -> None:
        self.happenings: list[Happening] = []

    async def take(self, happening: Happening) -> None:
        self.happenings.append(happening)

    @property
    def counts(self) -> list[object]:
        return [h.data["count"] for h in self.happenings if isinstance(h, Event)]

    @property
    def waits(self) -> list[float]:
        return [h.seconds for h in self.happenings if isinstance(h, Reconnecting)]

    @property
    def reasons(self) -> list[str]:
        return [h.why for h in self.happenings if isinstance(h, Reconnecting)]


@asynccontextmanager
async def gateway(*scripts: Script | Exception | bytes) -> AsyncIterator[ScriptedGateway]:
    async with trio.open_nursery() as nursery:
        yield ScriptedGateway(nursery, scripts)
        nursery.cancel_scope.cancel()


def longest() -> Backoff:
    """The longest wait that the jitter allows."""
    return Backoff(uniform=lambda low, high: high)


async def follow(served: ScriptedGateway, plan: WatchPlan) -> Watching:
    watching = Watching()
    await watch(ADDRESS, plan, watching.take, dial=served.dial, backoff=longest())
    return watching


async def test_push_ends_after_the_limit(autojump_clock: MockClock) -> None:
    seen: dict[str, object] = {}

    async def script(peer: Peer) -> None:
        seen.update(peer.headers, command=await peer.subscribed(), path=peer.ws.path)
        await peer.count(1, 2, 3, 4)
        await peer.until_gone()

    async with gateway(script) as served:
        watching = await follow(served, WatchPlan("s", limit=3, headers=[("Authorization", "Bearer t")]))
    assert watching.counts == [1, 2, 3]
    assert isinstance(watching.happenings[0], SubscriptionOpened)
    assert seen["command"] == {
        "type": "SUBSCRIBE",
        "sourceId": "s",
        "mode": "push",
        "positionsEveryMs": 1000,
    }
    assert (seen["authorization"], seen["path"]) == ("Bearer t", "/kiwi")


async def test_pull_fills_up_when_half_is_used(autojump_clock: MockClock) -> None:
    asked: list[int] = []

    async def script(peer: Peer) -> None:
        assert (await peer.subscribed())["mode"] == "pull"
        asked.append(await peer.credit())
        await peer.count(*range(5))
        asked.append(await peer.credit())
        await peer.count(*range(5, 10))
        asked.append(await peer.credit())
        await peer.count(*range(10, 17))
        await peer.until_gone()

    async with gateway(script) as served:
        watching = await follow(served, WatchPlan("s", mode="pull", window=10, limit=17))
    assert watching.counts == list(range(17))
    assert asked == [10, 5, 2], "half each time, and not one event more than the limit"


async def test_pull_at_a_rate(autojump_clock: MockClock) -> None:
    times: list[float] = []

    async def script(peer: Peer) -> None:
        await peer.subscribed()
        number = 0
        while True:
            for _ in range(await peer.credit()):
                times.append(trio.current_time())
                await peer.count(number)
                number += 1

    async with gateway(script) as served:
        start = trio.current_time()
        watching = await follow(served, WatchPlan("s", mode="pull", rate=20, limit=200))
    assert watching.counts == list(range(200))
    assert times[-1] - start == pytest.approx(9.9)
    for begin in times:
        assert sum(begin <= moment < begin + 0.999 for moment in times) <= 20


async def test_comes_back_with_growing_waits_and_starts_small_after_a_good_time(
    autojump_clock: MockClock,
) -> None:
    async def drops(peer: Peer) -> None:
        await peer.subscribed()
        await peer.ws.aclose(1011, "oops")

    async def lives(peer: Peer) -> None:
        await peer.subscribed()
        await trio.sleep(1.5)

    async def last(peer: Peer) -> None:
        await peer.subscribed()
        await peer.count(7)
        await peer.until_gone()

    refused = OSError(111, "Connection refused")
    async with gateway(drops, refused, drops, lives, last) as served:
        watching = await follow(served, WatchPlan("s", limit=1))
    assert watching.counts == [7]
    assert watching.waits == [0.5, 1, 2, 0.5]
    assert watching.reasons[0] == "closed by the server: 1011 oops"
    assert "Connection refused" in watching.reasons[1]
    assert served.dialled == pytest.approx([0, 0.5, 1.5, 3.5, 5.5], abs=1e-6)


async def test_a_draining_server_is_taken_at_its_word(autojump_clock: MockClock) -> None:
    async def drains(peer: Peer) -> None:
        await peer.subscribed()
        await peer.notice(Draining(4321))
        await peer.ws.aclose(1012, "draining")

    async with gateway(drains, one_event) as served:
        watching = await follow(served, WatchPlan("s", limit=1))
    assert watching.waits == [4.321]
    assert any(isinstance(h, Noticed) and isinstance(h.data, Draining) for h in watching.happenings)


async def test_every_notice_is_shown(autojump_clock: MockClock) -> None:
    notices: list[AnyNotice] = [
        QueryHint("s", "no event has a member x"),
        TokenExpiring(60_000),
        Error("no such type", None),
    ]

    async def script(peer: Peer) -> None:
        await peer.subscribed()
        for notice in notices:
            await peer.notice(notice)
        await peer.count(1)
        await peer.until_gone()

    async with gateway(script) as served:
        watching = await follow(served, WatchPlan("s", limit=1))
    assert [h.data for h in watching.happenings if isinstance(h, Noticed)] == notices


@pytest.mark.parametrize("code", [4500, 4503, 1002, 1008])
async def test_a_close_that_sends_it_away(code: int, autojump_clock: MockClock) -> None:
    async def script(peer: Peer) -> None:
        await peer.subscribed()
        await peer.ws.aclose(code, "invalid_token")

    async with gateway(script) as served:
        with pytest.raises(WatchEnded, match=f"{code} invalid_token"):
            await follow(served, WatchPlan("s"))


async def test_a_refused_subscription_ends_it(autojump_clock: MockClock) -> None:
    async def script(peer: Peer) -> None:
        await peer.command()
        await peer.say(SubscribeError(Refused("s", "No source exists with the specified ID")))
        await peer.until_gone()

    async with gateway(script) as served:
        with pytest.raises(WatchEnded, match="s: No source exists with the specified ID"):
            await follow(served, WatchPlan("s"))


def http(status: str, *headers: str, body: str = "") -> bytes:
    lines = [f"HTTP/1.1 {status}", *headers, f"Content-Length: {len(body)}", "", body]
    return "\r\n".join(lines).encode()


async def test_a_refused_handshake_ends_it(autojump_clock: MockClock) -> None:
    async with gateway(http("401 Unauthorized", body="no token")) as served:
        with pytest.raises(WatchEnded, match="HTTP 401: no token"):
            await follow(served, WatchPlan("s"))


async def test_an_overloaded_server_says_when_to_come_back(autojump_clock: MockClock) -> None:
    async with gateway(http("503 Service Unavailable", "Retry-After: 7"), one_event) as served:
        watching = await follow(served, WatchPlan("s", limit=1))
    assert watching.waits == [7.5]


@pytest.mark.parametrize("answer", [b"", b"SSH-2.0-OpenSSH\r\n", b"HTTP/1.1 200 OK\r\n"])
async def test_something_else_listens_there(answer: bytes, autojump_clock: MockClock) -> None:
    async with gateway(answer) as served:
        with pytest.raises(WatchEnded, match=r"WebSocket|handshake|failed"):
            await follow(served, WatchPlan("s"))
    assert trio.current_time() == 0, "an ended stream needs no deadline"


async def test_a_server_that_says_nothing_at_all(autojump_clock: MockClock) -> None:
    async def mute(address: object) -> trio.abc.Stream:
        return trio.testing.memory_stream_pair()[0]

    with pytest.raises(WatchEnded, match="no answer in 10 s"):
        await watch(ADDRESS, WatchPlan("s"), Watching().take, dial=mute)
    assert trio.current_time() == 10


async def test_the_first_failure_is_final_unless_it_may_wait(autojump_clock: MockClock) -> None:
    refused = OSError(111, "Connection refused")
    async with gateway(refused) as served:
        with pytest.raises(WatchEnded, match=r"ws://gw.example/kiwi: Connection refused \(--wait"):
            await follow(served, WatchPlan("s"))
    async with gateway(refused, refused, one_event) as served:
        watching = await follow(served, WatchPlan("s", limit=1, wait=True))
    assert watching.waits == [0.5, 1]


async def test_silence_is_asked_for_a_sign_and_then_given_up(autojump_clock: MockClock) -> None:
    async def silent(peer: Peer) -> None:
        await peer.subscribed()
        peer.freeze()
        await trio.sleep_forever()

    async with gateway(silent, one_event) as served:
        watching = await follow(served, WatchPlan("s", limit=1))
    assert watching.reasons == ["the server has been silent for 30 s"]
    assert served.dialled == [0, 30.5]


async def test_a_quiet_source_is_no_reason_to_leave(autojump_clock: MockClock) -> None:
    async def quiet(peer: Peer) -> None:
        await peer.subscribed()
        await trio.sleep(1000)
        await peer.count(1)
        await peer.until_gone()

    async with gateway(quiet) as served:
        watching = await follow(served, WatchPlan("s", limit=1))
    assert watching.counts == [1]
    assert watching.waits == []


async def test_lag_is_told_and_reading_goes_on(autojump_clock: MockClock) -> None:
    async def script(peer: Peer) -> None:
        await peer.subscribed()
        await peer.notice(Lag("s", 5, dropped=2))
        await peer.count(1)
        await peer.until_gone()

    async with gateway(script) as served:
        watching = await follow(served, WatchPlan("s", limit=1))
    lag = watching.happenings[1]
    assert isinstance(lag, Noticed)
    assert lag.data == Lag("s", 5, dropped=2)


@pytest.mark.parametrize("reason", [None, "ended", "limit", "until"])
async def test_a_source_that_is_over(reason: str | None, autojump_clock: MockClock) -> None:
    async def script(peer: Peer) -> None:
        await peer.subscribed()
        await peer.count(1)
        await peer.notice(SubscriptionClosed("s", "over", reason or UNSET))
        await peer.until_gone()

    async with gateway(script) as served:
        watching = await follow(served, WatchPlan("s"))
    assert watching.counts == [1]
    last = watching.happenings[-1]
    assert isinstance(last, Noticed)
    assert isinstance(last.data, SubscriptionClosed)


@pytest.mark.parametrize("reason", ["removed", "failed", "unauthorized", "something new"])
async def test_a_subscription_that_was_taken_away(reason: str, autojump_clock: MockClock) -> None:
    async def script(peer: Peer) -> None:
        await peer.subscribed()
        await peer.notice(SubscriptionClosed("s", "gone", reason))
        await peer.until_gone()

    async with gateway(script) as served:
        with pytest.raises(WatchEnded, match="s: subscription closed: gone"):
            await follow(served, WatchPlan("s"))


@pytest.mark.parametrize("reason", ["altered", "changed", "overflow"])
async def test_a_subscription_that_can_be_had_again(reason: str, autojump_clock: MockClock) -> None:
    async def first(peer: Peer) -> None:
        await peer.subscribed()
        await peer.notice(SubscriptionClosed("s", "m", reason))
        await peer.until_gone()

    async with gateway(first, one_event) as served:
        watching = await follow(served, WatchPlan("s", limit=1))
    assert watching.reasons == [f"subscription closed ({reason})"]


async def test_a_request_that_crosses_the_end_of_its_subscription(autojump_clock: MockClock) -> None:
    async def script(peer: Peer) -> None:
        await peer.subscribed()
        command = await peer.command()
        await peer.send("REQUEST_ERROR", sourceId=command["sourceId"], error="no active subscription")
        await peer.notice(SubscriptionClosed("s", "over", "ended"))
        await peer.until_gone()

    async with gateway(script) as served:
        await follow(served, WatchPlan("s", mode="pull"))


async def test_a_refused_request_does_not_stand_still(autojump_clock: MockClock) -> None:
    async def refuses(peer: Peer) -> None:
        await peer.subscribed()
        await peer.command()
        await peer.send("REQUEST_ERROR", sourceId="s", error="Source is not in pull mode")
        await peer.until_gone()

    async def last(peer: Peer) -> None:
        await peer.subscribed()
        await peer.credit()
        await peer.count(1)
        await peer.until_gone()

    async with gateway(refuses, last) as served:
        watching = await follow(served, WatchPlan("s", mode="pull", limit=1))
    assert watching.reasons == ["REQUEST failed: Source is not in pull mode"]


@pytest.mark.parametrize("frame", ["hello", b"\x00"])
async def test_a_server_that_does_not_speak_kiwi(frame: str | bytes, autojump_clock: MockClock) -> None:
    async def script(peer: Peer) -> None:
        await peer.ws.send_message(frame)
        await peer.until_gone()

    async with gateway(script) as served:
        with pytest.raises(MalformedMessage):
            await follow(served, WatchPlan("s"))


async def test_no_answer_to_subscribe(autojump_clock: MockClock) -> None:
    async def mute(peer: Peer) -> None:
        await peer.until_gone()

    async with gateway(mute, one_event) as served:
        watching = await follow(served, WatchPlan("s", limit=1))
    assert watching.reasons == ["no answer to SUBSCRIBE in 120 s"]


async def test_a_slow_taker_slows_the_server_down(autojump_clock: MockClock) -> None:
    """A taker that takes its time is not silence: nobody is given up, and nothing is lost."""
    taken: list[object] = []

    async def slowly(happening: Happening) -> None:
        if isinstance(happening, Event):
            await trio.sleep(60)
            taken.append(happening.data["count"])

    async def script(peer: Peer) -> None:
        await peer.subscribed()
        await peer.count(*range(20))
        await peer.until_gone()

    async with gateway(script) as served:
        await watch(ADDRESS, WatchPlan("s", limit=20), slowly, dial=served.dial)
    assert taken == list(range(20))
    assert len(served.dialled) == 1


async def test_one_that_is_called_off_leaves_politely_and_at_once(autojump_clock: MockClock) -> None:
    left: list[tuple[float, int]] = []

    async def script(peer: Peer) -> None:
        await peer.subscribed()
        await peer.until_gone()
        assert peer.ws.closed is not None
        left.append((trio.current_time(), peer.ws.closed.code))

    async with gateway(script) as served:
        with trio.move_on_after(5):
            await watch(ADDRESS, WatchPlan("s"), Watching().take, dial=served.dial)
        assert left == [(5, 1000)]
        assert trio.current_time() == 5


async def test_one_that_is_called_off_does_not_wait_for_a_frozen_server(autojump_clock: MockClock) -> None:
    async def script(peer: Peer) -> None:
        await peer.subscribed()
        peer.freeze()
        await trio.sleep_forever()

    async with gateway(script) as served:
        with trio.move_on_after(5):
            await watch(ADDRESS, WatchPlan("s"), Watching().take, dial=served.dial)
        assert trio.current_time() == 6
