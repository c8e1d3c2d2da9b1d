"""Producing over Pulsar's REST interface to a source with a schema registry, through the whole gateway."""

from __future__ import annotations

import base64
import io
import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import fastavro
import pytest
import trio

from kiwi_gw.api import (
    SCHEMA_COLUMNS,
    Decode,
    RefusalCode,
    RegisteredSchema,
    SchemaRefused,
    SchemaVersion,
)
from kiwi_gw.dialects.pulsar import reading as reading_module
from kiwi_gw.errors import ConfigError
from kiwi_gw.testing import GatewayUnderTest, Script, ScriptedSources, open_gateway
from tests.edge.test_pulsar import BROKER, OWN, ask

V1 = {"type": "record", "name": "A", "fields": [{"name": "a", "type": "long"}]}
V2 = {"type": "record", "name": "A", "fields": [*V1["fields"], {"name": "b", "type": "int", "default": 7}]}
SETTINGS = "plugins: [scripted]\npulsar: {{enabled: true}}\nsources: [{{type: scripted, id: orders{}}}]\n"
BOTH = Decode("avro", "avro", registry=True)
VALUES = Decode("avro", registry=True)


@asynccontextmanager
async def topic(decode: Decode = BOTH, more: str = "") -> AsyncIterator[tuple[GatewayUnderTest, Script]]:
    sources = ScriptedSources(writable=True, decode=decode)
    async with open_gateway(SETTINGS.format(more), plugins={"scripted": sources}) as gateway:
        with trio.fail_after(20):
            yield gateway, sources["orders"]


def avro(schema: object, *values: object, **more: object) -> dict[str, object]:
    messages = [{"value": value} for value in values]
    return {"value_schema": {"type": "AVRO", "schema": schema}, "messages": messages, **more}


def read(data: bytes | None, schema_id: int, schema: Any) -> object:
    """What a datum behind the id of its schema is, by another implementation."""
    assert data is not None
    assert data[:5] == b"\0" + schema_id.to_bytes(4, "big")
    rest = io.BytesIO(data[5:])
    found = fastavro.schemaless_reader(rest, schema, None)
    assert not rest.read()
    return found


def written(script: Script, column: str = "value") -> Sequence[bytes | None]:
    return [data for batch in script.history.batches for data in batch.columns[column]]  # type: ignore[misc]


async def test_a_schema_is_registered_and_its_versions_are_used() -> None:
    async with topic() as (gateway, script):
        for schema, version in ((V1, 1), (V2, 2), (V1, 1)):
            status, _, answer = await ask(gateway, avro(schema, {"a": 5}, None))
            assert (status, answer["schema_version"]) == (200, version)
        first, tombstone, second, *_ = written(script)
        assert (read(first, 1, V1), tombstone, read(second, 2, V2)) == ({"a": 5}, None, {"a": 5, "b": 7})
        # A version is enough, and counts more than a schema.
        for body in (
            {"messages": [{"value": {"a": 6}}], "schema_version": 1},
            avro(V2, {"a": 6}, schema_version=1, schema_type="avro"),
        ):
            status, _, answer = await ask(gateway, body, OWN + "/partitions/0")
            assert (status, answer["schema_version"]) == (200, 1)
            assert read(written(script)[-1], 1, V1) == {"a": 6}
        assert len(script.schemas.known) == 2


async def test_the_form_of_brokers() -> None:
    async with topic() as (gateway, script):
        info = json.dumps({"type": "AVRO", "schema": V1})
        for more in ({"valueSchema": info}, {"schemaVersion": 1}):
            status, _, answer = await ask(gateway, {"messages": [{"payload": '{"a": 5}'}], **more}, BROKER)
            assert (status, answer["schemaVersion"]) == (200, 1)
            assert answer["messagePublishResults"][0]["schemaVersion"] == 1
            assert read(written(script)[-1], 1, V1) == {"a": 5}
        status, _, answer = await ask(gateway, {"messages": [{"payload": "x"}], "schemaVersion": 9}, BROKER)
        assert (status, "there is no version 9" in answer["reason"]) == (422, True)


