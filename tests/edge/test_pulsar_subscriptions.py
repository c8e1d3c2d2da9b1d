"""Subscriptions over Pulsar's REST interface, through the whole gateway; a test says who is in a group."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from types import MappingProxyType
from typing import Any

import pytest
import trio

from kiwi_gw.api import (
    CommitRefused,
    Identity,
    Interceptor,
    Record,
    Refusal,
    RefusalCode,
    SourceInfo,
    hookimpl,
)
from kiwi_gw.dialects.pulsar import subscriptions
from kiwi_gw.dialects.pulsar.message_ids import read_message_id
from kiwi_gw.runtime import group_reader
from kiwi_gw.runtime.request_rights import MOST_GROUPS
from kiwi_gw.testing import GatewayUnderTest, Script, ScriptedSources, open_gateway
from kiwi_gw.testing.scripted_groups import ScriptedGroup, ScriptedMember
from tests.edge.admin import scrape, value
from tests.edge.test_pulsar import Passing, Rights
from tests.edge.wire import asked

TEXT = """\
plugins: [scripted{plugins}]
pulsar: {{enabled: true{pulsar}}}
sources:
  - {{type: scripted, id: orders}}
"""
AVRO = {
    "type": "AVRO",
    "schema": {"type": "record", "name": "R", "fields": [{"name": "a", "type": "string"}]},
}
ENDLESS = {"type": "array", "items": "null"}
PATH = "/topics/public/default/orders/subscription/s"
GROUP = "kiwi-gw/subscription/public/default/orders/s"


@asynccontextmanager
async def subscribed(
    pulsar: Mapping[str, str] = MappingProxyType({}), admin: str = "", **plugins: Any
) -> AsyncIterator[tuple[GatewayUnderTest, Script]]:
    sources = ScriptedSources(writable=True)
    text = TEXT.format(
        plugins="".join(f", {name}" for name in plugins),
        pulsar="".join(f", {name}: {value!r}" for name, value in pulsar.items()),
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(group_reader, "LOOK_SECONDS", 0.05)
        patch.setattr(group_reader, "AGAIN_SECONDS", 0.05)
        async with open_gateway(
            text, plugins={"scripted": sources, **plugins}, admin=admin or None
        ) as gateway:
            with trio.fail_after(20):
                yield gateway, sources["orders"]


async def ask(
    gateway: GatewayUnderTest, method: str, more: str = "", body: object = None, token: str = ""
) -> tuple[int, Any]:
    headers = [("Authorization", f"Bearer {token}")] if token else []
    data = b"" if body is None else json.dumps(body).encode()
    if data:
        headers.append(("Content-Type", "application/json"))
    status, _, found = await asked(gateway, method, PATH + more, headers, data)
    return status, json.loads(found) if found else None


async def consumer(gateway: GatewayUnderTest, token: str = "", **wanted: object) -> str:
    status, answer = await ask(gateway, "POST", "", {"start": "earliest", **wanted}, token)
    assert status == 200, answer
    return answer["id"]  # type: ignore[no-any-return]


async def fetch(gateway: GatewayUnderTest, one: str, query: str = "", token: str = "") -> list[Any]:
    status, answer = await ask(gateway, "GET", f"/consumer/{one}/messages?{query}", token=token)
    assert status == 200, answer
    return answer["messages"]  # type: ignore[no-any-return]


async def change(
    gateway: GatewayUnderTest, kind: str, messages: Sequence[Any], **more: object
) -> tuple[int, Any]:
    ids = [message["messageId"] for message in messages]
    return await ask(gateway, "POST", "/cursor", {"type": kind, "messageIds": ids, **more})


def values(messages: Sequence[Any]) -> list[Any]:
    return [message["value"] for message in messages]


async def until(happened: Callable[[], object]) -> None:
    while not happened():
        await trio.lowlevel.checkpoint()


async def test_another_gateway_sends_a_client_to_its_consumer() -> None:
    """Where both sign with the same key, and only where the consumer is the other one's."""
    first = "http://gw1.example:8000"
    async with (
        subscribed({"advertised_url": first, "consumer_key": "k" * 32}) as (gateway, _),
        subscribed({"advertised_url": "http://gw2.example", "consumer_key": "k" * 32}) as (other, _),
        subscribed({"advertised_url": "http://gw3.example", "consumer_key": "o" * 32}) as (stranger, _),
    ):
        status, answer = await ask(gateway, "POST", "", {})
        one = answer["id"]
        assert (status, answer["base_uri"]) == (200, f"{first}{PATH}/consumer/{one}")
        for method, path, body in (
            ("GET", f"/consumer/{one}/messages?timeout=0&max_messages=3", None),
            ("DELETE", f"/consumers/{one}", None),
            ("POST", "", {"id": one}),
        ):
            data = b"" if body is None else json.dumps(body).encode()
            kind = [("Content-Type", "application/json")] if data else []
            status, headers, found = await asked(other, method, PATH + path, kind, data)
            assert (status, headers["location"]) == (307, f"{first}{PATH}{path}")
            assert json.loads(found)["error_code"] == 30701
            assert (await ask(stranger, method, path, body))[1]["error_code"] == 40403
        status, _, _ = await asked(other, "HEAD", f"{PATH}/consumer/{one}/messages")
        assert status == 405
        assert (await ask(other, "GET", f"/consumer/{one}x/messages"))[1]["error_code"] == 40403
        assert (await ask(gateway, "DELETE", f"/consumer/{one}"))[0] == 204
        assert (await ask(gateway, "DELETE", f"/consumer/{one}"))[1]["error_code"] == 40403


