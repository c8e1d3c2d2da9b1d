"""What a Spark source may have as an input, said at file:line when the file is read."""

from __future__ import annotations

from pathlib import Path

import pytest

from kiwi_gw.config import load
from kiwi_gw.errors import ConfigError

TEXT = """kafka: {bootstrap_servers: ["127.0.0.1:1"]}
sources:
  - {type: kafka, id: flights, topic: t-flights}
  - {type: counter, id: ticks, min: 0, interval_ms: 1000}
  - {type: spark, id: straight, inputs: {a: {source: flights}}, sql: SELECT 1}
  - {type: spark, id: sunk, inputs: {a: {source: flights}}, sql: SELECT 1, sink: {topic: t-sunk}}
  - type: spark
    id: s
    inputs:
      a: {source: flights}
      b: {INPUT}
    sql: SELECT 1
    SINK
"""


def problems(folder: Path, given: str, sink: str = "") -> list[str]:
    file = folder / "c.yml"
    file.write_text(TEXT.replace("INPUT", given).replace("SINK", sink))
    try:
        load(file, {})
    except ConfigError as error:
        return [str(problem).removeprefix(f"{file}:") for problem in error.problems]
    return []


@pytest.mark.parametrize("given", ["source: flights", "source: sunk", "format: csv, path: x"])
def test_topics_and_what_spark_reads_itself_are_inputs(tmp_path: Path, given: str) -> None:
    assert problems(tmp_path, given) == []


@pytest.mark.parametrize(
    ("given", "sink", "words"),
    [
        (
            "source: ticks",
            "",
            "Spark reads Kafka topics, and 'ticks' (type counter) is none: write its events to a Kafka "
            "topic, and name the source of type kafka that has the topic",
        ),
        (
            "source: straight",
            "sink: {topic: t-other}",
            "Spark reads Kafka topics, and 'straight' (type spark) is none: give that source a sink "
            "(`sink: {topic: ...}`)",
        ),
        ("source: nowhere", "", "there is no source 'nowhere'"),
    ],
)
def test_what_is_no_topic_is_refused_at_its_line(tmp_path: Path, given: str, sink: str, words: str) -> None:
    assert problems(tmp_path, given, sink) == [f"11: sources[4].inputs.b.source: {words}"]


def test_a_query_does_not_read_what_it_writes(tmp_path: Path) -> None:
    (found,) = problems(tmp_path, "source: sunk", "sink: {topic: t-flights}")
    assert found.startswith("10: sources[4].inputs.a.source: 'flights' is the topic 't-flights', to which")
    assert found.endswith("give its `sink` another topic")


def test_a_source_with_mistakes_of_its_own_is_said_once(tmp_path: Path) -> None:
    text = TEXT.replace("min: 0", "min: x")
    (tmp_path / "c.yml").write_text(text.replace("INPUT", "source: ticks").replace("SINK", ""))
    with pytest.raises(ConfigError) as caught:
        load(tmp_path / "c.yml", {})
    assert [problem.line for problem in caught.value.problems] == [4]
