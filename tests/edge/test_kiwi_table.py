"""Every row about commands of the table of the Kiwi protocol, over a real socket and written by hand."""

from __future__ import annotations

import json

import pytest
import trio
from structlog.typing import EventDict

from kiwi_gw.errors import SourceFailed
from kiwi_gw.testing import ScriptedSources, open_gateway
from tests.edge.bench import error, running
from tests.edge.wall import Arrivals
from tests.edge.wire import (
    CONTINUATION,
    TEXT,
    Over,
    command,
    connect,
    frame,
)

pytestmark = pytest.mark.usefixtures("no_tracebacks")


# --- SUBSCRIBE ------------------------------------------------------------------------------------


async def test_an_id_that_is_too_long_for_any_source_is_an_unknown_one() -> None:
    async with running() as bench, bench.connect() as client:
        for length in (256, 60_000):
            refused = await client.ask("SUBSCRIBE", "x" * length)
            assert refused == {
                "type": "SUBSCRIBE_ERROR",
                "data": {
                    "sourceId": "x" * 255,
                    "error": "No source exists with the specified ID",
                    "code": "unknown_source",
                },
            }
        await client.subscribe("a")


@pytest.mark.parametrize("path", ["/", "/kiwi", "/?token=none"])
async def test_push_on_every_path(path: str) -> None:
    async with running() as bench, connect(bench.gateway, path) as client:
        opened = await client.ask("SUBSCRIBE", "a")
        assert opened == {
            "type": "SUBSCRIBE_OK",
            "data": {
                "sourceId": "a",
                "mode": "push",
                "positions": {"0": 0},
                "overflow": "drop_oldest",
                "bufferCapacity": 65536,
                "valueAs": "text",
            },
        }
        await bench.sources["a"].publish([b"one", None], keys=[b"k", None])
        results = [await client.message() for _ in range(2)]
        assert results == [
            {
                "type": "RESULT",
                "data": {
                    "sourceId": "a",
                    "sourceType": "scripted",
                    "key": key,
                    "value": value,
                    "partition": 0,
                    "offset": offset,
                },
            }
            for offset, (key, value) in enumerate([("k", "one"), (None, None)])
        ]
        assert await client.ask("UNSUBSCRIBE", "a") == {"type": "UNSUBSCRIBE_OK", "data": {"sourceId": "a"}}


async def test_subscribe_errors() -> None:
    async with running({"max_subscriptions": 1}) as bench, bench.connect() as client:
        words = error(await client.ask("SUBSCRIBE", "nobody"), "SUBSCRIBE")
        assert words == "No source exists with the specified ID"
        for mode in ("both", "", None, 1, ["pull"]):
            assert "mode" in error(await client.ask("SUBSCRIBE", "a", mode=mode), "SUBSCRIBE")
        for capacity in (0, -1, 1.5, "9", None, 2**53):
            reply = await client.ask("SUBSCRIBE", "a", bufferCapacity=capacity)
            assert "bufferCapacity" in error(reply, "SUBSCRIBE")
        for overflow in ("never", 3, None):
            assert "overflow" in error(await client.ask("SUBSCRIBE", "a", overflow=overflow), "SUBSCRIBE")
        assert "drop_oldest, close" in error(
            await client.ask("SUBSCRIBE", "a", overflow="replay"), "SUBSCRIBE"
        )
        await client.subscribe("a")
        words = error(await client.ask("SUBSCRIBE", "a"), "SUBSCRIBE")
        assert words == "Source already has an active subscription"
        assert "at most 1" in error(await client.ask("SUBSCRIBE", "b"), "SUBSCRIBE")
        assert (await client.ask("UNSUBSCRIBE", "a"))["type"] == "UNSUBSCRIBE_OK"
        await client.subscribe("b", mode="pull", overflow="close", bufferCapacity=10)


async def test_the_129th_subscription_is_refused() -> None:
    sources = ScriptedSources()
    ids = [f"s{number}" for number in range(129)]
    config = {"plugins": ["scripted"], "sources": [{"type": "scripted", "id": name} for name in ids]}
    async with (
        open_gateway(json.dumps(config), plugins={"scripted": sources}) as gateway,
        connect(gateway) as client,
    ):
        for name in ids[:128]:
            await client.subscribe(name)
        assert "at most 128" in error(await client.ask("SUBSCRIBE", ids[128]), "SUBSCRIBE")
        await sources[ids[127]].publish([b"x"])
        assert (await client.message())["data"]["sourceId"] == ids[127]