async def test_an_acknowledgement_of_what_has_gone_and_come_again_is_not_said_to_be_kept(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It waits behind another one, while its partition is taken and given back: what came again knows nothing
    of it."""
    gate, commit = trio.Event(), ScriptedMember.commit

    async def slow(self: ScriptedMember, positions: Mapping[int, tuple[int, str]]) -> None:
        await gate.wait()
        await commit(self, positions)

    monkeypatch.setattr(ScriptedMember, "commit", slow)
    async with subscribed() as (gateway, script), trio.open_nursery() as nursery:
        await script.publish([b"0", b"1"])
        one = await consumer(gateway)
        had = await fetch(gateway, one)
        nursery.start_soon(change, gateway, "individual", had[:1])
        await trio.sleep(0.05)

        async def second() -> None:
            status, answer = await change(gateway, "individual", had[1:])
            assert (status, answer["error_code"], answer["acknowledged"]) == (409, 40905, [])
            assert answer["moved"] == [had[1]["messageId"]]

        nursery.start_soon(second)
        await trio.sleep(0.05)
        member = script.members[GROUP].members[0]
        member.give()
        member.give(0)
        await trio.sleep(0.05)
        gate.set()
        assert values(await fetch(gateway, one))[-1] == 1, "it comes again"


async def test_of_an_acknowledgement_only_what_has_moved_is_said_to_come_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Kafka gives one of two partitions to another while the gateway does not know it yet."""
    async with subscribed() as (gateway, script):
        await script.publish([b"0"])
        await script.publish([b"1"], partition=1)
        one = await consumer(gateway)
        had = await fetch(gateway, one)
        assert sorted(values(had)) == [0, 1]
        member = script.members[GROUP].members[0]
        member.has = frozenset({0})
        status, answer = await change(gateway, "individual", had)
        assert (status, answer["error_code"]) == (409, 40905)
        assert [read_message_id(each).partition for each in answer["acknowledged"]] == [0]
        assert [read_message_id(each).partition for each in answer["moved"]] == [1]
        assert script.groups[GROUP][0] == (1, "")


async def test_a_partition_that_only_the_leader_of_the_group_knows_yet(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It is shown, and the others are read; it is, too, when this gateway knows it."""
    monkeypatch.setattr(group_reader, "PASS_SECONDS", 0.05)
    async with subscribed() as (gateway, script):
        await script.publish([b"0"])
        one = await consumer(gateway)
        (member,) = script.members[GROUP].members
        script.groups[GROUP][1] = 0, ""
        member.give(0, 1)
        assert values(await fetch(gateway, one)) == [0]
        status, answer = await ask(gateway, "GET", "/cursor")
        assert (status, answer["cursor"]["partitions"]["1"]["lag"]) == (200, 0)
        await script.publish([b"1"], partition=1)
        assert values(await fetch(gateway, one)) == [1]


async def test_an_answer_has_no_more_bytes_than_wanted_or_one_message() -> None:
    async with subscribed() as (gateway, script):
        await script.publish([b"x" * 20_000] * 4)
        one = await consumer(gateway)
        await until(lambda: script.members[GROUP].members and gateway.gateway.request_load.groups)
        await trio.sleep(0.1)
        assert [len(await fetch(gateway, one, f"max_bytes={most}")) for most in (30_000, 1, 60_000)] == [
            1,
            1,
            2,
        ]


async def test_who_waits_for_messages_gets_none_when_it_is_nobody_any_more() -> None:
    rights = Passing()
    async with subscribed(rights=rights) as (gateway, script), trio.open_nursery() as nursery:
        one, two = await consumer(gateway), await consumer(gateway, "other")
        refused: list[tuple[int, int]] = []

        async def wait(which: str) -> None:
            status, answer = await ask(gateway, "GET", f"/consumer/{which}/messages?timeout=5000")
            refused.append((status, answer["error_code"]))

        nursery.start_soon(wait, one)
        await until(lambda: gateway.gateway.request_load.waiting == 1)
        rights.refused = True
        await script.publish([b"0"])
        await until(lambda: refused)
        assert refused == [(401, 40101)]
        rights.refused = False
        assert values(await fetch(gateway, two)) == [0], "it came back"


@pytest.mark.parametrize("kind", ["exclusive", "failover"])
async def test_a_consumer_of_a_subscription_that_is_about_to_leave_its_group_is_one_of_the_next(
    monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    join = ScriptedGroup.join
    left = trio.Event()

    @asynccontextmanager
    async def slowly_left(self: ScriptedGroup, *args: Any) -> AsyncIterator[ScriptedMember]:
        async with join(self, *args) as member:
            try:
                yield member
            finally:
                with trio.CancelScope(shield=True):
                    await left.wait()

    monkeypatch.setattr(ScriptedGroup, "join", slowly_left)
    async with subscribed() as (gateway, script), trio.open_nursery() as nursery:
        await script.publish([b"0"])
        first = await consumer(gateway, type=kind)
        assert (await ask(gateway, "DELETE", f"/consumer/{first}"))[0] == 204
        (reader,) = gateway.gateway.request_load.groups
        await until(lambda: reader.leaving)

        async def again() -> None:
            one = await consumer(gateway, type=kind)
            assert reader not in gateway.gateway.request_load.groups
            assert values(await fetch(gateway, one)) == [0]

        nursery.start_soon(again)
        await trio.sleep(0.1)
        left.set()


async def test_what_a_consumer_says_that_messages_are() -> None:
    async with subscribed() as (gateway, script):
        await script.publish([b"\x00\x00\x00\x07", b"17", b"\x00"])
        one = await consumer(gateway, schema_type="int32")
        had = await fetch(gateway, one, "max_messages=10")
        assert [(m["value"], m.get("payload")) for m in had] == [(7, None), (None, "MTc="), (None, "AA==")]
        # Others take it as it is, or say the same.
        await consumer(gateway)
        await consumer(gateway, value_schema={"type": "INT32"})
        for other in ({"schema_type": "string"}, {"schema_type": "none"}):
            status, answer = await ask(gateway, "POST", "", other)
            assert (status, answer["error_code"]) == (409, 40901)
            assert "another schema" in answer["message"]


async def test_a_gateway_that_may_not_be_in_the_group_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    """It would be no use to come back, as 503 asks a client to."""

    @asynccontextmanager
    async def denied(*_: object) -> AsyncIterator[ScriptedMember]:
        raise CommitRefused(RefusalCode.ORIGIN_DENIED, "the gateway has no right to the group")
        yield

    async with subscribed() as (gateway, _):
        monkeypatch.setattr(ScriptedGroup, "join", denied)
        status, answer = await ask(gateway, "POST")
        assert (status, answer["error_code"]) == (403, 40301)
        assert answer["message"] == "the gateway has no right to the group"


async def test_a_consumer_is_used_again_as_what_it_is() -> None:
    async with subscribed() as (gateway, _):
        one = await consumer(gateway, type="exclusive", schema_type="int32")
        for same in ({}, {"type": "exclusive"}, {"schema_type": "int32"}):
            status, answer = await ask(gateway, "POST", "", {"id": one, **same})
            assert (status, answer["id"]) == (200, one)
        for other in ({"type": "shared"}, {"schema_type": "string"}):
            status, answer = await ask(gateway, "POST", "", {"id": one, **other})
            assert (status, answer["error_code"]) == (409, 40901)


@pytest.mark.parametrize(
    ("said", "values", "keys", "expected"),
    [
        ({"schema_type": "string"}, [b"17", b"\xff"], [None, b"k"], [("17", None), (None, "k")]),
        ({"schema_type": "none"}, [b"17", b"x"], [None, None], [(17, None), ("x", None)]),
        ({"schema_type": "bytes"}, [b"17"], [None], [("MTc=", None)]),
        ({"value_schema": '{"type": "DOUBLE"}'}, [b"\x3f\xe0" + bytes(6)], [b"k"], [(0.5, "k")]),
        (
            {"schema_type": "avro", "value_schema": AVRO},
            [b"\x02a", b"a"],
            [None, None],
            [({"a": "a"}, None), (None, None)],
        ),
        (
            {"schema_type": "key_value", "key_schema": {"type": "INT16"}, "value_schema": AVRO},
            [b"\x02a"],
            [b"\x01\x02"],
            [({"a": "a"}, 258)],
        ),
        (
            {"schema_type": "json", "value_schema": {"type": "JSON"}},
            [b"[1]", b"x"],
            [None, None],
            [([1], None), (None, None)],
        ),
    ],
)
async def test_types_that_a_consumer_may_say(
    said: dict[str, Any], values: list[bytes], keys: list[bytes | None], expected: list[tuple[Any, Any]]
) -> None:
    async with subscribed() as (gateway, script):
        await script.publish(values, keys=keys)
        one = await consumer(gateway, **said)
        had = await fetch(gateway, one, "max_messages=10")
        assert [(m["value"], m["key"]) for m in had] == expected


@pytest.mark.parametrize(
    ("said", "code"),
    [
        ({"schema_type": "avro"}, 42202),
        ({"schema_type": "json"}, 42202),
        ({"schema_type": "key_value"}, 42201),
        ({"schema_type": "protobuf"}, 42206),
        ({"key_schema": {"type": "STRING"}}, 42203),
        ({"value_schema": 7}, 42204),
        ({"value_schema": {"type": "AVRO", "schema": "{"}}, 42204),
        ({"value_schema": {"type": "AVRO", "schema": ENDLESS}}, 42204),
        (
            {
                "schema_type": "key_value",
                "key_schema": {"type": "AVRO", "schema": ENDLESS},
                "value_schema": AVRO,
            },
            42203,
        ),
        ({"schema_type": "string", "value_schema": {"type": "INT8"}}, 42204),
        ({"schema_version": 1}, 42204),
        ({"schema_type": 7}, 40001),
        ({"schemaType": "string"}, 40001),
    ],
)
async def test_what_a_consumer_cannot_say(said: dict[str, Any], code: int) -> None:
    async with subscribed() as (gateway, script):
        status, answer = await ask(gateway, "POST", "", said)
        assert (status, answer["error_code"]) == (code // 100, code)
        assert GROUP not in script.members


async def test_partitions_come_and_go() -> None:
    """What is kept stays pending; what is taken is forgotten, and who acknowledges it is told."""
    async with subscribed() as (gateway, script):
        for partition in (0, 1):
            await script.publish([b"%d" % n for n in range(3)], partition=partition)
        one = await consumer(gateway)
        had = await fetch(gateway, one, "max_messages=10")
        assert len(had) == 6
        (member,) = script.members[GROUP].members
        member.give(1)
        await until(lambda: not member._news)
        for _ in range(3):
            await trio.lowlevel.checkpoint()
        of_0 = [message for message in had if message["partition"] == 0]
        of_1 = [message for message in had if message["partition"] == 1]
        status, answer = await change(gateway, "individual", [of_0[0], of_1[0]])
        assert (status, answer["error_code"]) == (409, 40905)
        assert (answer["acknowledged"], answer["moved"]) == ([of_1[0]["messageId"]], [of_0[0]["messageId"]])
        assert script.groups[GROUP] == {0: (0, ""), 1: (1, "")}
        assert await fetch(gateway, one, "timeout=0") == [], "what it has of partition 1 is still pending"
        member.give(0, 1)
        again = await fetch(gateway, one, "timeout=5000")
        assert [(m["partition"], m["value"]) for m in again] == [(0, 0), (0, 1), (0, 2)]


async def test_a_reset_while_more_is_read() -> None:
    """What was on its way from where it is read no more is thrown away; nothing counts as acknowledged."""
    async with subscribed() as (gateway, script):
        await script.publish([b"%d" % n for n in range(1_000)])
        one = await consumer(gateway)
        had = await fetch(gateway, one, "max_messages=1000")
        for turn in range(30):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(script.publish, [b"%d" % n for n in range(20)])
                for _ in range(turn % 7):
                    await trio.lowlevel.checkpoint()
                place = had[turn * 10]["messageId"]
                status, _ = await ask(gateway, "POST", "/cursor", {"type": "reset", "to": [place]})
                assert status == 200
            assert script.groups[GROUP][0] == (turn * 10, "")
            found = await fetch(gateway, one, "max_messages=3&timeout=5000")
            assert values(found) == [turn * 10, turn * 10 + 1, turn * 10 + 2]


class Masking:
    """Hides values from some, and from others after a reload."""

    def __init__(self) -> None:
        self.hidden_from = {"b"}

    @hookimpl
    def authenticate(self, credential: Any) -> Identity | None:
        return Identity((credential.header("authorization") or "").removeprefix("Bearer "))

    @hookimpl
    def authorize(self, identity: Identity) -> Any:
        return Rights().authorize(Identity("writer"), None, None)  # type: ignore[arg-type]

    @hookimpl
    def intercept(self, identity: Identity, source: SourceInfo) -> Interceptor | None:
        if identity.name not in self.hidden_from:
            return None

        def hide(record: Record) -> Record:
            return {**record, "value": b'"hidden"'}

        return Interceptor(hide, "hide")


async def test_who_sees_other_messages_shares_no_subscription() -> None:
    masking = Masking()
    async with subscribed(masking=masking) as (gateway, script):
        await script.publish([b"1", b"2"])
        one = await consumer(gateway, "a")
        assert values(await fetch(gateway, one, token="a")) == [1, 2]
        status, answer = await ask(gateway, "POST", "", {}, "b")
        assert (status, answer["error_code"]) == (409, 40901)
        status, answer = await ask(gateway, "GET", f"/consumer/{one}/messages", token="c")
        assert (status, answer["error_code"]) == (404, 40403), "it is another's"
        # From the next look on it is the other view for both, and what is held is read again for it.
        masking.hidden_from = {"a", "b"}
        await gateway.reloader.reload()
        two = await consumer(gateway, "b")
        found: list[Any] = []
        while len(found) < 2:
            found += await fetch(gateway, two, "timeout=3000", token="b")
        assert values(found) == ["hidden", "hidden"]


async def test_who_loses_the_right_while_waiting_gets_nothing() -> None:
    class Withdrawn(Masking):
        refused = ""

        @hookimpl
        def authorize(self, identity: Identity) -> Any:
            if identity.name == self.refused:
                return Refusal("forbidden", "no longer")
            return super().authorize(identity)

    rights = Withdrawn()
    async with subscribed(rights=rights) as (gateway, script):
        one = await consumer(gateway, "a")
        two = await consumer(gateway, "c")
        answers: list[tuple[int, Any]] = []

        async def wait() -> None:
            answers.append(await ask(gateway, "GET", f"/consumer/{two}/messages?timeout=20000", token="c"))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(wait)
            await until(lambda: bool(gateway.gateway.request_load.waiting))
            rights.refused = "c"
            await gateway.reloader.reload()
            await script.publish([b"1"])
        ((status, answer),) = answers
        assert (status, answer["error_code"]) == (404, 40401)
        assert values(await fetch(gateway, one, "timeout=5000", token="a")) == [1]


async def test_a_subscription_whose_first_consumer_is_refused_goes(monkeypatch: pytest.MonkeyPatch) -> None:
    """It reads nothing, so nothing else ends it: all partitions are another gateway's."""
    monkeypatch.setattr(subscriptions, "EMPTY_SECONDS", 0.0)

    class Refusing(Masking):
        @hookimpl
        def intercept(self, identity: Identity, source: SourceInfo) -> Interceptor | None:
            raise ValueError

    async with subscribed(refusing=Refusing()) as (gateway, script):
        group = ScriptedGroup({0: (0, "")}, "kiwi-gw.shared")
        group.members.append(ScriptedMember(group, frozenset({0})))
        script.members[GROUP] = group
        status, answer = await ask(gateway, "POST", "", {}, "a")
        assert (status, answer["error_code"]) == (409, 40901)
        await until(lambda: not gateway.gateway.request_load.groups)


async def test_idle_consumers_and_subscriptions_without_any_go(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subscriptions, "IDLE_SECONDS", 0.0)
    monkeypatch.setattr(subscriptions, "EMPTY_SECONDS", 0.0)
    async with subscribed() as (gateway, script):
        await script.publish([b"1"])
        one = await consumer(gateway)
        (member,) = script.members[GROUP].members
        await until(lambda: not script.members[GROUP].members)  # it looks once a second
        status, answer = await ask(gateway, "GET", f"/consumer/{one}/messages")
        assert (status, answer["error_code"]) == (404, 40403)
        assert not member.has or script.groups[GROUP] == {0: (0, "")}
        assert not gateway.gateway.connections


async def test_a_gateway_that_stops_leaves_its_groups_and_answers() -> None:
    async with subscribed() as (gateway, script):
        one = await consumer(gateway)
        found: list[Any] = []

        async def wait() -> None:
            found.extend(await fetch(gateway, one, "timeout=60000"))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(wait)
            await until(lambda: gateway.gateway.request_load.waiting)
            await gateway.gateway.drain("stops", 5)
            await until(lambda: not script.members[GROUP].members)
        assert found == []


async def test_an_answer_that_is_not_taken_takes_back_nothing_of_another() -> None:
    """A message came back and was delivered again to its consumer, while the first answer stood still."""
    async with subscribed() as (gateway, script):
        count = 60
        await script.publish([b"%d" % n + b"x" * 100_000 for n in range(count)])
        one = await consumer(gateway)
        stalled = await gateway.connect()
        path = f"{PATH}/consumer/{one}/messages?max_messages=1000&max_bytes=16777216"
        await stalled.send_all(f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())

        async def pending() -> int:
            status, answer = await ask(gateway, "GET", "/cursor")
            assert status == 200
            return answer["cursor"]["consumers"][0]["pending"]  # type: ignore[no-any-return]

        while not await pending():
            pass
        first = (await ask(gateway, "GET", "/cursor"))[1]["cursor"]["partitions"]["0"]["position"]
        assert (await change(gateway, "negative", [{"messageId": first}]))[0] == 200
        (again,) = await fetch(gateway, one, "max_messages=1")
        assert (again["messageId"], again["redeliveryCount"]) == (first, 1)
        had = await pending()
        assert 1 < had <= count
        await stalled.aclose()
        while (left := await pending()) == had:
            pass
        assert left == 1
        rest = await fetch(gateway, one, "max_messages=1000&max_bytes=16777216")
        assert first not in {message["messageId"] for message in rest}
        assert len(rest) == count - 1


async def test_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kiwi_gw.runtime.request_rights.MOST_GROUPS", 1)
    monkeypatch.setattr("kiwi_gw.dialects.pulsar.consuming.MOST_CONSUMERS", 1)
    async with subscribed() as (gateway, _):
        await consumer(gateway)
        status, answer = await ask(gateway, "POST", "", {})
        assert (status, answer["error_code"]) == (429, 42901)
        status, headers, found = await asked(gateway, "POST", f"{PATH}2", [], b"")
        assert (status, headers["retry-after"], json.loads(found)["error_code"]) == (429, "1", 42901)


async def test_metrics() -> None:
    async with subscribed(admin="127.0.0.1:0") as (gateway, script):

        async def figures() -> dict[str, float]:
            found = await scrape(gateway.admin_address)
            names = ("groups", "group_partitions", "group_pending_events", "group_redeliveries_total")
            return {name: value(found, name, source="orders") for name in names}

        before = await scrape(gateway.admin_address)
        assert value(before, "groups_limit") == MOST_GROUPS
        assert not [name for name, _ in before if name.startswith("kiwigw_group_")]
        await script.publish([b"%d" % n for n in range(6)])
        one, two = await consumer(gateway), await consumer(gateway)
        await fetch(gateway, one, "max_messages=4")
        had = await fetch(gateway, two, "max_messages=4")
        assert list((await figures()).values()) == [1, 1, 6, 0]
        assert (await ask(gateway, "DELETE", f"/consumers/{one}"))[0] == 204
        assert list((await figures()).values()) == [1, 1, 2, 0]
        assert len(again := await fetch(gateway, two)) == 4
        assert (await change(gateway, "individual", [*had, *again[1:]]))[0] == 200
        assert list((await figures()).values()) == [1, 1, 1, 4]
        script.members[GROUP].members[0].give()  # its partition goes to another one
        (group,) = gateway.gateway.request_load.groups
        await until(lambda: not group.sink.offsets)
        assert list((await figures()).values()) == [1, 0, 0, 4]
        assert (await ask(gateway, "DELETE", "?force=true"))[0] == 204
        assert list((await figures()).values()) == [0, 0, 0, 4]
        after = await scrape(gateway.admin_address)
        assert value(after, "commits_total", source="orders", result="ok") == 1
        assert value(after, "group_joins_total", source="orders") == 1


async def test_what_is_held_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kiwi_gw.dialects.pulsar.dispatcher.MOST_MESSAGES", 5)
    async with subscribed() as (gateway, script):
        await script.publish([b"%d" % n for n in range(12)])
        one = await consumer(gateway)
        had = await fetch(gateway, one, "max_messages=100")
        assert values(had) == [0, 1, 2, 3, 4]
        assert await fetch(gateway, one, "timeout=0") == []
        assert (await change(gateway, "individual", had))[0] == 200
        assert values(await fetch(gateway, one, "timeout=5000")) == [5, 6, 7, 8, 9]
        assert read_message_id(had[0]["messageId"]).offset == 0


@pytest.mark.parametrize("own", [0, 900])
async def test_those_that_hold_much_do_not_keep_others_from_going_on(
    own: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """own: bytes that each may always have, which is two messages; 0: it has to wait for the other's."""
    monkeypatch.setattr(subscriptions, "MOST_BYTES", 3_000)
    monkeypatch.setattr(subscriptions, "OWN_BYTES", own)
    async with subscribed() as (gateway, script):
        await script.publish([b"%d" % n for n in range(12)])
        one = await consumer(gateway)
        had = await fetch(gateway, one, "max_messages=100")
        assert values(had) == list(range(12))
        status, answer = await ask(gateway, "POST", "2", {"start": "earliest"})
        assert status == 200
        path = f"2/consumer/{answer['id']}/messages"
        if own:
            assert (await ask(gateway, "GET", f"{path}?timeout=5000"))[1]["messages"]
            return
        assert (await ask(gateway, "GET", f"{path}?timeout=0"))[1]["messages"] == []
        assert (await change(gateway, "individual", had))[0] == 200
        assert (await ask(gateway, "GET", f"{path}?timeout=5000"))[1]["messages"]
