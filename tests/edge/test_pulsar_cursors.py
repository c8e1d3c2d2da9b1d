"""Cursors of subscriptions over Pulsar's REST interface: seen, acknowledged, reset, forgotten."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AsyncExitStack
from typing import Any

import pytest
import trio

from kiwi_gw.api import CommitRefused, RefusalCode
from kiwi_gw.dialects.pulsar import subscriptions
from kiwi_gw.dialects.pulsar.message_ids import MessageId, read_message_id
from kiwi_gw.runtime import group_reader, request_rights
from kiwi_gw.testing import GatewayUnderTest, ScriptedSources, open_gateway
from kiwi_gw.testing.scripted_groups import ScriptedMember
from tests.edge.test_pulsar import Rights
from tests.edge.test_pulsar_subscriptions import (
    GROUP,
    PATH,
    ask,
    change,
    consumer,
    fetch,
    subscribed,
    until,
    values,
)
from tests.edge.wire import asked


async def refused(gateway: GatewayUnderTest, body: object, more: str = "/cursor") -> tuple[int, int]:
    status, answer = await ask(gateway, "POST", more, body)
    assert answer["message"]
    return status, answer["error_code"]


async def reset(gateway: GatewayUnderTest, to: object) -> tuple[int, Any]:
    return await ask(gateway, "POST", "/cursor", {"type": "reset", "to": to})


def places(seen: Any) -> Mapping[str, int]:
    partitions = seen["cursor"]["partitions"]
    return {partition: offset_of(part["position"]) for partition, part in partitions.items()}


def offset_of(message_id: str) -> int:
    return read_message_id(message_id).offset


async def test_a_cursor_is_seen_here_and_where_no_consumer_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is acknowledged one by one is shown above the position, and kept for whoever comes later."""
    async with subscribed() as (gateway, script):
        assert (await ask(gateway, "GET", "/cursor"))[0] == 404
        await script.publish([b"%d" % n for n in range(10)])
        one = await consumer(gateway, name="mine", type="shared")
        had = await fetch(gateway, one, "max_messages=6")
        status, answer = await change(gateway, "individual", [had[0], had[1], had[3]])
        assert (status, answer["cursor"]["type"]) == (200, "shared")
        assert answer["cursor"]["consumers"] == [{"id": one, "name": "mine", "pending": 3}]
        part = answer["cursor"]["partitions"]["0"]
        assert (part["pending"], part["lag"]) == (3, 7)
        assert (await ask(gateway, "DELETE", f"/consumer/{one}"))[0] == 204
        monkeypatch.setattr(subscriptions, "EMPTY_SECONDS", 0.0)
        await until(lambda: not script.members[GROUP].members)
        status, answer = await ask(gateway, "GET", "/cursor")
        assert (status, answer["cursor"]["type"], answer["cursor"]["consumers"]) == (200, None, [])
        assert places(answer) == {"0": 2}
        part = answer["cursor"]["partitions"]["0"]
        assert [[offset_of(end) for end in ends] for ends in part["acknowledged"]] == [[3, 3]]
        assert (part["pending"], part["lag"]) == (0, 7)
        assert await refused(gateway, {"type": "negative"}) == (409, 40905), "whoever has it is elsewhere"
        two = await consumer(gateway)
        assert values(await fetch(gateway, two)) == [2, 4, 5, 6, 7, 8, 9]


async def test_messages_come_back_when_that_is_said() -> None:
    async with subscribed() as (gateway, script):
        await script.publish([b"%d" % n for n in range(4)])
        one = await consumer(gateway)
        had = await fetch(gateway, one)
        assert (await change(gateway, "negative", had[1:3]))[0] == 200
        again = await fetch(gateway, one)
        assert [(m["value"], m["redeliveryCount"]) for m in again] == [(1, 1), (2, 1)]


async def test_all_up_to_one_where_one_has_them_all() -> None:
    async with subscribed() as (gateway, script):
        await script.publish([b"%d" % n for n in range(6)])
        one = await consumer(gateway, type="failover")
        had = await fetch(gateway, one)
        status, answer = await change(gateway, "cumulative", [had[3]])
        assert (status, places(answer)) == (200, {"0": 4})
        assert script.groups[GROUP] == {0: (4, "")}


