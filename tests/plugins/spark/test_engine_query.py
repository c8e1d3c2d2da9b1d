"""What queries of clients are refused before Spark is asked, and what the driver gets of the others."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from kiwi_gw.api import Decode, EngineLimits, EngineQuery, PluginContext, QueriedTable, Section
from kiwi_gw.config.load import load
from kiwi_kafka.settings import KafkaSettings
from kiwi_spark.gateway.engine_query import NOT_CONFIGURED, refusal, resolve_query
from kiwi_spark.gateway.settings import SparkSettings
from tests.plugins.spark.bench import context, settings

QUERY = EngineQuery("SELECT count(*) AS n FROM t0", {"t0": QueriedTable("in", Decode())})


def configured(folder: Path, **fields: object) -> PluginContext:
    return replace(context(folder), **{"written": frozenset({"spark"}), **fields})  # type: ignore[arg-type]


def test_a_query_over_a_topic_is_not_refused(tmp_path: Path) -> None:
    assert refusal(QUERY, configured(tmp_path)) is None


def test_a_source_of_type_spark_is_as_good_as_a_section(tmp_path: Path) -> None:
    there = context(tmp_path)
    assert refusal(QUERY, there) == NOT_CONFIGURED
    sources: dict[str, Section] = {**there.sources, "s": settings({})}
    assert refusal(QUERY, replace(there, sources=sources)) is None


def test_a_topic_that_a_query_writes_is_a_topic(tmp_path: Path) -> None:
    there = configured(tmp_path)
    written = settings({}, "late", sink={"topic": "late-flights"})
    there = replace(there, sources={**there.sources, "late": written, "other": settings({}, "other")})
    asked = EngineQuery("", {"t0": QueriedTable("late", Decode())})
    assert refusal(asked, there) is None
    assert resolve_query("q", asked, there).tables["t0"].topic == "late-flights"
    refused = refusal(EngineQuery("", {"t0": QueriedTable("other", Decode())}), there)
    assert refused == "other is no Kafka topic, and this query is for those only"


@pytest.mark.parametrize("source_id", ["s", "nowhere"])
def test_what_is_no_topic_is_refused(tmp_path: Path, source_id: str) -> None:
    there = configured(tmp_path)
    there = replace(there, sources={**there.sources, "s": settings({})})
    refused = refusal(EngineQuery("", {"t0": QueriedTable(source_id, Decode())}), there)
    assert refused == f"{source_id} is no Kafka topic, and this query is for those only"


def test_it_needs_a_spark_of_its_own_and_one_process(tmp_path: Path) -> None:
    there = configured(tmp_path)
    assert "(server.workers)" in (refusal(QUERY, replace(there, workers=3)) or "")
    remote = SparkSettings(checkpoint_dir=str(tmp_path), remote="sc://spark:15002")
    behind = replace(there, sections={**there.sections, "spark": remote})
    assert "Spark Connect" in (refusal(QUERY, behind) or "")


@pytest.mark.parametrize(
    ("more", "refused"),
    [
        ({}, None),
        ({"user": "ann", "password": "p"}, "asks for a password or has a certificate of its own"),
        (
            {"url": "https://127.0.0.1:1", "ca": "/ca.pem"},
            "asks for a password or has a certificate of its own",
        ),
    ],
)
def test_a_registry_has_to_answer_spark_too(
    tmp_path: Path, more: dict[str, str], refused: str | None
) -> None:
    there = configured(tmp_path)
    registry = {"url": "http://127.0.0.1:1", **more}
    kafka = KafkaSettings.model_validate({"bootstrap_servers": "127.0.0.1:1", "registry": registry})
    there = replace(there, sections={**there.sections, "kafka": kafka})
    asked = EngineQuery("", {"t0": QueriedTable("in", Decode("avro", registry=True))})
    said = refusal(asked, there)
    assert said is None if refused is None else refused in (said or "")
    assert refusal(QUERY, there) is None


def test_what_the_driver_gets(tmp_path: Path) -> None:
    table = QueriedTable("in", Decode("json", "long", "", "a INT"), 5, 9, 1_000, frozenset({2, 0}))
    limits = EngineLimits(seconds=1, result_bytes=2, offsets=3)
    asked = EngineQuery("SELECT 1 FROM t0", {"t0": table}, ("k",), live=True, limits=limits)
    found = resolve_query("q7", asked, configured(tmp_path))
    assert (found.source, found.sql, found.key, found.live) == ("q7", "SELECT 1 FROM t0", ["k"], True)
    assert (found.result_bytes, found.offsets, found.checkpoint) == (2, 3, str(tmp_path))
    one = found.tables["t0"]
    assert (one.source, one.topic, one.value, one.key, one.schema) == ("in", "in", "json", "long", "a INT")
    assert (one.first_offset, one.last_offset, one.first_time, one.partitions) == (5, 9, 1_000, [0, 2])
    assert one.kafka["kafka.bootstrap.servers"] == "127.0.0.1:1"
    assert one.kafka["kafka.isolation.level"] == "read_committed"


@pytest.mark.parametrize(
    ("text", "written"),
    [
        ("plugins: [spark]\nsources: [{type: counter, id: c, min: 0, interval_ms: 100}]\n", False),
        ("spark:\nsources: [{type: counter, id: c, min: 0, interval_ms: 100}]\n", True),
        ("spark: {nice: 0}\nsources: [{type: counter, id: c, min: 0, interval_ms: 100}]\n", True),
    ],
)
def test_a_section_is_known_to_be_in_the_file(tmp_path: Path, text: str, written: bool) -> None:
    file = tmp_path / "gateway.yaml"
    file.write_text(text)
    found = load(file, {}).context()
    assert ("spark" in found.written) is written
    assert (refusal(EngineQuery("", {}), found) is None) is written
