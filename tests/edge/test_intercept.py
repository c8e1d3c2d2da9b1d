"""The hook `intercept`: what it changes, whose bytes are shared, and what a reload does to it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from structlog.typing import EventDict

from kiwi_gw.api import (
    Batch,
    Credential,
    EventTransform,
    HeadCredential,
    Identity,
    Interceptor,
    Record,
    SourceInfo,
    Transformed,
    hookimpl,
)
from kiwi_gw.model import CloseReason
from tests.edge.hooks_bench import running, tracebacks
from tests.edge.wire import connect

# --- intercept ------------------------------------------------------------------------------------


class Editor:
    """Hides values that begin with `#` and shouts the others, for everybody whose name is in `for_whom`."""

    def __init__(self, key: object = "shout") -> None:
        self.key = key
        self.calls: Counter[str] = Counter()
        self.returns: Callable[[Record], Any] = self.shout

    def shout(self, record: Record) -> Record | None:
        value = record["value"]
        assert isinstance(value, bytes)
        if value.startswith(b"#"):
            return None
        return {**record, "value": value.upper()}

    def apply(self, record: Record) -> Record | None:
        self.calls[str(record["offset"])] += 1
        answer: Record | None = self.returns(record)
        return answer

    @hookimpl
    def intercept(self, identity: Identity, source: SourceInfo) -> Interceptor | None:
        if source.id != "a":
            return None
        return Interceptor(self.apply, self.key)


async def test_intercept_changes_and_withholds() -> None:
    editor = Editor()
    async with running(editor) as (gateway, scripted), connect(gateway) as client:
        await client.subscribe("a")
        await client.subscribe("b")
        values = [b"one", b"# hidden", b"two"]
        await scripted["a"].publish(values)
        await scripted["b"].publish(values)
        seen = [(await client.message())["data"] for _ in range(5)]
        assert [(item["sourceId"], item["offset"], item["value"]) for item in seen] == [
            ("a", 0, "ONE"),
            ("a", 2, "TWO"),
            ("b", 0, "one"),
            ("b", 1, "# hidden"),
            ("b", 2, "two"),
        ]


async def test_what_is_withheld_costs_no_credit() -> None:
    async with running(Editor()) as (gateway, scripted), connect(gateway) as client:
        await client.subscribe("a", mode="pull")
        await client.ask("REQUEST", "a", n=2)
        await scripted["a"].publish([b"#", b"x", b"#", b"#", b"y", b"z"])
        assert [(await client.message())["data"]["offset"] for _ in range(2)] == [1, 4]
        assert (await client.ask("REQUEST", "a", n=1))["data"]["credits"] == 1
        assert (await client.message())["data"]["offset"] == 5


@pytest.mark.parametrize(("key", "calls"), [("shared", 1), (None, 4)])
async def test_equal_keys_share_the_bytes_and_no_key_shares_with_nobody(key: object, calls: int) -> None:
    editor = Editor(key)
    async with (
        running(editor) as (gateway, scripted),
        connect(gateway) as one,
        connect(gateway) as two,
        connect(gateway) as three,
        connect(gateway) as four,
    ):
        clients = [one, two, three, four]
        for client in clients:
            await client.subscribe("a")
        before = gateway.gateway.encodings.misses
        await scripted["a"].publish([b"x", b"y"])
        for client in clients:
            assert [(await client.message())["data"]["value"] for _ in range(2)] == ["X", "Y"]
        assert editor.calls == {"0": calls, "1": calls}
        assert gateway.gateway.encodings.misses - before == calls


class Columns:
    """Does as `Editor` with whole batches, or what a test says."""

    def __init__(self) -> None:
        self.returns: Callable[[Batch], Any] = self.shout

    def shout(self, batch: Batch) -> Transformed:
        values = [bytes(value) for value in batch.columns["value"]]  # type: ignore[call-overload]
        kept = [index for index, value in enumerate(values) if not value.startswith(b"#")]
        return Transformed(kept, {"value": [values[index].upper() for index in kept]})

    @hookimpl
    def intercept(self, identity: Identity, source: SourceInfo) -> EventTransform | None:
        return EventTransform(self.returns, "shout") if source.id == "a" else None


async def test_one_that_takes_columns_changes_and_withholds() -> None:
    async with running(Columns()) as (gateway, scripted), connect(gateway) as client:
        await client.subscribe("a", where="value <> 'ONE'")
        await scripted["a"].publish([b'"one"', b"# hidden", b'"two"'])
        seen = (await client.message())["data"]
        assert (seen["offset"], seen["value"]) == (2, '"TWO"')


@pytest.mark.parametrize(
    "answer", [None, Transformed([7]), Transformed(columns={"value": []})], ids=["nothing", "index", "column"]
)
async def test_columns_that_cannot_be_close_the_subscription(
    answer: object, log_lines: list[EventDict]
) -> None:
    plugin = Columns()
    plugin.returns = lambda batch: answer
    async with running(plugin) as (gateway, scripted), connect(gateway) as client:
        await client.subscribe("a")
        await scripted["a"].publish([b"x", b"y"])
        closed = (await client.message())["data"]
        assert (closed["type"], closed["reason"]) == ("SUBSCRIPTION_CLOSED", "failed")
        assert gateway.gateway.hooks.failures == {"interceptor": 1}
    assert len(tracebacks(log_lines)) == 1


async def test_interceptors_run_in_the_order_of_registration() -> None:
    first, second = Editor("first"), Editor("second")
    first.returns = lambda record: {**record, "value": b"<%s>" % bytes(record["value"])}  # type: ignore[call-overload]
    async with running(first, second) as (gateway, scripted), connect(gateway) as client:
        await client.subscribe("a")
        await scripted["a"].publish([b"#x"])
        assert (await client.message())["data"]["value"] == "<#X>"


class Changing:
    """Puts a mark before every value of `a`; None: leaves it alone; "fails": raises."""

    def __init__(self, mark: str | None) -> None:
        self.mark = mark

    @hookimpl
    def intercept(self, identity: Identity, source: SourceInfo) -> Interceptor | None:
        mark = self.mark
        if mark == "fails":
            raise ZeroDivisionError(mark)
        if mark is None or source.id != "a":
            return None
        return Interceptor(
            lambda record: {**record, "value": b"%s %s" % (mark.encode(), record["value"])}, mark
        )


@pytest.mark.parametrize(
    ("before", "after", "seen"),
    [("old", "new", "new x"), (None, "new", "new x"), ("old", None, "x"), ("same", "same", "same x")],
)
async def test_after_a_reload_a_subscription_goes_on_behind_the_interceptor_of_the_new_rules(
    before: str | None, after: str | None, seen: str
) -> None:
    rules = Changing(before)
    async with running(rules) as (gateway, scripted), connect(gateway) as push, connect(gateway) as pull:
        await push.subscribe("a")
        await push.subscribe("b")
        await pull.subscribe("a", mode="pull")
        await pull.ask("REQUEST", "a", n=1)
        await scripted["a"].publish([b"one", b"x"])
        first = "one" if before is None else f"{before} one"
        assert (await push.message())["data"]["value"] == first
        assert (await pull.message())["data"]["value"] == first
        await push.message()
        rules.mark = after
        assert await gateway.reloader.reload()
        await scripted["a"].publish([b"x"])
        await scripted["b"].publish([b"x"])
        told = [(await push.message())["data"] for _ in range(2)]
        assert [(item["offset"], item["value"]) for item in told] == [(2, seen), (0, "x")]
        # What it had been behind with is under the new rules too: it was not sent yet.
        assert (await pull.ask("REQUEST", "a", n=5))["data"]["credits"] == 5
        told = [(await pull.message())["data"] for _ in range(2)]
        assert [(item["offset"], item["value"]) for item in told] == [(1, seen), (2, seen)]
        assert (await pull.ask("REQUEST", "a", n=1))["data"]["credits"] == 4


class SameKey:
    """Puts a mark before every value of those whose name is `whose`, and calls that `k`."""

    def __init__(self, mark: bytes, whose: str = "") -> None:
        self.mark, self.whose = mark, whose

    @hookimpl
    def intercept(self, identity: Identity, source: SourceInfo) -> Interceptor | None:
        mark = self.mark
        if self.whose not in ("", identity.name):
            return None
        return Interceptor(lambda record: {**record, "value": mark + bytes(record["value"])}, "k")  # type: ignore[call-overload]


async def test_after_a_reload_an_equal_key_does_not_keep_the_old_interceptor() -> None:
    rules = SameKey(b"old ")
    async with running(rules) as (gateway, scripted), connect(gateway) as push, connect(gateway) as pull:
        await push.subscribe("a")
        await pull.subscribe("a", mode="pull")
        await scripted["a"].publish([b"x"])
        assert (await push.message())["data"]["value"] == "old x"
        rules.mark = b"new "
        assert await gateway.reloader.reload()
        async with connect(gateway) as late:
            await late.subscribe("a")
            await scripted["a"].publish([b"y"])
            assert (await push.message())["data"]["value"] == "new y"
            assert (await late.message())["data"]["value"] == "new y"
        await pull.ask("REQUEST", "a", n=2)
        assert [(await pull.message())["data"]["value"] for _ in range(2)] == ["new x", "new y"]


class ByName:
    @hookimpl
    def authenticate(self, credential: Credential) -> Identity:
        assert isinstance(credential, HeadCredential)
        return Identity(credential.query)


async def test_equal_keys_of_two_plugins_share_no_bytes_across_identities() -> None:
    plugins = (ByName(), SameKey(b"for ann: ", "ann"), SameKey(b"for bob: ", "bob"))
    async with (
        running(*plugins) as (gateway, scripted),
        connect(gateway, "/?ann") as ann,
        connect(gateway, "/?bob") as bob,
        connect(gateway, "/?cid") as cid,
    ):
        for client in (ann, bob, cid):
            await client.subscribe("a")
        await scripted["a"].publish([b"x"])
        seen = [(await client.message())["data"]["value"] for client in (ann, bob, cid)]
        assert seen == ["for ann: x", "for bob: x", "x"]


async def test_interceptors_of_several_plugins_are_all_replaced_by_a_reload_in_their_order() -> None:
    first, second = SameKey(b"1"), SameKey(b"2")
    async with running(first, second) as (gateway, scripted), connect(gateway) as client:
        await client.subscribe("a")
        await scripted["a"].publish([b"x"])
        assert (await client.message())["data"]["value"] == "21x"
        second.mark = b"3"
        assert await gateway.reloader.reload()
        await scripted["a"].publish([b"x"])
        assert (await client.message())["data"]["value"] == "31x"


async def test_a_subscription_whose_interceptor_is_refused_by_the_new_rules_ends() -> None:
    rules = Changing("old")
    async with running(rules) as (gateway, scripted), connect(gateway) as client:
        await client.subscribe("a")
        rules.mark = "fails"
        assert await gateway.reloader.reload()
        closed = (await client.message())["data"]
        assert (closed["type"], closed["reason"]) == ("SUBSCRIPTION_CLOSED", CloseReason.UNAUTHORIZED.value)
        await scripted["a"].publish([b"secret"])
        assert (await client.ask("UNSUBSCRIBE", "a"))["type"] == "UNSUBSCRIBE_ERROR"


@pytest.mark.parametrize(
    "answer",
    [
        KeyError("missing"),
        "text",
        {"partition": 0},
    ],
    ids=["raises", "no record", "lacks columns"],
)
async def test_an_interceptor_that_fails_closes_its_own_subscriptions_only(
    answer: object, log_lines: list[EventDict]
) -> None:
    editor = Editor()

    def fail(record: Record) -> object:
        if isinstance(answer, Exception):
            raise answer
        return answer

    async with running(editor) as (gateway, scripted), connect(gateway) as one, connect(gateway) as two:
        for client in (one, two):
            await client.subscribe("a")
            await client.subscribe("b")
        editor.returns = fail
        await scripted["a"].publish([b"x", b"y"])
        await scripted["b"].publish([b"z"])
        for client in (one, two):
            closed = (await client.message())["data"]
            assert (closed["type"], closed["sourceId"]) == ("SUBSCRIPTION_CLOSED", "a")
            assert closed["reason"] == "failed"
            assert "missing" not in closed["message"]
            assert (await client.message())["data"]["value"] == "z"
        assert scripted["a"].runs == 1, "the source knows nothing of it"
        editor.returns = editor.shout
        await one.subscribe("a")
        await scripted["a"].publish([b"again"])
        assert (await one.message())["data"]["value"] == "AGAIN"
        if not isinstance(answer, dict):
            assert gateway.gateway.hooks.failures == {"interceptor": 1}
    assert len(tracebacks(log_lines)) == (0 if isinstance(answer, dict) else 1)


@pytest.mark.parametrize("answer", [RuntimeError("broken"), "text"], ids=["raises", "no interceptor"])
async def test_an_intercept_that_fails_refuses_the_subscription(
    answer: object, log_lines: list[EventDict]
) -> None:
    class Broken:
        @hookimpl
        def intercept(self, identity: Identity, source: SourceInfo) -> object:
            if isinstance(answer, Exception):
                raise answer
            return answer

    async with running(Broken()) as (gateway, _), connect(gateway) as client:
        for _ in range(2):
            reply = await client.ask("SUBSCRIBE", "a")
            assert reply["type"] == "SUBSCRIBE_ERROR"
            assert "broken" not in reply["data"]["error"]
        assert gateway.gateway.hooks.failures == {"intercept": 2}
    assert len(tracebacks(log_lines)) == 1
