"""`decode` of a Kafka source."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from kiwi_gw.model import Decode
from kiwi_kafka import KAFKA, KafkaSourceSettings


def decoded(decode: Any) -> Decode:
    return KAFKA.description_of(KafkaSourceSettings(type="kafka", topic="t", decode=decode)).decode


def wrong(decode: Any) -> str:
    with pytest.raises(ValidationError) as caught:
        KafkaSourceSettings(type="kafka", topic="t", decode=decode)
    return str(caught.value)


def test_json_and_text_unless_it_says_otherwise() -> None:
    assert KAFKA.description_of(KafkaSourceSettings(type="kafka", topic="t")).decode == Decode(
        "json", "string"
    )
    assert decoded("long") == Decode("long", "string")
    assert decoded({"key": "binary"}) == Decode("json", "binary")
    assert decoded({"schema": "carrier STRING, delay BIGINT"}) == Decode(
        fields="carrier STRING, delay BIGINT"
    )


def test_avro_has_its_schema_in_a_file(tmp_path: Path) -> None:
    file = tmp_path / "flight.avsc"
    schema = json.dumps({"type": "record", "name": "F", "fields": [{"name": "a", "type": "int"}]})
    file.write_text(schema)
    assert decoded({"value": "avro", "avro_schema": str(file)}) == Decode("avro", avro_schema=schema)


def test_avro_whose_schemas_are_in_a_registry() -> None:
    assert decoded({"value": "avro", "registry": True}) == Decode("avro", registry=True)
    both = {"value": "avro", "key": "avro", "registry": True}
    assert decoded(both) == Decode("avro", "avro", registry=True)
    assert decoded({"key": "avro", "registry": True, "schema": "a INT"}).registry


@pytest.mark.parametrize(
    ("decode", "message"),
    [
        ("xml", "must be one of json, string, int, long, binary, avro, not 'xml'"),
        ({"value": "avro"}, "avro needs avro_schema"),
        ({"avro_schema": "a.avsc"}, "avro_schema needs value: avro"),
        ({"value": "avro", "avro_schema": "/nowhere/a.avsc"}, "cannot be read"),
        ({"value": "avro", "registry": True, "avro_schema": "a.avsc"}, "two ways to say the same"),
        ({"registry": True}, "registry needs value: avro, or key: avro"),
        ({"value": "string", "schema": "a INT"}, "schema is about JSON"),
        ({"schema": "a NOTHING"}, "schema: "),
        ({"values": "json"}, "values"),
    ],
)
def test_what_is_wrong(decode: Any, message: str) -> None:
    assert message in wrong(decode)


def test_no_schema_and_no_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "a.avsc"
    file.write_text("{")
    assert "no Avro schema" in wrong({"value": "avro", "avro_schema": str(file)})
    file.write_text('"string"')
    monkeypatch.setitem(sys.modules, "fastavro", None)
    assert "kiwi-gw[avro]" in wrong({"key": "avro", "avro_schema": str(file)})