@pytest.mark.parametrize("decode", [BOTH, VALUES])
async def test_pairs(decode: Decode) -> None:
    """Keys that the source does not read by the registry are one datum, and no more."""
    async with topic(decode) as (gateway, script):
        message = {"key": "k", "value": {"a": 5}}
        body: dict[str, Any] = {
            "schema_type": "KEY_VALUE",
            "key_schema": {"type": "AVRO", "schema": "string"},
            "value_schema": {"type": "AVRO", "schema": V1},
            "messages": [message, {"value": None}],
        }
        status, _, answer = await ask(gateway, body)
        assert (status, answer["schema_version"]) == (200, 1)
        assert read(written(script)[0], 1, V1) == {"a": 5}
        assert written(script)[1] is None
        key, none = written(script, "key")
        assert none is None
        if decode is BOTH:
            assert [part for part, _ in script.schemas.known] == ["value", "key"]
            assert read(key, 2, "string") == "k"
        else:
            assert [part for part, _ in script.schemas.known] == ["value"]
            assert key == b"\x02k"
        del body["value_schema"]
        assert (await ask(gateway, body))[2]["error_code"] == 42201
        status, _, answer = await ask(gateway, body | {"schema_version": 1})
        assert (status, answer["schema_version"]) == (200, 1)
        assert read(written(script)[-2], 1, V1) == {"a": 5}


@pytest.mark.parametrize("schema", [{"type": "JSON", "schema": V1}, {"type": "JSON"}])
async def test_what_is_no_avro_has_no_version(schema: object) -> None:
    async with topic() as (gateway, script):
        body = {"value_schema": schema, "messages": [{"value": {"a": 5}}]}
        status, _, answer = await ask(gateway, body)
        assert (status, answer["schema_version"], script.schemas.asked) == (200, None, [])
        assert written(script) == [b'{"a": 5}']


async def test_without_a_registry_a_datum_is_all() -> None:
    async with topic(Decode()) as (gateway, script):
        status, _, answer = await ask(gateway, avro(V1, {"a": 5}))
        assert (status, answer["schema_version"], script.schemas.asked) == (200, None, [])
        assert written(script) == [b"\x0a"]
        answer = (await ask(gateway, avro(V1, {"a": 5}, schema_version=1)))[2]
        assert (answer["error_code"], "no schema registry" in answer["message"]) == (42204, True)