async def test_a_reset_to_every_kind_of_place() -> None:
    async with subscribed() as (gateway, script):
        for time in (1_000, 2_000, 3_000):
            await script.publish([b"%d" % time], timestamp=time)
        one = await consumer(gateway)
        had = await fetch(gateway, one)
        ids = [message["messageId"] for message in had]
        for to, offset in (("latest", 3), ("earliest", 0), (2_000, 1), (ids[2:], 2), ([ids[1], ids[2]], 1)):
            status, answer = await reset(gateway, to)
            assert (status, places(answer)) == (200, {"0": offset})
            assert script.groups[GROUP] == {0: (offset, "")}
            found = await fetch(gateway, one, "timeout=0" if to == "latest" else "timeout=5000")
            assert values(found) == [1_000, 2_000, 3_000][offset:]


async def test_only_partitions_that_are_here_are_reset() -> None:
    async with subscribed() as (gateway, script):
        for partition in (0, 1):
            await script.publish([b"1"], partition=partition)
        one = await consumer(gateway)
        await fetch(gateway, one)
        (member,) = script.members[GROUP].members
        member.give(1)
        await until(lambda: not member._news)
        for _ in range(3):
            await trio.lowlevel.checkpoint()
        script.groups[GROUP][0] = (1, "")
        status, answer = await reset(gateway, "earliest")
        assert (status, answer["error_code"], answer["partitions"]) == (409, 40905, [0])
        assert script.groups[GROUP] == {0: (1, ""), 1: (0, "")}