@pytest.mark.parametrize("how", ["ended", "failed"])
async def test_a_source_that_is_over_is_refused(how: str, log_lines: list[EventDict]) -> None:
    async with running() as bench, bench.connect() as client:
        await client.subscribe("a")
        if how == "ended":
            await bench.sources["a"].end()
        else:
            await bench.sources["a"].fail(SourceFailed("the disk is gone"))
        notice = await client.message()
        assert (notice["type"], notice["data"]["reason"]) == ("NOTICE", how)
        words = error(await client.ask("SUBSCRIBE", "a"), "SUBSCRIBE")
        assert words == ("the source has ended" if how == "ended" else "the disk is gone")
    log_lines[:] = [line for line in log_lines if line["event"] != "source failed"]  # it was wanted


async def test_a_source_that_is_starting_is_waited_for() -> None:
    async with running(hold=True) as bench, bench.connect() as client:
        # All three in one segment: the REQUEST is answered when the subscription is open.
        await client.send(
            command("SUBSCRIBE", "a", mode="pull")
            + command("REQUEST", "a", n=2)
            + command("REQUEST", "a", n=3)
            + command("SUBSCRIBE", "b")
        )
        assert (await client.message())["data"]["sourceId"] == "b"
        bench.sources["a"].release()
        replies = [await client.message() for _ in range(3)]
        assert [reply["type"] for reply in replies] == ["SUBSCRIBE_OK", "REQUEST_OK", "REQUEST_OK"]
        assert [reply["data"]["credits"] for reply in replies[1:]] == [2, 5]
        await bench.sources["a"].publish([b"x"] * 9)
        assert [(await client.message())["data"]["offset"] for _ in range(5)] == [0, 1, 2, 3, 4]


async def test_waiting_for_a_source_has_an_end() -> None:
    async with (
        running(hold=True, subscriber={"subscribe_timeout_ms": 100}) as bench,
        bench.connect() as client,
    ):
        await client.send(command("SUBSCRIBE", "a", mode="pull") + command("REQUEST", "a", n=2))
        assert "has not started within 0.1 s" in error(await client.message(), "SUBSCRIBE")
        assert "active" in error(await client.message(), "REQUEST")
        words = error(await client.ask("UNSUBSCRIBE", "a"), "UNSUBSCRIBE")
        assert words == "Source does not have an active subscription"
        bench.sources["a"].release()
        await client.subscribe("a")


async def test_unsubscribe_cancels_a_subscription_that_waits() -> None:
    async with running(hold=True) as bench, bench.connect() as client:
        await client.send(
            command("SUBSCRIBE", "a", mode="pull")
            + command("REQUEST", "a", n=2)
            + command("UNSUBSCRIBE", "a")
        )
        replies = [(await client.message())["type"] for _ in range(3)]
        assert replies == ["SUBSCRIBE_ERROR", "REQUEST_ERROR", "UNSUBSCRIBE_OK"]
        bench.sources["a"].release()
        await bench.sources["a"].publish([b"x"])
        await client.subscribe("b")  # and nothing of `a` comes before its answer


# --- UNSUBSCRIBE and REQUEST ----------------------------------------------------------------------


async def test_unsubscribe_and_request_want_a_subscription() -> None:
    async with running() as bench, bench.connect() as client:
        none = "Source does not have an active subscription"
        assert error(await client.ask("UNSUBSCRIBE", "a"), "UNSUBSCRIBE") == none
        assert error(await client.ask("UNSUBSCRIBE", "nobody"), "UNSUBSCRIBE") == none
        assert error(await client.ask("REQUEST", "a", n=1), "REQUEST") == none
        await client.subscribe("a")
        assert error(await client.ask("REQUEST", "a", n=1), "REQUEST") == "Source is not in pull mode"
        await client.ask("UNSUBSCRIBE", "a")
        assert error(await client.ask("UNSUBSCRIBE", "a"), "UNSUBSCRIBE") == none


