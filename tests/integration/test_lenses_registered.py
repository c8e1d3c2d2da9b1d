"""Lenses over Avro whose schemas are in a registry: in both parts, damaged, and while the registry does not
answer."""

from __future__ import annotations

import json
from base64 import b64encode
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
import trio

from kiwi_demo.broker import Broker
from tests.integration.gateway import GatewayProcess, gateway
from tests.integration.kafka.test_registered import BY_REGISTRY
from tests.integration.kafka.test_registered import server as server
from tests.integration.test_lenses import Client, Message, answer, config, in_python, records, select
from tests.integration.test_lenses_decoders import (
    BEGAN,
    TOKEN,
    NewTopic,
    check_bad,
    counted,
    executes,
    parts,
    places,
    with_metrics,
)
from tests.integration.test_lenses_sql import executed
from tests.plugins.kafka.registry_server import V1, V2, RegistryServer, registered
from tests.topics import Record, Topics

pytestmark = pytest.mark.integration

WITHIN = 30.0
"""Seconds, for what the registry holds up: it is asked again after 5 s at most."""


def by_registry(broker: Broker, server: RegistryServer, *topics: str) -> dict[str, Any]:
    found = with_metrics(config(broker, topics[0]))
    found["kafka"]["registry"] = {"url": server.url, "user": "ada", "password": "sesame"}
    (source,) = found["sources"]
    found["sources"] = [{**source, "topic": topic, "decode": BY_REGISTRY} for topic in topics]
    return found


def row(n: int) -> dict[str, object]:
    """Return a flight; those with odd numbers are of the second version."""
    return {"carrier": "\u00c9A", "delay": n, **({"gate": f"B{n}"} if n % 2 else {})}


def key(n: int) -> bytes:
    return registered(3, "string", f"k{n}")


def flight(n: int) -> bytes:
    return registered(2, V2, row(n)) if n % 2 else registered(1, V1, row(n))


def flights(*numbers: int) -> list[Record]:
    return [Record(flight(n), key(n), 0, BEGAN + n) for n in numbers]


def seen(heard: list[Message]) -> list[object]:
    """Return the values of records of v1."""
    return [json.loads(each["value"]) for each in heard]


async def asked(server: RegistryServer) -> None:
    """Wait until the registry is asked for something."""
    server.asked.clear()
    assert await trio.to_thread.run_sync(server.asked.wait, WITHIN)


NOWHERE = b"\0\0\0\0\x63x"
"""Its schema has an id that the registry does not know."""

DAMAGED = [
    (key(0), NOWHERE),
    (NOWHERE, flight(0)),
    (key(0), flight(0)[:-1]),
    (key(0)[:-1], flight(0)),
    (key(0), b"\x01" + flight(0)[1:]),  # the magic byte
    (key(0), b"\0\0\0\0"),
    (key(0), b""),
    (b"", None),
    (b"\0\0\0\0\x03\x02\xff", flight(0)),  # no UTF-8
]


