from __future__ import annotations

import json
from typing import Any

import pytest
from pydantic import ValidationError

from kiwi_spark.gateway.settings import InputSettings, SparkSettings, SparkSourceSettings


def wrong(section: type[Any], **settings: object) -> str:
    with pytest.raises(ValidationError) as caught:
        section.model_validate(settings)
    return str(caught.value)


def source(**keys: Any) -> dict[str, Any]:
    return {"type": "spark", "id": "s", "inputs": {"a": {"source": "k"}}, "sql": "SELECT 1", **keys}


def test_what_the_readme_shows() -> None:
    found = SparkSourceSettings.model_validate(
        {
            "type": "spark",
            "id": "delays-by-carrier",
            "inputs": {
                "flights": {
                    "source": "flights",
                    "format": "json",
                    "start": "latest",
                    "schema": "carrier STRING",
                },
                "airlines": {"format": "csv", "path": "data/airlines.csv", "options": {"header": True}},
                "late": {"source": "flights", "start": {"timestamp": 12}},
            },
            "watermarks": {"flights": {"column": "sched_dep", "delay": "1 hour"}},
            "sql": "SELECT 1",
            "output_mode": "update",
            "trigger": {"processing_time": "500 ms"},
            "key": ["carrier"],
            "sink": {"topic": "late-flights"},
        }
    )
    assert found.sources == ["flights"]
    assert found.inputs["flights"].ddl == "carrier STRING"
    assert json.loads(found.model_dump_json(by_alias=True))["inputs"]["flights"]["schema"] == "carrier STRING"


def test_defaults() -> None:
    found = SparkSourceSettings.model_validate(source())
    assert (found.trigger, found.real_time) == ("auto", "auto")
    assert (found.output_mode, found.key, found.sink) == ("append", [], None)
    assert found.inputs["a"].stream_format == "json"
    section = SparkSettings()
    assert (section.master, section.checkpoint_dir) == ("local[*]", "./state")


@pytest.mark.parametrize(
    ("keys", "real_time"),
    [
        ({}, "auto"),
        ({"sink": {"topic": "o"}}, "auto"),
        ({"output_mode": "complete"}, "no"),
        ({"output_mode": "update"}, "auto"),
        ({"trigger": "available_now"}, "no"),
        ({"trigger": {"processing_time": "1 s"}}, "no"),
        ({"trigger": {"real_time": True}}, "only"),
        ({"trigger": {"real_time": True}, "sink": {"topic": "o"}}, "only"),
        ({"trigger": {"real_time": True, "checkpoint_interval": "5 m"}}, "only"),
        ({"trigger": {"real_time": True, "checkpoint_interval": 5000}}, "only"),
    ],
)
def test_which_are_to_run_in_real_time(keys: dict[str, Any], real_time: str) -> None:
    found = SparkSourceSettings.model_validate(source(**keys))
    assert found.real_time == real_time
    assert SparkSourceSettings.model_validate(found.model_dump(by_alias=True)) == found


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ("500 ms", "500 milliseconds"),
        ("500ms", "500 milliseconds"),
        (500, "500 milliseconds"),
        ("10s", "10 seconds"),
        ("1 hour", "1 hour"),
        ("30 DAYS", "30 days"),
        ("5m", "5 minutes"),
    ],
)
def test_durations(given: object, text: str) -> None:
    found = SparkSourceSettings.model_validate(source(watermarks={"a": {"column": "t", "delay": given}}))
    assert found.watermarks["a"].delay == text


@pytest.mark.parametrize(
    ("keys", "words"),
    [
        ({"sql": None}, "sql or transform"),
        ({"transform": "m:f"}, "sql or transform"),
        ({"sql": "  "}, "sql is empty"),
        ({"sql": None, "transform": "no function"}, "module:function"),
        ({"inputs": {}}, "at least one stream"),
        ({"inputs": {"t": {"format": "csv", "path": "x"}}}, "at least one stream"),
        ({"inputs": {"a b": {"source": "k"}}}, "cannot be a table in SQL"),
        ({"watermarks": {"b": {"column": "t", "delay": "1 h"}}}, "which is no stream here; there is a"),
        ({"watermarks": {"a": {"column": "t", "delay": "soon"}}}, "is no duration"),
        ({"trigger": {"processing_time": "x"}}, "is no duration"),
        ({"trigger": {}}, "write one of them"),
        ({"trigger": {"real_time": True, "processing_time": "1 s"}}, "write one of them"),
        ({"trigger": {"processing_time": "1 s", "checkpoint_interval": "5 s"}}, "is for real_time"),
        ({"trigger": {"real_time": True, "checkpoint_interval": "4999 ms"}}, "takes 5 seconds or more"),
        ({"trigger": {"real_time": True, "checkpoint_interval": "0 m"}}, "takes 5 seconds or more"),
        (
            {
                "trigger": {"real_time": True},
                "inputs": {"a": {"source": "k", "schema": "x INT", "fail_on_data_loss": False}},
            },
            "where records are gone",
        ),
        ({"trigger": {"real_time": True}, "output_mode": "complete"}, "output_mode complete"),
        (
            {
                "trigger": {"real_time": True},
                "inputs": {"f": {"path": "x", "format": "text", "stream": True}},
            },
            "no streams of files",
        ),
        ({"key": ["a", "a"]}, "twice"),
        ({"sink": {"topic": "a b"}}, "not a topic name"),
    ],
)
def test_wrong_sources(keys: dict[str, Any], words: str) -> None:
    assert words in wrong(SparkSourceSettings, **source(**keys))


@pytest.mark.parametrize(
    ("keys", "words"),
    [
        ({}, "a stream (name the `source`) or a table"),
        ({"path": "x"}, "a stream (name the `source`) or a table"),
        ({"format": "json"}, "add `source` or `path`"),
        ({"format": "csv", "path": "x", "start": "earliest"}, "start is for sources"),
        ({"format": "csv", "stream": True}, "a stream of files has a path"),
        (
            {"format": "jdbc", "path": "x", "stream": True},
            "a stream of files has a path, and as its format csv",
        ),
        ({"source": "k", "format": "csv"}, "'csv' is not a format of a stream"),
        ({"source": "k", "path": "x"}, "path is for tables"),
        ({"source": "k", "options": {"a": 1}}, "options is for tables"),
        ({"source": "k", "format": "avro"}, "avro_schema (a file) or registry"),
        ({"source": "k", "format": "avro", "avro_schema": "x", "registry": "http://r"}, "one of them"),
        ({"source": "k", "registry": "http://r"}, "need format: avro"),
        ({"source": "k", "format": "avro", "avro_schema": "x", "registry_subject": "s"}, "needs registry"),
        ({"source": "k", "format": "raw", "schema": "a INT"}, "schema is for format json"),
        ({"source": "k", "max_offsets": 0}, "greater than or equal to 1"),
    ],
)
def test_wrong_inputs(keys: dict[str, Any], words: str) -> None:
    assert words in wrong(InputSettings, **keys)


def test_wrong_sections() -> None:
    assert "keep one of them" in wrong(SparkSettings, master="local", remote="sc://h:1")
    assert "sc://host:15002" in wrong(SparkSettings, remote="h:1")
    assert "hunter2" not in wrong(SparkSettings, remote="h:1", conf={"spark.ssl.keyPassword": "hunter2"})
    cluster = {"spark.submit.deployMode": "cluster"}
    assert "leave `spark.submit.deployMode` out" in wrong(SparkSettings, conf=cluster)
    SparkSettings.model_validate({"remote": "sc://h:1", "conf": cluster})  # the server's own affair