async def test_credit_is_added_and_what_is_no_number_leaves_it_as_it_is() -> None:
    async with running() as bench, bench.connect() as client:
        await client.subscribe("a", mode="pull")
        assert await client.ask("REQUEST", "a", n=2) == {
            "type": "REQUEST_OK",
            "data": {"sourceId": "a", "n": 2, "credits": 2},
        }
        for n in (0, -1, 1.0, 10.0, True, "5", None, [1], 2**53, 10**30):
            assert "integer" in error(await client.ask("REQUEST", "a", n=n), "REQUEST")
        for written in (b"1e3", b"01", b"0x1", b"NaN"):
            await client.send(frame(TEXT, b'{"type":"REQUEST","sourceId":"a","n":' + written + b"}"))
            if written in (b"1e3",):
                assert "integer" in error(await client.message(), "REQUEST")
            else:
                assert (await client.over()).code == 1008  # not JSON at all
                break
    async with running() as bench, bench.connect() as client:
        await client.subscribe("a", mode="pull")
        await client.send(frame(TEXT, b'{"type":"REQUEST","sourceId":"a"}'))
        assert "integer" in error(await client.message(), "REQUEST")
        assert (await client.ask("REQUEST", "a", n=3))["data"]["credits"] == 3
        await bench.sources["a"].publish([b"x"] * 5)
        assert [(await client.message())["data"]["offset"] for _ in range(3)] == [0, 1, 2]
        largest = 2**53 - 1
        assert (await client.ask("REQUEST", "a", n=1))["data"]["credits"] == 1
        assert (await client.message())["data"]["offset"] == 3
        await client.send(command("REQUEST", "a", n=largest) + command("REQUEST", "a", n=largest))
        first = await client.message()
        assert first["data"] == {"sourceId": "a", "n": largest, "credits": largest}
        rest = [await client.message() for _ in range(2)]
        (second,) = [item for item in rest if item["type"] == "REQUEST_OK"]
        assert second["data"]["credits"] in (largest, largest - 1)


async def test_a_reply_comes_before_the_events_that_it_sets_free() -> None:
    async with running() as bench, bench.connect() as client:
        await client.subscribe("a", mode="pull")
        await bench.sources["a"].publish([b"x"] * 3)
        await client.send(command("REQUEST", "a", n=2) + command("UNSUBSCRIBE", "a"))
        kinds = [(await client.message())["type"] for _ in range(4)]
        assert kinds[0] == "REQUEST_OK"
        assert sorted(kinds[1:]) == ["RESULT", "RESULT", "UNSUBSCRIBE_OK"]
        assert kinds[3] == "UNSUBSCRIBE_OK"


async def test_nothing_follows_unsubscribe_ok_or_subscription_closed() -> None:
    async with running() as bench, bench.connect() as client:
        for _ in range(20):
            await client.subscribe("a")
            await bench.sources["a"].publish([b"x"] * 100)
            await client.send(command("UNSUBSCRIBE", "a"))
            while (await client.message())["type"] != "UNSUBSCRIBE_OK":
                pass
            await bench.sources["a"].publish([b"x"])
        await client.subscribe("b")
        await bench.sources["b"].publish([b"last"])
        await bench.sources["b"].end()
        kinds = [(await client.message())["type"] for _ in range(2)]
        assert kinds == ["RESULT", "NOTICE"]
        await client.subscribe("a")
        await bench.sources["a"].publish([b"y"])
        assert (await client.message())["data"]["value"] == "y"


async def test_a_finite_source_gives_a_pull_subscription_the_rest_before_it_closes() -> None:
    async with running() as bench, bench.connect() as client:
        await client.subscribe("a", mode="pull")
        await bench.sources["a"].publish([b"x"] * 3)
        await bench.sources["a"].end()
        await client.ask("REQUEST", "a", n=2)
        assert [(await client.message())["data"]["offset"] for _ in range(2)] == [0, 1]
        await client.ask("REQUEST", "a", n=5)
        assert (await client.message())["data"]["offset"] == 2
        closed = await client.message()
        assert closed == {
            "type": "NOTICE",
            "data": {
                "type": "SUBSCRIPTION_CLOSED",
                "sourceId": "a",
                "message": "the source has ended",
                "reason": "ended",
                "positions": {"0": 3},
                "dropped": 0,
            },
        }
        assert "active" in error(await client.ask("REQUEST", "a", n=1), "REQUEST")


async def test_an_ended_source_still_serves_what_its_window_holds_and_then_says_that_it_has_ended() -> None:
    async with running() as bench:
        await bench.sources["a"].publish([b"x"] * 3)
        await bench.sources["a"].end()
        begins: list[tuple[object, list[int]]] = [
            ("earliest", [0, 1, 2]),
            ({"offsets": {"0": 1}}, [1, 2]),
            ({"positions": {"0": 3}}, []),
        ]
        for begin, offsets in begins:
            async with bench.connect() as client:
                opened = await client.subscribe("a", **{"from": begin})
                assert opened["positions"] == {"0": 3 - len(offsets)}
                assert [(await client.message())["data"]["offset"] for _ in offsets] == offsets
                closed = (await client.message())["data"]
                assert (closed["type"], closed["reason"]) == ("SUBSCRIPTION_CLOSED", "ended")
                assert (closed["positions"], closed["dropped"]) == ({"0": 3}, 0)
        async with bench.connect() as client:  # at its own pace
            await client.subscribe("a", mode="pull", **{"from": "earliest"})
            for offset in range(3):
                assert (await client.ask("REQUEST", "a", n=1))["type"] == "REQUEST_OK"
                assert (await client.message())["data"]["offset"] == offset
            assert (await client.message())["data"]["reason"] == "ended"
            # As before: who wants what comes next is told that nothing does.
            for latest in ({}, {"from": "latest"}):
                words = error(await client.ask("SUBSCRIBE", "a", **latest), "SUBSCRIBE")
                assert words == "the source has ended"
            beyond = await client.ask("SUBSCRIBE", "a", **{"from": {"offsets": {"0": 4}}})
            assert "is before the one asked for" in error(beyond, "SUBSCRIBE")


