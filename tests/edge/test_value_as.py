"""How the `value` of an event is written: `valueAs`, and `subscriber.value_as`."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio

from kiwi_gw.dialects.kiwi.results import kiwi_wire, value_fields, value_form
from kiwi_gw.errors import SubscribeRefused
from kiwi_gw.model import Decode, EventSchema, Field, FieldEncoding, SourceInfo, ValueAs
from kiwi_gw.testing import GatewayUnderTest, ScriptedSources, open_gateway
from kiwi_kafka.event_schema import event_schema
from kiwi_spark.gateway.positions import SCHEMA as SPARK
from tests.edge.bench import error
from tests.edge.wire import connect

pytestmark = pytest.mark.usefixtures("no_tracebacks")


@asynccontextmanager
async def running(value_as: str | None = None) -> AsyncIterator[tuple[GatewayUnderTest, ScriptedSources]]:
    """Source `a`, whose values are written as `value_as` says, and `b`, whose are as they are."""
    sources = ScriptedSources()
    own = {} if value_as is None else {"subscriber": {"value_as": value_as}}
    listed = [{"type": "scripted", "id": "a", **own}, {"type": "scripted", "id": "b"}]
    config = {"plugins": ["scripted"], "sources": listed}
    async with open_gateway(json.dumps(config), plugins={"scripted": sources}) as gateway:
        with trio.fail_after(20):
            yield gateway, sources


VALUES = [b'{"a": 1, "b": [null]}', b"5", b'"t"', b"no json", b"", None, b'{"a":"\xff"}', b"\xff", b"NaN"]
TEXTS = ['{"a": 1, "b": [null]}', "5", '"t"', "no json", "", None, None, None, "NaN"]
JSONS = [{"a": 1, "b": [None]}, 5, "t", "no json", "", None, None, None, "NaN"]
BASE64 = [None] * 6 + ["eyJhIjoi/yJ9", "/w==", None]


@pytest.mark.parametrize(("asked", "said"), [(None, "text"), ("text", "text"), ("json", "json")])
async def test_what_subscribe_ok_says_is_how_values_come(asked: str | None, said: str) -> None:
    async with running() as (gateway, sources), connect(gateway) as client, connect(gateway) as plain:
        opened = await client.subscribe("a", **({} if asked is None else {"valueAs": asked}))
        assert opened["valueAs"] == said
        assert (await plain.subscribe("a"))["valueAs"] == "text", "everybody chooses for themselves"
        await sources["a"].publish(VALUES)
        data = [(await client.message())["data"] for _ in VALUES]
        assert [event["value"] for event in data] == (JSONS if said == "json" else TEXTS)
        # What is neither JSON nor text comes as ever.
        assert [event.get("valueBase64") for event in data] == BASE64
        assert [(await plain.message())["data"]["value"] for _ in VALUES] == TEXTS


@pytest.mark.parametrize(
    ("query", "asked", "said", "value"),
    [
        ({"where": "value.a = 1"}, None, "text", '{"a":1, "b":2}'),
        ({"where": "value.a = 1"}, "json", "json", {"a": 1, "b": 2}),
        ({"select": "value.a AS x"}, None, "json", {"x": 1}),
        ({"select": "value.a AS x"}, "text", "text", '{"x":1}'),
        ({"where": "value.a = 1", "select": "value.a AS x"}, "json", "json", {"x": 1}),
    ],
)
async def test_with_a_query(query: dict[str, str], asked: str | None, said: str, value: object) -> None:
    async with running() as (gateway, sources), connect(gateway) as client:
        wish = {} if asked is None else {"valueAs": asked}
        assert (await client.subscribe("a", **query, **wish))["valueAs"] == said
        await sources["a"].publish([b'{"a":1, "b":2}'])
        assert (await client.message())["data"]["value"] == value


async def test_the_configuration_says_what_holds_where_nobody_asks() -> None:
    async with running("json") as (gateway, sources), connect(gateway) as client:
        assert (await client.subscribe("a"))["valueAs"] == "json"
        assert (await client.subscribe("b"))["valueAs"] == "text"
        await sources["a"].publish([b'{"a":1}'])
        assert (await client.message())["data"]["value"] == {"a": 1}
        await client.ask("UNSUBSCRIBE", "a")
        assert (await client.subscribe("a", valueAs="text"))["valueAs"] == "text"


async def test_a_form_that_there_is_not_is_refused() -> None:
    async with running() as (gateway, _), connect(gateway) as client:
        for wrong in ("object", "", None, 1, ["json"]):
            reply = await client.ask("SUBSCRIBE", "a", valueAs=wrong)
            assert error(reply, "SUBSCRIBE") == 'valueAs must be "text" or "json"'


COUNTER = EventSchema((Field("count", FieldEncoding.INT),))
KAFKA = event_schema()


@pytest.mark.parametrize(
    ("source", "asked", "words"),
    [
        (SourceInfo("s", "counter", COUNTER), "json", "the events of this source have no value"),
        (SourceInfo("s", "counter", COUNTER), "text", "the events of this source have no value"),
        (
            SourceInfo("s", "kafka", KAFKA, decode=Decode("avro", avro_schema='"int"')),
            "json",
            "the values of this source cannot be had as json: they are no JSON (decode.value)",
        ),
        (
            SourceInfo("s", "own", EventSchema((Field("value", FieldEncoding.VALUE),))),
            "text",
            "the values of this source cannot be had as text: they are no text",
        ),
    ],
)
def test_what_cannot_be_given_is_refused_where_a_client_asks_for_it(
    source: SourceInfo, asked: ValueAs, words: str
) -> None:
    with pytest.raises(SubscribeRefused) as refused:
        kiwi_wire(source, value_as=asked)
    assert str(refused.value) == words
    # A configuration that wants it for all sources has it where it can be had.
    wished = SourceInfo("s", source.type, source.event_schema, decode=source.decode, value_as=asked)
    assert value_fields(wished, "flat", None) == source.event_schema.fields


def forms(source: SourceInfo) -> dict[str | None, Any]:
    wishes: tuple[ValueAs | None, ...] = (None, "text", "json")
    return {wish: value_form(value_fields(source, "flat", wish)) for wish in wishes}


def test_the_default_of_every_source_is_as_it_was() -> None:
    spark = SourceInfo("s", "spark", SPARK)
    assert forms(SourceInfo("s", "kafka", KAFKA)) == {None: "text", "text": "text", "json": "json"}
    assert forms(spark) == {None: "json", "text": "text", "json": "json"}
    assert value_form(value_fields(SourceInfo("s", "counter", COUNTER), "flat", None)) is None


def test_the_form_is_part_of_the_wire_key() -> None:
    source = SourceInfo("s", "kafka", KAFKA)
    wishes: tuple[ValueAs | None, ...] = (None, "text", "json", "json")
    keys = [kiwi_wire(source, value_as=wish).key for wish in wishes]
    assert keys[0] == keys[1] != keys[2] == keys[3]