async def test_bodies_that_cannot_be_done() -> None:
    async with subscribed() as (gateway, script):
        await script.publish([b"1", b"2"])
        for body in ({"type": "reset", "to": "latest"}, {"type": "individual", "messageIds": []}):
            assert await refused(gateway, body) == (404, 40404)
        assert await refused(gateway, {"start": "middle"}, "") == (400, 40001)
        assert await refused(gateway, "{", "") == (400, 40001)
        one = await consumer(gateway, ackTimeoutMs=0)
        first, _ = had = await fetch(gateway, one)
        there = read_message_id(first["messageId"])
        other_life = MessageId(there.life + 1, 0, 0)
        absent, unread = MessageId(there.life, 0, 7), MessageId(there.life, 99, 0)
        table: list[tuple[list[str], int]] = [
            (["?"], 40001),
            ([f"{other_life}"], 40904),
            ([f"{absent}"], 40001),
            ([f"{unread}"], 40001),
        ]
        for ids, code in table:
            status, said = await refused(gateway, {"type": "individual", "messageIds": ids})
            assert (status, said) == (code // 100, code), ids
        assert await refused(gateway, {"type": "cumulative", "messageIds": []}) == (422, 42206)
        nowhere: list[object] = [None, "middle", []]
        for to in nowhere:
            assert await refused(gateway, {"type": "reset", "to": to}) == (400, 40001)
        assert await refused(gateway, {"type": "other"}) == (400, 40001)
        assert await refused(gateway, ["type"]) == (400, 40001)
        assert (await change(gateway, "single", had))[0] == 200
        assert script.groups[GROUP] == {0: (2, "")}


async def test_a_subscription_is_forgotten() -> None:
    async with subscribed() as (gateway, script):
        status, answer = await ask(gateway, "DELETE", "")
        assert (status, answer["error_code"]) == (404, 40404)
        await script.publish([b"1"])
        one = await consumer(gateway)
        status, answer = await ask(gateway, "DELETE", "")
        assert (status, answer["error_code"]) == (409, 40903)
        assert (await ask(gateway, "DELETE", "?force=true"))[0] == 204
        assert GROUP not in script.groups
        assert (await ask(gateway, "GET", f"/consumer/{one}/messages"))[0] == 404
        assert (await ask(gateway, "GET", "/cursor"))[0] == 404
        assert values(await fetch(gateway, await consumer(gateway))) == [1], "it begins anew"


async def test_members_elsewhere_keep_a_subscription() -> None:
    async with subscribed() as (gateway, script):
        one = await consumer(gateway)
        elsewhere = ScriptedMember(script.members[GROUP])
        script.members[GROUP].members.append(elsewhere)
        assert (await ask(gateway, "DELETE", f"/consumer/{one}"))[0] == 204
        status, answer = await ask(gateway, "DELETE", "")
        assert (status, answer["error_code"]) == (409, 40903)


async def test_a_commit_that_fails_is_said_and_made_up_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """The acknowledgement stands in memory: the next commit has it, if the gateway lives that long."""
    async with subscribed() as (gateway, script), AsyncExitStack() as stack:
        # Nor is it tried again meanwhile (`subscribed` has its own time for that and puts the real one back).
        stack.enter_context(pytest.MonkeyPatch.context()).setattr(group_reader, "LOOK_SECONDS", 3_600.0)
        await script.publish([b"1", b"2"])
        had = await fetch(gateway, await consumer(gateway))
        errors: list[Exception] = [
            CommitRefused(RefusalCode.UNAVAILABLE, "no broker", retry=True),
            OSError("broken"),
        ]
        commit = ScriptedMember.commit

        async def fail(self: ScriptedMember, positions: Mapping[int, tuple[int, str]]) -> None:
            if errors:
                raise errors.pop(0)
            await commit(self, positions)

        monkeypatch.setattr(ScriptedMember, "commit", fail)
        status, answer = await change(gateway, "individual", had[:1])
        assert (status, answer["error_code"], answer["message"]) == (503, 50301, "no broker")
        status, answer = await change(gateway, "individual", had[:1])
        assert (status, answer["message"]) == (503, "not known whether it was committed")
        assert script.groups[GROUP] == {0: (0, "")}
        assert (await change(gateway, "individual", had[1:]))[0] == 200
        assert script.groups[GROUP] == {0: (2, "")}


async def test_an_origin_that_does_not_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(request_rights, "_ORIGIN_SECONDS", 0.01)

    async def never(self: object, group: str) -> None:
        await trio.sleep_forever()

    async with subscribed() as (gateway, script):
        await script.publish([b"1"])
        source = gateway.gateway.running_source("orders")
        monkeypatch.setattr(type(source), "group_state", never)
        status, answer = await ask(gateway, "GET", "/cursor")
        assert (status, answer["error_code"]) == (503, 50301)
        assert "has not answered" in answer["message"]


@pytest.mark.parametrize("act", ["end", "fail"])
async def test_a_source_that_is_over_ends_its_subscriptions(act: str) -> None:
    """Who waits is answered; the next consumer begins a membership of the new run, or is told."""
    async with subscribed() as (gateway, script):
        one = await consumer(gateway)
        found: list[Any] = []

        async def wait() -> None:
            found.append(await ask(gateway, "GET", f"/consumer/{one}/messages?timeout=15000"))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(wait)
            await until(lambda: gateway.gateway.request_load.waiting)
            await (script.end() if act == "end" else script.fail(OSError("broken")))
        ((status, _),) = found
        assert status in (200, 404)
        await until(lambda: not script.members[GROUP].members)


async def test_a_source_that_starts_anew_is_waited_for_by_the_client() -> None:
    async with subscribed() as (gateway, script):
        await script.publish([b"1"])
        script.hold()
        await script.fail(OSError("broken"))
        await until(lambda: gateway.gateway.running_source("orders") is None)
        assert await refused(gateway, {"start": "earliest"}, "") == (503, 50301)
        status, answer = await ask(gateway, "GET", "/cursor")
        assert (status, answer["error_code"]) == (503, 50301)
        script.release()
        await until(lambda: gateway.gateway.running_source("orders") is not None)
        assert values(await fetch(gateway, await consumer(gateway))) == [1]


async def test_who_may_only_read_makes_no_subscription() -> None:
    async with subscribed(rights=Rights()) as (gateway, _):
        for method, more, body in (
            ("POST", "", {}),
            ("POST", "/cursor", {"type": "negative"}),
            ("DELETE", "", None),
        ):
            status, answer = await ask(gateway, method, more, body, "reader")
            assert (status, answer["error_code"]) == (403, 40301)
            status, answer = await ask(gateway, method, more, body, "stranger")
            assert (status, answer["error_code"]) == (404, 40401)
        status, answer = await ask(gateway, "GET", "/cursor", None, "keeper")
        assert (status, answer["error_code"]) == (403, 40301)


async def test_consumers_that_cannot_be() -> None:
    async with subscribed() as (gateway, script):
        one = await consumer(gateway, type="exclusive", name="a")
        assert await refused(gateway, {"type": "shared"}, "") == (409, 40901)
        assert await refused(gateway, {}, "") == (409, 40901)
        status, answer = await ask(gateway, "POST", "", {"id": one})
        assert (status, answer["id"]) == (200, one), "the same one, again"
        assert await refused(gateway, {"id": "other"}, "") == (404, 40403)
        for method, status in (("HEAD", 405), ("POST", 405), ("OPTIONS", 204)):
            found, headers, _ = await asked(gateway, method, f"{PATH}/consumer/{one}/messages")
            assert (found, headers["allow"]) == (status, "GET, OPTIONS"), "HEAD would take messages unseen"
        assert (await ask(gateway, "DELETE", f"/consumer/{one}"))[0] == 204
        assert (await ask(gateway, "DELETE", f"/consumer/{one}"))[0] == 404
        await until(lambda: not script.members[GROUP].members)
        two = await consumer(gateway, type="key_shared", name="a")
        assert await refused(gateway, {"name": "a"}, "") == (409, 40902)
        assert (await ask(gateway, "DELETE", f"/consumer/{two}"))[0] == 204


async def test_a_reset_beyond_the_end_is_refused() -> None:
    """All that came before that would be passed over in silence, and Kafka keeps no offset above 2^63."""
    async with subscribed() as (gateway, script):
        await script.publish([b"0", b"1"])
        one = await consumer(gateway)
        life = read_message_id((await fetch(gateway, one))[0]["messageId"]).life
        for offset in (3, 2**63, 2**64 - 1):
            status, answer = await reset(gateway, [str(MessageId(life, offset, 0))])
            assert (status, answer["error_code"]) == (409, 40904)
        assert (await reset(gateway, [str(MessageId(life, 2, 0))]))[0] == 200
        await script.publish([b"2"])
        assert values(await fetch(gateway, one)) == [2]


async def test_what_is_no_event_passes_by(monkeypatch: pytest.MonkeyPatch) -> None:
    """The ends of transactions, behind the last message that is acknowledged: they do not stay as lag."""
    monkeypatch.setattr(group_reader, "PASS_SECONDS", 0.1)
    async with subscribed() as (gateway, script):
        await script.publish([b"0", b"1"])
        one = await consumer(gateway)
        assert (await change(gateway, "individual", await fetch(gateway, one)))[0] == 200
        await script.pass_by(5)
        await until(lambda: script.groups[GROUP] == {0: (5, "")})
        status, answer = await ask(gateway, "GET", "/cursor")
        assert (status, places(answer), answer["cursor"]["partitions"]["0"]["lag"]) == (200, {"0": 5}, 0)
        await script.publish([b"5"])
        assert values(await fetch(gateway, one)) == [5]


async def test_what_is_read_past_during_a_commit_is_committed_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """Offsets of which nobody is given anything: else the lag would stay until there is another message."""
    begun, may_end, commit = trio.Event(), trio.Event(), ScriptedMember.commit

    async def slow(self: ScriptedMember, positions: Mapping[int, tuple[int, str]]) -> None:
        begun.set()
        await may_end.wait()
        await commit(self, positions)

    async with subscribed() as (gateway, script):
        await script.publish([b"0", b"1"])
        one = await consumer(gateway)
        had = await fetch(gateway, one)
        monkeypatch.setattr(ScriptedMember, "commit", slow)
        (group,) = gateway.gateway.request_load.groups
        async with trio.open_nursery() as nursery:
            nursery.start_soon(change, gateway, "individual", had)
            await begun.wait()
            group.sink.read((), {0: 5})
            may_end.set()
        await until(lambda: script.groups[GROUP] == {0: (5, "")})  # it looks once a second
        assert not group.sink.uncommitted


async def test_no_two_topics_share_a_group() -> None:
    """The id of a source may have slashes, and so may the name of a subscription."""
    sources = ScriptedSources(writable=True)
    text = "plugins: [scripted]\npulsar: {enabled: true}\nsources:\n"
    text += "".join(f"  - {{type: scripted, id: {name}}}\n" for name in ("o", "o/a"))
    async with open_gateway(text, plugins={"scripted": sources}) as gateway:
        for path in ("o/subscription/a%2Fb", "o%2Fa/subscription/b", "o/subscription/a%252Fb"):
            where = f"/topics/public/default/{path}"
            assert (await asked(gateway, "POST", where, [], b""))[0] == 200
    begins = "kiwi-gw/subscription/public/default"
    assert set(sources["o"].groups) == {f"{begins}/o/a%2Fb", f"{begins}/o/a%252Fb"}
    assert set(sources["o/a"].groups) == {f"{begins}/o/a/b"}