# --- rates ----------------------------------------------------------------------------------------


async def test_too_many_commands_are_refused_and_then_the_connection_is_closed(arrivals: Arrivals) -> None:
    limits = {"commands_per_second": 5, "commands_burst": 10, "flood_ms": 300}
    async with running(limits) as bench, bench.connect() as client:
        await client.send(command("UNSUBSCRIBE", "a") * 30)
        words = [error(await client.message(), "UNSUBSCRIBE") for _ in range(30)]
        too_many = "Too many commands: at most 5 a second"
        assert words == ["Source does not have an active subscription"] * 10 + [too_many] * 20
        # REQUEST has a bucket of its own.
        assert "active" in error(await client.ask("REQUEST", "a", n=1), "REQUEST")
        with trio.fail_after(10):
            over = None
            while over is None:
                try:
                    arrivals.now += 0.1
                    await client.send(command("UNSUBSCRIBE", "a") * 5)
                    for _ in range(5):
                        await client.message()
                except Over as reason:
                    over = reason
        assert (over.code, over.reason) == (1008, "rate_limited")


async def test_what_is_switched_off_is_no_limit() -> None:
    rates = {"commands_per_second": 0, "commands_burst": 1, "requests_per_second": 0, "requests_burst": 1}
    none = {"max_connections": 0, "max_subscriptions": 0, "max_fragments": 0}
    async with running({**rates, **none}) as bench, bench.connect() as client:
        for source in ("a", "b"):
            await client.subscribe(source, mode="pull")
        await client.send(command("REQUEST", "a", n=1) * 500)
        await client.send(command("UNSUBSCRIBE", "c") * 500)
        kinds = [(await client.message())["type"] for _ in range(1_000)]
        assert kinds == ["REQUEST_OK"] * 500 + ["UNSUBSCRIBE_ERROR"] * 500
        await client.send(
            frame(TEXT, b"", fin=False)
            + frame(CONTINUATION, b"", fin=False) * 1_500
            + frame(CONTINUATION, json.dumps({"type": "UNSUBSCRIBE", "sourceId": "a"}).encode())
        )
        assert (await client.message())["type"] == "UNSUBSCRIBE_OK"


async def test_too_many_requests_are_refused_apart_from_the_rest(arrivals: Arrivals) -> None:
    async with (
        running({"requests_per_second": 5, "requests_burst": 4}) as bench,
        bench.connect() as client,
    ):
        await client.subscribe("a", mode="pull")
        await client.send(command("REQUEST", "a", n=1) * 10)
        replies = [await client.message() for _ in range(10)]
        assert [reply["type"] for reply in replies] == ["REQUEST_OK"] * 4 + ["REQUEST_ERROR"] * 6
        assert replies[3]["data"]["credits"] == 4
        assert "at most 5 a second" in replies[9]["data"]["error"]
        assert (await client.ask("UNSUBSCRIBE", "a"))["type"] == "UNSUBSCRIBE_OK"


# --- the original's envelope ----------------------------------------------------------------------


async def test_the_nested_envelope() -> None:
    async with running(envelope="nested") as bench, bench.connect() as client:

        def response(kind: str, **members: object) -> dict[str, object]:
            return {"type": "COMMAND_RESPONSE", "data": {"type": kind, "sourceId": "a", **members}}

        assert await client.ask("SUBSCRIBE", "a", mode="pull") == response("SUBSCRIBE_OK")
        assert await client.ask("REQUEST", "a", n=1) == response("REQUEST_OK", requests=1)
        assert await client.ask("REQUEST", "a", n=1) == response("REQUEST_OK", requests=2)
        assert await client.ask("SUBSCRIBE", "a") == response(
            "SUBSCRIBE_ERROR", error="Source already has an active subscription"
        )
        await bench.sources["a"].publish([b"x"])
        assert (await client.message())["type"] == "RESULT"
        assert await client.ask("UNSUBSCRIBE", "a") == response("UNSUBSCRIBE_OK")
        await client.ask("SUBSCRIBE", "a")
        await bench.sources["a"].end()
        assert await client.message() == {
            "type": "NOTICE",
            "data": {"type": "SUBSCRIPTION_CLOSED", "sourceId": "a", "message": "the source has ended"},
        }