async def test_both_parts_are_read_by_their_schemas_and_what_is_damaged_is_a_bad_record(
    broker: Broker, topics: Topics, new_topic: NewTopic, server: RegistryServer, tmp_path: Path
) -> None:
    name = await topics.create(new_topic(), 1)
    made = flights(0, 1)
    for broken_key, broken in DAMAGED:
        made += [Record(broken, broken_key, 0, BEGAN + len(made))]
        made += flights(len(made) + len(made) % 2)  # of the first version
    made = [Record(one.value, one.key, 0, BEGAN + n) for n, one in enumerate(made)]
    made += [Record(None, key(7), 0, BEGAN + len(made)), Record(flight(7), None, 0, BEGAN + len(made) + 1)]
    bad = [n for n, one in enumerate(made) if (one.key, one.value) in DAMAGED]
    good = [n for n in range(len(made)) if n not in bad]
    assert len(bad) == len(DAMAGED)
    await topics.produce(name, made)
    async with gateway(tmp_path, by_registry(broker, server, name)) as running:
        said = await executes(running, name, "")
        await counted(running, name, len(bad))
        async with in_python(running.address, "page") as page:
            await answer(page, "SUBSCRIBE", 1, select(name, "WHERE _meta.offset >= 0"), TOKEN)
            heard = await records(page, len(good))
            await counted(running, name, 2 * len(bad))
            of_key = select(name, "WHERE _key = 'k7' AND _meta.offset >= 0")
            await answer(page, "SUBSCRIBE", 2, of_key, TOKEN)
            (tombstone,) = await records(page, 1)
        metadata, *_ = await executed(running.address, f"SELECT * FROM `{name}` LIMIT 1", token=TOKEN)  # noqa: S608
    assert [each["type"] for each in said] == [
        "BADRECORD" if n in bad else "RECORD" for n in range(len(made))
    ]
    check_bad(said, name, bad)
    first, second, *_, of_null, without_key = [each["data"] for each in said if each["type"] == "RECORD"]
    assert (first["key"], first["value"]) == ("k0", row(0))
    assert (second["key"], second["value"]) == ("k1", row(1))
    ids = ["keySchemaId", "valueSchemaId"]
    assert metadata["data"]["fields"][-2:] == ids
    assert [first["metadata"][each] for each in ids] == [3, 1]
    assert [second["metadata"][each] for each in ids] == [3, 2]
    assert (of_null["key"], of_null["value"], of_null["metadata"]["keySchemaId"]) == ("k7", None, 3)
    assert "valueSchemaId" not in of_null["metadata"]
    assert "key" not in without_key
    assert (without_key["value"], without_key["metadata"]["valueSchemaId"]) == (row(7), 2)
    assert [each["offset"] for each in heard] == good
    assert parts(heard[:2]) == [{"key": f"k{n}", "value": text(n)} for n in (0, 1)]
    assert parts(heard[-2:]) == [{"key": "k7"}, {"value": text(7)}]
    assert tombstone["offset"] == good[-2]
    assert sorted(server.requests) == [f"/schemas/ids/{n}" for n in (1, 2, 3, 99)], "each is asked for once"


def text(n: int) -> str:
    """Return a flight as v1 says it."""
    return json.dumps(row(n), ensure_ascii=False, separators=(",", ":"))


async def learn(running: GatewayProcess, stack: AsyncExitStack, topics: Topics, name: str) -> Client:
    """Have the first version and the keys' schema known before the registry is away. Returns who has them."""
    await running.logged("source runs")
    page = await stack.enter_async_context(in_python(running.address, "page"))
    await answer(page, "SUBSCRIBE", 1, select(name), TOKEN)
    await topics.produce(name, flights(0))
    assert seen(await records(page, 1)) == [row(0)]
    return page


async def check_idle(running: GatewayProcess, name: str) -> None:
    """Check that a query gives what is known already, and then comes to its end."""
    *found, last = await executes(running, name, "", before="SET max.idle.time=3s;")
    assert (places(found, "RECORD"), len(found)) == ([0], 1)
    assert (last["type"], last["data"]["reason"]["type"]) == ("SENTINEL", "MAX_IDLE_TIME")