@pytest.mark.parametrize(
    ("body", "code"),
    [
        (avro(V1, {"a": 5}, {"a": "x"}), 42205),
        (avro(V1, {"a": 5}, more=1), 42205),
        (avro("{", {"a": 5}), 42204),
        (avro(V1, {"a": 5}, schema_type="json"), 42204),
        (avro(V1, {"a": 5}, key_schema={"type": "STRING"}), 42203),
        (avro(V1, {"a": 5}, key_schema={"type": "AVRO", "schema": "x"}, schema_type="key_value"), 42203),
        (avro(V1, {"a": 5}, schema_version=1, schema_type="string"), 42204),
        ({**avro(V1), "messages": [{"value": {"a": 5}, "partition": 8}]}, 42205),
        ({**avro(V1), "messages": [{"value": {"a": 5}, "deliverAfterMs": 8}]}, 42206),
        (avro("string", "x" * 999_994), 42205),  # with its head it is too large by 2 bytes
    ],
)
async def test_a_request_that_is_refused_leaves_nothing_behind(body: object, code: int) -> None:
    async with topic() as (gateway, script):
        status, _, answer = await ask(gateway, body)
        assert (status, answer["error_code"]) == (code // 100, code)
        assert (script.schemas.asked, script.positions) == ([], {0: 0})


REFUSALS = [
    (RefusalCode.INCOMPATIBLE, 42203, 42203),
    (RefusalCode.SCHEMA, 42204, 42203),
    (RefusalCode.UNAVAILABLE, 50301, 50301),
]


@pytest.mark.parametrize(("refusal", "of_value", "of_key"), REFUSALS)
async def test_what_the_registry_refuses_is_not_written(
    refusal: RefusalCode, of_value: int, of_key: int
) -> None:
    async with topic() as (gateway, script):
        script.schemas.refusal = SchemaRefused(refusal, "a member has another type")
        pair = {
            "schema_type": "key_value",
            "key_schema": {"type": "AVRO", "schema": "string"},
            "value_schema": {"type": "INT8"},
            "messages": [{"key": "k", "value": 5}],
        }
        for body, code in ((avro(V1, {"a": 5}), of_value), (pair, of_key)):
            status, headers, answer = await ask(gateway, body)
            assert (status, answer["error_code"]) == (code // 100, code)
            assert answer["message"].startswith("nothing was written: ")
            assert "a member has another type" in answer["message"]
            assert headers.get("retry-after") == ("1" if status == 503 else None)
        broker = {"messages": [{"payload": "5"}], "valueSchema": '{"type":"AVRO","schema":"int"}'}
        status, _, answer = await ask(gateway, broker, BROKER)
        assert (status, "another type" in answer["reason"]) == (of_value // 100, True)
        assert script.positions == {0: 0}


@pytest.mark.parametrize("version", [9, 0, -1, 2**62])
async def test_a_version_that_is_not_there(version: int) -> None:
    async with topic() as (gateway, script):
        await ask(gateway, avro(V1, {"a": 5}))
        answer = (await ask(gateway, {"messages": [{"value": {"a": 5}}], "schema_version": version}))[2]
        assert (answer["error_code"], script.positions) == (42204, {0: 1})
        assert f"there is no version {version}" in answer["message"]


async def test_a_version_that_refers_to_others_and_one_that_is_too_large() -> None:
    async with topic() as (gateway, script):
        pair = {"type": "record", "name": "P", "fields": [{"name": "of", "type": "A"}]}
        script.schemas.known.append(("value", SchemaVersion(77, 1, json.dumps(pair), (json.dumps(V1),))))
        script.schemas.known.append(("value", SchemaVersion(78, 2, json.dumps(V1), (" " * 32_768,))))
        body = {"messages": [{"value": {"of": {"a": 5}}}]}
        assert (await ask(gateway, body | {"schema_version": 1}))[0] == 200
        assert written(script) == [b"\0\0\0\0\x4d\x0a"]
        answer = (await ask(gateway, body | {"schema_version": 2}))[2]
        assert (answer["error_code"], "at most" in answer["message"]) == (42204, True)


async def test_a_registry_that_does_not_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kiwi_gw.runtime.request_rights._ORIGIN_SECONDS", 0.05)
    async with topic() as (gateway, script):
        script.schemas.answers = trio.Event()
        for body in (avro(V1, {"a": 5}), {"messages": [{"value": {"a": 5}}], "schema_version": 1}):
            status, headers, answer = await ask(gateway, body)
            assert (status, answer["error_code"], headers["retry-after"]) == (503, 50301, "1")
            assert "nothing was written: " in answer["message"]
        assert script.positions == {0: 0}
        assert gateway.gateway.request_load.body_bytes == 0


async def test_who_reads_is_told_which_schemas_there_are(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those that the messages name, in the order in which they come, and their versions where the registry
    says them."""
    schemas = [
        RegisteredSchema(number, text) for number, text in ((7, '"int"'), (8, '"long"'), (9, '"string"'))
    ]
    int_, long_, text = schemas
    named = [None, long_, int_, long_, text, None]
    values = [b"x", b"\0\0\0\0\x08\x02", b"\0\0\0\0\x07\x04", b"\0\0\0\0\x08\x06", b"\0\0\0\0\x09\x02a", None]
    reading = OWN + "/partitions/0/messages?include_schema=true"
    async with topic(VALUES) as (gateway, script):
        for schema in ('"int"', '"long"'):
            await script.schemas.register_schema("value", schema)
        await script.publish(values, columns={SCHEMA_COLUMNS["value"]: named})

        async def shown() -> list[tuple[int | None, object]]:
            status, _, answer = await ask(gateway, path=reading, method="GET", headers=[])
            assert (status, [message["value"] for message in answer["messages"]]) == (
                200,
                [None, 1, 2, 3, "a", None],
            )
            assert {(each["type"], *each["properties"]) for each in answer["schemas"]} <= {("AVRO",)}
            return [
                (each["version"], json.loads(base64.b64decode(each["data"]))) for each in answer["schemas"]
            ]

        assert await shown() == [(2, "long"), (1, "int"), (None, "string")]
        script.schemas.refusal = SchemaRefused(RefusalCode.UNAVAILABLE, "not now")
        assert await shown() == [(None, "long"), (None, "int"), (None, "string")]
        script.schemas.refusal, script.schemas.answers = None, trio.Event()
        monkeypatch.setattr(reading_module, "_VERSIONS_SECONDS", 0.01)
        assert await shown() == [(None, "long"), (None, "int"), (None, "string")]
        monkeypatch.setattr(reading_module, "MOST_SCHEMA_CHARACTERS", 12)
        assert await shown() == [(None, "long"), (None, "int")]
        monkeypatch.setattr(reading_module, "MOST_SCHEMAS", 1)
        assert await shown() == [(None, "long")]
        _, _, answer = await ask(gateway, path=reading.replace("true", "false"), method="GET", headers=[])
        assert "schemas" not in answer


async def test_many_messages_have_their_ids() -> None:
    async with topic() as (gateway, script):
        status, _, answer = await ask(gateway, avro("int", *range(1_000)))
        assert (status, len(answer["messageIds"])) == (200, 1_000)
        assert [read(data, 1, "int") for data in written(script)] == list(range(1_000))


async def test_a_source_may_have_a_definition_of_its_own() -> None:
    own = f", pulsar: {{schema: {{type: AVRO, schema: {json.dumps(V1)}}}}}"
    body = {"messages": [{"value": {"a": 5}}]}
    reading = OWN + "/partitions/0/messages?include_schema=true"
    async with topic(Decode(), own) as (gateway, script):
        assert (await ask(gateway, body))[2]["schema_version"] is None
        assert written(script) == [b"\x0a"]
        answer = (await ask(gateway, {"messages": [{"value": {"a": "x"}}]}))[2]
        assert (answer["error_code"], "64 bits" in answer["message"]) == (42205, True)
        answer = (await ask(gateway, path=reading, method="GET", headers=[]))[2]
        assert [message["value"] for message in answer["messages"]] == [{"a": 5}]
        (said,) = answer["schemas"]
        assert (said["type"], json.loads(base64.b64decode(said["data"]))) == ("AVRO", V1)
    async with topic(BOTH, own) as (gateway, script):
        assert (await ask(gateway, body))[2]["schema_version"] == 1
        assert read(written(script)[0], 1, V1) == {"a": 5}
        assert (await ask(gateway, avro(V2, {"a": 5})))[2]["schema_version"] == 2


@pytest.mark.parametrize(
    ("schema", "words"),
    [
        ("{type: AVRO}", "AVRO needs a definition"),
        ("{type: STRING, schema: int}", "a definition .schema. is for AVRO and JSON, not for STRING"),
        ("{type: AVRO, schema: '{'}", "this is no Avro schema"),
        ("{type: JSON, schema: {type: record}}", "this is no Avro schema"),
        ("{type: AVRO, schema: '?'}", "the definition must be an object, its text, or that in base64"),
        ("{type: AVRO, definition: int}", "definition"),
    ],
)
async def test_definitions_that_cannot_be_used(schema: str, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        async with topic(Decode(), f", pulsar: {{schema: {schema}}}"):
            pass
