"""Queries on subscriptions, over a socket: what passes, what is counted, and what is shared."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Iterable
from contextlib import AsyncExitStack
from typing import Any

import pytest
import trio

from kiwi_gw.api import Identity, Interceptor, SourceInfo, hookimpl
from kiwi_gw.core.accounts import ClientAccount
from kiwi_gw.core.commands import Command
from kiwi_gw.dialects.kiwi import hint_schedule
from kiwi_gw.dialects.kiwi.session import KiwiSession
from kiwi_gw.query import decode as decoding
from kiwi_gw.runtime.client_identity import client_at
from kiwi_gw.testing import open_gateway
from tests.edge.bench import running as plainly
from tests.edge.hooks_bench import running
from tests.edge.test_intercept import Editor
from tests.edge.wire import Client, command, connect

EVEN = "value.n % 2 = 0"


def numbers(*values: int) -> list[bytes]:
    return [json.dumps({"n": n, "name": f"n{n}"}).encode() for n in values]


def seen(message: dict[str, Any]) -> Any:
    value = message["data"]["value"]
    return json.loads(value)["n"] if isinstance(value, str) else value


async def results(client: Client, count: int) -> list[Any]:
    found: list[Any] = []
    while len(found) < count:
        message = await client.message()
        assert message["type"] == "RESULT", message
        found.append(seen(message))
    return found


async def test_a_filter_and_a_projection() -> None:
    async with running() as (gateway, scripted), connect(gateway) as client:
        await client.subscribe("a", where=EVEN)
        columns = "value.n * 10 AS tens, upper(value.name), offset"
        await client.subscribe("b", where="value.n > 1", select=columns)
        await scripted["a"].publish(numbers(1, 2, 3, 4))
        assert await results(client, 2) == [2, 4]
        await scripted["b"].publish(numbers(1, 2))
        message = await client.message()
        assert message["data"] == {
            "sourceId": "b",
            "sourceType": "scripted",
            "key": None,
            "value": {"tens": 20, "upper(value.name)": "N2", "offset": 1},
            "partition": 0,
            "offset": 1,
        }


async def test_only_a_projection_and_a_star() -> None:
    async with running() as (gateway, scripted), connect(gateway) as client:
        await client.subscribe("a", select="value.n")
        await client.subscribe("b", select="*")
        await scripted["a"].publish(numbers(1, 2))
        assert await results(client, 2) == [{"n": 1}, {"n": 2}]
        await scripted["b"].publish(numbers(3))
        assert await results(client, 1) == [3]


@pytest.mark.parametrize(
    ("members", "error"),
    [
        (
            {"where": "value.n >"},
            {
                "error": "where: it ends too early: a value must follow (at character 10)",
                "position": 9,
                "code": "query",
            },
        ),
        ({"where": 5}, {"error": "where must be a string", "code": "bad_request"}),
        ({"select": ["value.n"]}, {"error": "select must be a string", "code": "bad_request"}),
        ({"where": None}, {"error": "where must be a string", "code": "bad_request"}),
        (
            {"where": "a" * 5000},
            {"error": "the query is longer than 4096 bytes", "code": "query"},
        ),
    ],
)
async def test_a_query_that_is_wrong(members: dict[str, object], error: dict[str, object]) -> None:
    async with running() as (gateway, _), connect(gateway) as client:
        answer = await client.ask("SUBSCRIBE", "a", **members)
        assert answer == {"type": "SUBSCRIBE_ERROR", "data": {"sourceId": "a", **error}}
        await client.subscribe("a")


async def test_what_the_compiler_finds_has_its_place_too() -> None:
    async with running() as (gateway, _), connect(gateway) as client:
        for members, part, position in (
            ({"where": "value.n > 1 and nope(1)"}, "where: ", 16),
            ({"where": "Value.n > 1"}, "where: ", 0),
            ({"where": "value.n > 1", "select": "key, nope(1)"}, "select: ", 5),
            ({"where": "sum(value.n) > 1"}, "where: ", 0),
        ):
            answer = await client.ask("SUBSCRIBE", "a", **members)
            assert answer["type"] == "SUBSCRIBE_ERROR"
            assert answer["data"]["error"].startswith(part), answer
            assert answer["data"]["position"] == position, answer


async def test_a_connection_has_a_bounded_number_of_different_queries() -> None:
    limits = {"server": {"limits": {"max_queries": 1}}}
    async with running(extra=limits) as (gateway, _), connect(gateway) as client:
        await client.subscribe("a", where="value.n > 1")
        answer = await client.ask("SUBSCRIBE", "b", where="value.n > 2")
        assert answer["data"]["error"] == "A connection can have at most 1 different queries"
        await client.subscribe("b", where="value.n  >  1")


async def test_credits_count_what_passes() -> None:
    async with running() as (gateway, scripted), connect(gateway) as client:
        await client.subscribe("a", mode="pull", where=EVEN)
        await client.ask("REQUEST", "a", n=3)
        await scripted["a"].publish(numbers(*range(1, 8)))
        await scripted["a"].publish(numbers(8, 9, 10))
        assert await results(client, 3) == [2, 4, 6]
        await client.ask("REQUEST", "a", n=10)
        assert await results(client, 2) == [8, 10]
        await scripted["a"].publish(numbers(12))
        assert await results(client, 1) == [12]


async def test_who_matches_nothing_is_neither_behind_nor_in_the_way() -> None:
    async with running() as (gateway, scripted), connect(gateway) as idle, connect(gateway) as other:
        await idle.subscribe("a", mode="pull", where="value.n < 0", bufferCapacity=4, overflow="close")
        await idle.ask("REQUEST", "a", n=1)
        await other.subscribe("a")
        for n in range(20):
            await scripted["a"].publish(numbers(n))
        assert await results(other, 20) == list(range(20))
        hub = gateway.gateway.runners()
        (behind,) = {runner.hub.behind for runner in hub if runner.hub.info.id == "a"}
        assert behind == 0
        await scripted["a"].publish(numbers(-1))
        assert await results(idle, 1) == [-1]


async def test_lag_counts_events_of_the_source_and_says_so() -> None:
    async with running() as (gateway, scripted), connect(gateway) as client:
        await client.subscribe("a", mode="pull", where=EVEN, bufferCapacity=4, overflow="drop_oldest")
        await scripted["a"].publish(numbers(*range(10)))
        await client.send(command("REQUEST", "a", n=1))
        lags = []
        while (message := await client.message())["type"] != "RESULT":
            if message["type"] == "NOTICE":
                lags.append(message["data"])
        assert [lag["filtered"] for lag in lags] == [True] * len(lags)
        assert sum(lag["dropped"] for lag in lags) == 6
        assert seen(message) == 6


async def test_a_projection_alone_is_no_filter_in_lag() -> None:
    async with running() as (gateway, scripted), connect(gateway) as client:
        await client.subscribe("a", mode="pull", select="value.n", bufferCapacity=4, overflow="drop_oldest")
        await scripted["a"].publish(numbers(*range(10)))
        lag = await client.message()
        assert lag["data"]["type"] == "LAG"
        assert "filtered" not in lag["data"]


async def test_a_bad_record_is_counted_and_left_out() -> None:
    async with running() as (gateway, scripted), connect(gateway) as client:
        await client.subscribe("a", where="value.n >= 0")
        await scripted["a"].publish([b"no json", *numbers(1), b"\xff", *numbers(2), None])
        assert await results(client, 2) == [1, 2]
        (subscription,) = next(iter(gateway.gateway.connections)).subscriptions.values()
        assert subscription.delivery.decode_errors == 2
        assert subscription.delivery.matched == 2
        assert subscription.delivery.scanned == 5


async def test_a_bad_record_closes_where_that_is_set() -> None:
    extra = {"subscriber": {"on_bad_record": "close"}}
    async with running(extra=extra) as (gateway, scripted), connect(gateway) as client:
        await client.subscribe("a", where="value.n >= 0")
        await client.subscribe("b")
        await scripted["a"].publish(numbers(1))
        assert await results(client, 1) == [1]
        await scripted["a"].publish([*numbers(2), b"no json", *numbers(3)])
        assert await results(client, 1) == [2]
        closed = await client.message()
        assert closed["data"]["type"] == "SUBSCRIPTION_CLOSED"
        assert (closed["data"]["reason"], closed["data"]["dropped"]) == ("failed", 0)
        assert closed["data"]["positions"] == {"0": 2}
        assert "partition 0, offset 2" in closed["data"]["message"]
        await scripted["b"].publish([b"no json"])
        assert (await client.message())["data"]["value"] == "no json"
        await client.subscribe("a", where="value.n >= 0")
        await scripted["a"].publish(numbers(4))
        assert await results(client, 1) == [4]


async def test_a_query_sees_what_the_interceptor_left() -> None:
    editor = Editor()
    async with running(editor) as (gateway, scripted), connect(gateway) as client:
        await client.subscribe("a", where="key IS NULL", select="value.N, value.NAME AS shouted")
        await scripted["a"].publish([b"#hidden", *numbers(1), b"#", *numbers(2)])
        assert await results(client, 2) == [{"N": 1, "shouted": "N1"}, {"N": 2, "shouted": "N2"}]


async def test_json_is_decoded_once_for_all_queries(monkeypatch: pytest.MonkeyPatch) -> None:
    decoded: Counter[int] = Counter()
    real = decoding._json

    def counting(column: Any) -> Any:
        decoded.update(map(id, column))
        return real(column)

    monkeypatch.setattr(decoding, "_json", counting)
    editor = Editor()
    editor.returns = lambda record: record
    for plugins in ((), (editor,)):
        decoded.clear()
        async with (
            running(*plugins) as (gateway, scripted),
            connect(gateway) as one,
            connect(gateway) as two,
            connect(gateway) as three,
        ):
            await one.subscribe("a", where="value.n > 0")
            await two.subscribe("a", where="value.n > 1")
            await three.subscribe("a", where="value.n > 0", select="value.n")
            await scripted["a"].publish(numbers(1, 2, 3))
            assert await results(one, 3) == [1, 2, 3]
            assert await results(two, 2) == [2, 3]
            assert await results(three, 3) == [{"n": 1}, {"n": 2}, {"n": 3}]
        assert sorted(decoded.values()) == [1, 1, 1]


async def test_equal_queries_share_their_bytes() -> None:
    async with running() as (gateway, scripted), connect(gateway) as one, connect(gateway) as two:
        await one.subscribe("a", where="value.n > 0")
        await two.subscribe("a", where=" value.n>0 ")
        (hub,) = [runner.hub for runner in gateway.gateway.runners() if runner.hub.info.id == "a"]
        assert hub.wire_keys == 1
        await scripted["a"].publish(numbers(1))
        assert await results(one, 1) == await results(two, 1) == [1]


async def test_a_counter_has_its_columns_for_a_value() -> None:
    sources = [{"type": "counter", "id": "c", "min": 0, "max": 5, "interval_ms": 1, "lazy": True}]
    async with running(sources=sources) as (gateway, _), connect(gateway) as client:
        await client.subscribe("c", where="value.count % 2 = 1", select="value.count")
        found: list[Any] = []
        while len(found) < 3:
            message = await client.message()
            found.append(message["data"])
        assert found == [{"sourceId": "c", "sourceType": "counter", "value": {"count": n}} for n in (1, 3, 5)]


async def test_a_filter_that_nothing_passes_is_told_once_that_its_members_were_never_seen(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(hint_schedule, "HINT_SECONDS", 0.05)
    async with plainly() as bench, bench.connect() as client, bench.connect() as right:
        await client.subscribe("a", where="value.dely > 1")
        await right.subscribe("a", where="value.delay > 1")
        await bench.sources["a"].publish([b'{"delay": 1}'])
        with trio.fail_after(20):
            assert await client.message() == {
                "type": "NOTICE",
                "data": {
                    "type": "QUERY_HINT",
                    "sourceId": "a",
                    "message": "none of the newest 1 events has value.dely (did you mean delay?)",
                },
            }
            await client.ask("UNSUBSCRIBE", "a")
            # The other one, whose members are there, is told of nothing.
            assert (await right.ask("UNSUBSCRIBE", "a"))["type"] == "UNSUBSCRIBE_OK"


async def test_a_typo_on_a_source_with_known_members_is_an_error_at_subscribe() -> None:
    config = {"sources": [{"type": "counter", "id": "ticks", "min": 0, "interval_ms": 10, "lazy": True}]}
    async with open_gateway(json.dumps(config)) as gateway, connect(gateway) as client:
        with trio.fail_after(20):
            reply = await client.ask("SUBSCRIBE", "ticks", where="value.cuont > 1")
            assert (reply["type"], reply["data"]["error"]) == (
                "SUBSCRIBE_ERROR",
                "where: value has no 'cuont' (did you mean count?): it has count (at character 1)",
            )
            await client.subscribe("ticks", where="value.count >= 2", select="value.count AS n, value AS all")
            assert (await client.message())["data"]["value"] == {"n": 2, "all": {"count": 2}}


class Relabel:
    """Tells some clients another number."""

    @hookimpl
    def intercept(self, identity: Identity, source: SourceInfo) -> Interceptor | None:
        return Interceptor(lambda record: {**record, "count": {"shown": record["count"]}}, "relabel")


async def test_behind_an_interceptor_no_declared_member_is_named_and_none_that_it_adds_is_refused() -> None:
    sources = [{"type": "counter", "id": "c", "min": 0, "max": 5, "interval_ms": 1, "lazy": True}]
    async with running(Relabel(), sources=sources) as (gateway, _), connect(gateway) as client:
        reply = await client.ask("SUBSCRIBE", "c", where="value.cuont > 1")
        assert reply["type"] == "SUBSCRIBE_OK", reply
        await client.ask("UNSUBSCRIBE", "c")
        shown = {"where": "value.count.shown >= 2", "select": "value.count.shown AS n"}
        await client.subscribe("c", **shown, **{"from": "earliest"})  # it counts since the first SUBSCRIBE
        assert (await client.message())["data"]["value"] == {"n": 2}


async def test_trivial_queries_of_others_do_not_take_the_place_of_plain_subscriptions() -> None:
    limits = {"window": {"max_wire_keys": 3, "wire_keys_connection": 0, "wire_keys_identity": 0}}
    async with running(extra=limits) as (gateway, _), AsyncExitStack() as stack:
        for number in range(3):
            client = await stack.enter_async_context(connect(gateway))
            await client.subscribe("a", where=f"value.n > {number}")
        more = await stack.enter_async_context(connect(gateway))
        await more.send(command("SUBSCRIBE", "a", where="value.n > 7"))
        assert "different wire keys" in (await more.message())["data"]["error"]
        await more.subscribe("a")


async def test_clients_without_a_name_have_the_share_of_their_address() -> None:
    limits = {"window": {"wire_keys_identity": 2}}
    async with running(extra=limits) as (gateway, _), AsyncExitStack() as stack:
        clients = [await stack.enter_async_context(connect(gateway)) for _ in range(3)]
        for number, client in enumerate(clients[:2]):
            await client.subscribe("a", where=f"value.n > {number}")
        await clients[2].send(command("SUBSCRIBE", "a", where="value.n > 2"))
        message = await clients[2].message()
        assert "a client can have at most 2 different wire keys" in message["data"]["error"]
        await clients[2].subscribe("a", where="value.n > 1")


async def test_a_dear_query_on_a_small_batch_delays_nobody_and_loses_nothing() -> None:
    """It may use next to nothing, so all but its first events are evaluated while the loop is idle."""
    limits = {"server": {"limits": {"query_percent": 1}}}
    dear = "regexp_like(repeat(concat('ab', offset, 'ba'), 60), '(a|b)*a(a|b){200}c') IS NOT NULL"
    async with (
        running(extra=limits) as (gateway, scripted),
        connect(gateway) as slow,
        connect(gateway) as quick,
    ):
        await slow.subscribe("a", where=dear)
        await quick.subscribe("a")
        for number in range(40):
            await scripted["a"].publish(numbers(number))
        assert await results(quick, 40) == list(range(40))
        assert await results(slow, 40) == list(range(40))


async def test_between_the_messages_of_one_read_others_have_their_turn(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    done = []
    receive = KiwiSession.receive

    def slowly(session: KiwiSession, message: str | bytes, now: float) -> Iterable[Command]:
        if "nothing" in str(message):
            until = time.monotonic() + 0.003
            while time.monotonic() < until:
                pass
            done.append(message)
        return receive(session, message, now)

    monkeypatch.setattr(KiwiSession, "receive", slowly)
    async with running() as (gateway, _), connect(gateway) as many, connect(gateway) as one:
        await many.send(command("UNSUBSCRIBE", "nothing") * 40)
        while not done:
            await trio.lowlevel.checkpoint()
        await one.subscribe("a")
        assert len(done) < 20
        for _ in range(40):
            assert (await many.message())["type"] == "UNSUBSCRIBE_ERROR"


async def test_who_comes_back_has_what_it_left_of_its_time_for_reading_queries() -> None:
    async with running() as (bench, _):
        gateway = bench.gateway
        left = ClientAccount(0.05, 2.0)
        left.charge(1_000.0, gateway.clock())
        kept, who = bench.listener.admission.compiling_kept, ("address", client_at(("127.0.0.1", 0)))
        kept.keep(who, left, gateway.clock())
        async with connect(bench) as client, connect(bench) as other:
            await client.send(command("SUBSCRIBE", "a", where="value.a > 123456"))
            assert "Queries take too much time" in (await client.message())["data"]["error"]
            await other.subscribe("a", where="value.a > 123456")
            assert len(kept) == 0
        with trio.fail_after(5):
            while gateway.connections:
                await trio.lowlevel.checkpoint()
        assert left in [kept.take(who, gateway.clock()) for _ in range(2)]


async def test_a_flood_of_patterns_is_compiled_as_far_as_its_share_goes() -> None:
    limits = {"server": {"limits": {"connection_compiling_percent": 1, "flood_ms": 100_000}}}
    async with running(extra=limits) as (gateway, _), connect(gateway) as client, connect(gateway) as good:
        words: Counter[str] = Counter()
        for number in range(100):
            await client.send(command("SUBSCRIBE", "a", where=rf"value.a rlike '(\\d{{{number + 1}}}x)+' "))
            message = await client.message()
            words[str(message["data"].get("error", message["type"])).partition(":")[0]] += 1
            if message["type"] == "SUBSCRIBE_OK":
                await client.send(command("UNSUBSCRIBE", "a"))
                await client.message()
        assert words["Queries take too much time just now"] > 0, words
        await good.subscribe("a", where="value.a > 123456")
        await client.subscribe("b")
