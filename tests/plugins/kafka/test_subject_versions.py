"""Registering the schemas of what is written, and finding them by their versions, over HTTP."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest
import trio
from structlog.testing import capture_logs

from kiwi_gw.api import RefusalCode, RegisteredSchema, SchemaRefused, SchemaRegistrar, SchemaVersion
from kiwi_kafka import Kafka, KafkaSettings, KafkaSource
from kiwi_kafka.registry import subject_versions
from kiwi_kafka.registry.client import MOST_REFERENCES, RegistryClient
from kiwi_kafka.registry.documents import NoSchema
from kiwi_kafka.registry.schema_cache import SchemaCache
from kiwi_kafka.registry.subject_versions import AT_ONCE, SubjectVersions
from kiwi_kafka.settings import RegistrySettings
from tests.plugins.kafka.fakes import FakeCluster, Run
from tests.plugins.kafka.registry_server import NO_PATH, V1, RegistryServer, registered

WRITTEN = json.dumps(V1)
LATER = json.dumps({**V1, "fields": [*V1["fields"], {"name": "gate", "type": "string", "default": ""}]})
POSTED = ["/subjects/t-value/versions", "/subjects/t-value"]


def versions_of(server: RegistryServer, deadline: float = 10.0, **settings: Any) -> SubjectVersions:
    client = RegistryClient(RegistrySettings(url=server.url, **settings), deadline)
    return SubjectVersions(client, SchemaCache())


async def refused(asked: Any) -> tuple[str, str]:
    with pytest.raises(SchemaRefused) as caught:
        await asked
    return caught.value.code, str(caught.value)


async def test_a_schema_that_is_none_is_not_made_one(
    server: RegistryServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    versions = versions_of(server)
    for _ in range(3):
        code, words = await refused(versions.known("t-value", WRITTEN))
        assert (code, words) == (RefusalCode.UNKNOWN_VERSION, "it is no schema of t-value")
    assert (server.subjects, len(server.requests)) == ({}, 1), "it is not asked for again at once"
    monkeypatch.setattr(subject_versions, "NONE_SECONDS", -1.0)
    for _ in range(2):
        await refused(versions.known("t-key", WRITTEN))
    assert len(server.requests) == 3
    made = await versions.register("t-value", WRITTEN)
    asked = len(server.requests)
    assert await versions.known("t-value", WRITTEN) == made
    assert len(server.requests) == asked, "it is known"
    other = versions_of(server)
    assert [await other.known("t-value", WRITTEN) for _ in range(2)] == [made] * 2
    assert len(server.requests) == asked + 1
    assert (await refused(other.known("t-value", LATER)))[0] == RefusalCode.UNKNOWN_VERSION
    server.trouble = 500, b"{}"
    assert (await refused(other.known("t-value", LATER)))[0] == RefusalCode.UNAVAILABLE


async def test_who_reads_holds_up_nobody_who_writes() -> None:
    client = Client()
    versions = SubjectVersions(client, SchemaCache())
    async with trio.open_nursery() as nursery:
        for number in range(3 * AT_ONCE):
            nursery.start_soon(versions.known, "t-value", f"{number}")
        await trio.testing.wait_all_tasks_blocked()
        assert len(client.asked) == AT_ONCE
        nursery.start_soon(versions.find, "t-value", 1)
        await trio.testing.wait_all_tasks_blocked()
        assert client.asked[-1] == 1
        client.may.set()


async def test_who_asks_for_a_schema_that_is_just_being_registered_hides_it_from_nobody() -> None:
    client = Client()
    versions = SubjectVersions(client, SchemaCache())
    found: list[SchemaVersion] = []

    async def register() -> None:
        found.append(await versions.register("t-value", WRITTEN))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(refused, versions.known("t-value", WRITTEN))
        await trio.testing.wait_all_tasks_blocked()
        nursery.start_soon(register)
        while len(client.asked) < 2:
            await trio.testing.wait_all_tasks_blocked()
        client.fails_to_know = SchemaRefused(RefusalCode.UNKNOWN_VERSION, "none")
        client.may.set()
    assert len(found) == 1


@pytest.mark.parametrize("says_version", [True, False])
async def test_a_schema_has_a_version_of_its_subject(server: RegistryServer, says_version: bool) -> None:
    server.says_version = says_version
    versions = versions_of(server)
    found = [await versions.register("t-value", text) for text in (WRITTEN, LATER, WRITTEN)]
    assert found == [SchemaVersion(101, 1, WRITTEN), SchemaVersion(102, 2, LATER), found[0]]
    assert server.requests == POSTED[: 1 if says_version else 2] * 2
    # What another gateway has registered is found, not registered again.
    assert await versions_of(server).register("t-value", LATER) == found[1]
    # Of another subject it is another version, by the same id.
    assert await versions.register("t-key", LATER) == SchemaVersion(102, 1, LATER)
    assert server.subjects == {"t-value": [101, 102], "t-key": [102]}


async def test_a_version_is_asked_for_once(server: RegistryServer) -> None:
    await versions_of(server).register("t-value", WRITTEN)
    versions = versions_of(server)
    server.requests.clear()
    for _ in range(3):
        assert await versions.find("t-value", 1) == SchemaVersion(101, 1, WRITTEN)
    assert server.requests == ["/subjects/t-value/versions/1"]


async def test_a_version_that_refers_to_others(server: RegistryServer) -> None:
    city = {"type": "record", "name": "a.City", "fields": [{"name": "name", "type": "string"}]}
    server.add_subject("city", 3, city)
    flight = {"type": "record", "name": "a.Flight", "fields": [{"name": "from", "type": "a.City"}]}
    to_city = {"name": "a.City", "subject": "city", "version": 3}
    server.add_subject("t-value", 1, flight, references=[to_city], id=5)
    found = await versions_of(server).find("t-value", 1)
    assert found == SchemaVersion(5, 1, json.dumps(flight), (json.dumps(city),))
    gone = {"name": "x", "subject": "gone", "version": 1}
    server.add_subject("t-value", 2, flight, references=[gone], id=6)
    code, words = await refused(versions_of(server).find("t-value", 2))
    assert code == RefusalCode.SCHEMA
    assert words == "version 2 of t-value refers to another one: the registry does not know it"
    for n in range(MOST_REFERENCES + 1):
        following = {"name": "x", "subject": f"s{n + 1}", "version": 1}
        server.add_subject(f"s{n}", 1, city, references=[following])
    server.add_subject("t-value", 3, flight, references=[{**gone, "subject": "s0"}], id=7)
    code, words = await refused(versions_of(server).find("t-value", 3))
    assert (code, "more than 64" in words) == (RefusalCode.SCHEMA, True)


async def test_versions_that_are_not_there(server: RegistryServer) -> None:
    versions = versions_of(server)
    await versions.register("t-value", WRITTEN)
    server.requests.clear()
    for subject, version in (
        ("t-value", 2),
        ("u-value", 1),
        ("t-value", 0),
        ("t-value", -1),
        ("t-value", 2**31),
    ):
        code, words = await refused(versions.find(subject, version))
        assert (code, words) == (
            RefusalCode.UNKNOWN_VERSION,
            f"the schema registry knows no version {version} of {subject}",
        )
    assert len(server.requests) == 2
    server.add_subject("t-value", 3, {"type": "object"}, schemaType="JSON", id=9)
    code, words = await refused(versions.find("t-value", 3))
    assert (code, "no AVRO but 'JSON'" in words) == (RefusalCode.SCHEMA, True)


async def test_what_is_not_compatible_is_refused_each_time(server: RegistryServer) -> None:
    versions = versions_of(server)
    await versions.register("t-value", WRITTEN)
    server.requests.clear()
    other = json.dumps({**V1, "fields": [{"name": "carrier", "type": "int"}]})
    for _ in range(2):
        code, words = await refused(versions.register("t-value", other))
        assert code == RefusalCode.INCOMPATIBLE
        assert words == (
            "the schema registry refuses it: Schema being registered is incompatible with an earlier schema "
            'for subject "t-value"'
        )
    assert server.requests == POSTED[:1] * 2


async def test_what_is_no_schema_is_refused(server: RegistryServer) -> None:
    versions = versions_of(server)
    for text in ("{", '"x.Unknown"', '{"type": "array", "items": "null"}', "[" * 100_000):
        code, words = await refused(versions.register("t-value", text))
        assert (code, words.partition(":")[0]) == (RefusalCode.SCHEMA, "the schema cannot be used")
    assert (server.requests, server.subjects) == ([], {})
    server.trouble = 422, json.dumps({"error_code": 42201, "message": "x" * 10_000}).encode()
    code, words = await refused(versions.register("t-value", WRITTEN))
    assert (code, words) == (RefusalCode.SCHEMA, "the schema registry refuses it: " + "x" * 600)
    server.trouble = 422, b"<html>"
    assert "refuses it: HTTP status 422" in (await refused(versions.register("t-value", WRITTEN)))[1]


@pytest.mark.parametrize(
    ("status", "body", "why"),
    [
        (500, b'{"error_code":50001}', "HTTP status 500"),
        (401, b"", "it refuses user and password"),
        (403, b"", "it refuses user and password"),
        (404, NO_PATH[1], "HTTP status 404"),
        (302, b"", "HTTP status 302"),
        (200, b"<html>", "its answer is no"),
        (200, b"{}", "its answer is no"),
        (200, b'{"id": "x"}', "its answer is no"),
        (200, b'{"id": -1, "version": 1, "schema": "1"}', "no id that records can have"),
        (200, b'{"id": 2147483648, "version": 1, "schema": "1"}', "no id that records can have"),
        (200, b'{"id": 5}', "its answer"),
        (200, b'{"id": 5, "version": -1}', "its answer"),
        (200, b'{"id": 5, "version": 99999999999999999999}', "its answer"),
        (200, b"[" * 100_000, "its answer is no"),
        (200, b" " * 2_000_000, "too large"),
    ],
)
async def test_what_says_nothing_of_a_schema(
    server: RegistryServer, status: int, body: bytes, why: str
) -> None:
    server.trouble = status, body
    versions = versions_of(server)
    with capture_logs() as log:
        code, words = await refused(versions.register("t-value", WRITTEN))
        assert (code, words) == (
            RefusalCode.UNAVAILABLE,
            "the schema registry does not answer as it should",
        )
        code, _ = await refused(versions.find("t-value", 1))
        assert code == (RefusalCode.SCHEMA if len(body) == 2_000_000 else RefusalCode.UNAVAILABLE)
    (line,) = log  # in 10 s
    assert why in line["error"]
    server.trouble = None
    assert (await versions.register("t-value", WRITTEN)).version == 1


async def test_a_registry_that_is_down_or_slow(server: RegistryServer) -> None:
    versions = versions_of(server, deadline=0.1)
    server.gate.clear()
    assert (await refused(versions.register("t-value", WRITTEN)))[0] == RefusalCode.UNAVAILABLE
    server.down()
    assert (await refused(versions.register("t-value", WRITTEN)))[0] == RefusalCode.UNAVAILABLE
    server.up()
    assert (await versions_of(server).register("t-value", WRITTEN)).version == 1


async def test_its_user_and_its_path(server: RegistryServer) -> None:
    server.user = "ada", "sesame"
    versions = versions_of(server, user="ada", password="sesame")
    assert (await versions.register("a/b-value", WRITTEN)).version == 1
    assert server.subjects == {"a%2Fb-value": [101]}


@dataclass
class Client:
    """A registry in memory, which answers when it may."""

    url: str = "fake"
    may: trio.Event = field(default_factory=trio.Event)
    asked: list[str | int] = field(default_factory=list)
    now: int = 0
    most: int = 0
    fails: Exception | None = None
    fails_to_know: SchemaRefused | None = None

    async def register(self, subject: str, definition: str) -> SchemaVersion:
        return await self._answer(definition, len(self.asked) + 1)

    async def find(self, subject: str, version: int) -> SchemaVersion:
        return await self._answer(version, version)

    async def known(self, subject: str, definition: str) -> SchemaVersion:
        found = await self._answer(f"known {definition}", 3)
        if self.fails_to_know is not None:
            raise self.fails_to_know
        return found

    async def _answer(self, asked: str | int, version: int) -> SchemaVersion:
        self.asked.append(asked)
        self.now += 1
        self.most = max(self.most, self.now)
        try:
            await self.may.wait()
        finally:
            self.now -= 1
        if self.fails is not None:
            raise self.fails
        return SchemaVersion(7, version, '"int"')


async def test_many_schemas_are_asked_for_a_few_at_a_time() -> None:
    client = Client()
    versions = SubjectVersions(client, SchemaCache())
    async with trio.open_nursery() as nursery:
        for version in range(1, 101):
            nursery.start_soon(versions.find, "t-value", version)
        await trio.testing.wait_all_tasks_blocked()
        assert len(client.asked) == AT_ONCE
        client.may.set()
    assert (len(client.asked), client.most) == (100, AT_ONCE)


async def test_one_schema_is_asked_for_once_for_all_who_wait() -> None:
    client = Client()
    versions = SubjectVersions(client, SchemaCache())
    found: list[object] = []

    async def find() -> None:
        try:
            found.append(await versions.find("t-value", 1))
        except SchemaRefused as error:
            found.append(error.code)

    first = trio.CancelScope()
    async with trio.open_nursery() as nursery:

        async def leave() -> None:
            with first:
                await find()

        nursery.start_soon(leave)
        await trio.testing.wait_all_tasks_blocked()
        for _ in range(20):
            nursery.start_soon(find)
        await trio.testing.wait_all_tasks_blocked()
        assert client.asked == [1]
        first.cancel()  # who has asked is gone: another of them asks
        await trio.testing.wait_all_tasks_blocked()
        assert client.asked == [1, 1]
        client.fails = SchemaRefused(RefusalCode.UNKNOWN_VERSION, "no")
        client.may.set()
    assert (found, client.asked) == ([RefusalCode.UNKNOWN_VERSION] * 20, [1, 1])


async def test_what_is_kept_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subject_versions, "MOST_KEPT", 10_000)
    client = Client()
    client.may.set()
    versions = SubjectVersions(client, SchemaCache())
    for version in range(1, 101):
        await versions.find("t-value", version)
    assert len(client.asked) == 100
    for version in range(95, 101):
        await versions.find("t-value", version)
    assert len(client.asked) == 100
    await versions.find("t-value", 1)
    assert len(client.asked) == 101


async def test_an_id_that_was_made_up_before_is_known_when_it_is_registered() -> None:
    client, cache = Client(), SchemaCache()
    client.may.set()
    cache.put(7, NoSchema("the registry does not know it", unknown=True), trio.current_time())
    await SubjectVersions(client, cache).register("t-value", '"int"')
    assert cache.get(7, trio.current_time()) is None


@asynccontextmanager
async def source_on(cluster: FakeCluster, versions: SubjectVersions | None) -> AsyncIterator[KafkaSource]:
    async with trio.open_nursery() as nursery:
        kafka = Kafka(KafkaSettings(bootstrap_servers="fake:9092"), cluster, nursery, None, versions)
        run = Run(kafka, "t")
        assert isinstance(run.source, KafkaSource)
        yield run.source
        nursery.cancel_scope.cancel()


async def test_a_source_registers_under_the_subjects_of_its_topic(server: RegistryServer) -> None:
    async with source_on(FakeCluster(), versions_of(server)) as source:
        assert isinstance(source, SchemaRegistrar)
        assert (await source.register_schema("key", '"string"')).version == 1
        made = await source.register_schema("value", WRITTEN)
        assert await source.find_schema("value", 1) == made
        assert server.subjects == {"t-key": [101], "t-value": [102]}
        # What was registered is what readers get.
        read = await RegistryClient(RegistrySettings(url=server.url)).schema(made.id)
        assert isinstance(read, RegisteredSchema)
        value = {"carrier": "AA", "delay": 5}
        assert read.read(registered(made.id, V1, value)) == value
    async with source_on(FakeCluster(), None) as source:
        code, words = await refused(source.register_schema("value", WRITTEN))
        assert (code, "kafka.registry" in words) == (RefusalCode.UNAVAILABLE, True)