async def test_nothing_is_lost_and_nothing_hangs_while_the_registry_is_down(
    broker: Broker, topics: Topics, new_topic: NewTopic, server: RegistryServer, tmp_path: Path
) -> None:
    """An id that nobody knows is a bad record when the registry has said so, not before."""
    name, other = [await topics.create(new_topic(), 1) for _ in range(2)]
    written = {"topic": name, "ktype": "BINARY", "vtype": "BINARY"}
    written |= {"key": b64encode(key(200)).decode(), "value": b64encode(flight(200)).decode()}
    async with (
        gateway(tmp_path, by_registry(broker, server, name, other)) as running,
        AsyncExitStack() as stack,
    ):
        page = await learn(running, stack, topics, name)
        server.down()
        await topics.produce(name, [*flights(*range(1, 199)), Record(NOWHERE, key(199), 0, BEGAN + 199)])
        assert (await running.logged("schema registry away"))["url"] == server.url
        # Requests are answered, and what needs nothing of the registry goes on.
        await check_idle(running, name)
        late = await stack.enter_async_context(in_python(running.address, "late"))
        await answer(late, "SUBSCRIBE", 2, select(name, "WHERE _meta.offset >= 0"), TOKEN)
        await answer(late, "SUBSCRIBE", 3, select(other), TOKEN)
        await topics.produce(other, flights(0, 2))
        before = await records(late, 3)
        assert json.loads(await answer(page, "PUBLISH", 4, written, TOKEN))["offset"] == 200
        await counted(running, name, 0)
        server.up()
        with trio.fail_after(WITHIN):
            heard, again = await records(page, 199), await records(late, 199)
        await running.logged("schema registry back")
        said = await executes(running, name, "")
        await counted(running, name, 3)
    assert {(each["topic"], each["offset"]) for each in before} == {(name, 0), (other, 0), (other, 1)}
    good = [*range(199), 200]
    assert seen(heard) == seen(again) == [row(n) for n in good[1:]]
    assert [each["offset"] for each in heard] == [each["offset"] for each in again] == good[1:]
    assert [each["data"]["value"] for each in said if each["type"] == "RECORD"] == [row(n) for n in good]
    check_bad(said, name, [199])


async def test_an_id_that_the_registry_learns_later_is_read_by_who_asks_then(
    broker: Broker, topics: Topics, new_topic: NewTopic, server: RegistryServer, tmp_path: Path
) -> None:
    """It is asked for again after 10 s; another gateway asks at once."""
    name = await topics.create(new_topic(), 1)
    known = server.answers.pop("/schemas/ids/2")
    await topics.produce(name, flights(0, 1, 2))
    for folder in ("one", "two"):
        (tmp_path / folder).mkdir()
    async with gateway(tmp_path / "one", by_registry(broker, server, name)) as running:
        said = await executes(running, name, "")
        assert (places(said, "RECORD"), places(said, "BADRECORD")) == ([0, 2], [1])
    server.answers["/schemas/ids/2"] = known
    async with gateway(tmp_path / "two", by_registry(broker, server, name)) as running:
        said = await executes(running, name, "")
    assert [each["data"]["value"] for each in said] == [row(n) for n in range(3)]


async def test_a_registry_that_takes_too_long_holds_up_its_topic_only_until_it_answers(
    broker: Broker, topics: Topics, new_topic: NewTopic, server: RegistryServer, tmp_path: Path
) -> None:
    name, other = [await topics.create(new_topic(), 1) for _ in range(2)]
    async with (
        gateway(tmp_path, by_registry(broker, server, name, other)) as running,
        AsyncExitStack() as stack,
    ):
        page = await learn(running, stack, topics, name)
        beside = await stack.enter_async_context(in_python(running.address, "beside"))
        await answer(beside, "SUBSCRIBE", 2, select(other), TOKEN)
        server.gate.clear()
        await topics.produce(name, flights(1, 2, 3))
        away = await running.logged("schema registry away")
        assert away["error"] == "no answer within 2 s"
        await asked(server)
        await topics.produce(other, flights(0))
        assert seen(await records(beside, 1)) == [row(0)]
        found: list[Message] = []
        async with trio.open_nursery() as nursery:

            async def scan() -> None:
                found.extend(await executes(running, name, ""))

            nursery.start_soon(scan)
            await check_idle(running, name)
            server.gate.set()
            with trio.fail_after(WITHIN):
                heard = await records(page, 3)
        await counted(running, name, 0)
    assert seen(heard) == [row(n) for n in (1, 2, 3)]
    assert [each["data"]["value"] for each in found] == [row(n) for n in range(4)]
