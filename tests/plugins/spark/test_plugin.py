"""What the plugin declares, and what `check` and `explain` make of the driver's answers."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import trio

from kiwi_gw.api import BY_PARTITION, PluginContext, PluginError, SourceFailed
from kiwi_gw.plugin_manager import MissingExtraError, PluginManager
from kiwi_spark import plugin
from kiwi_spark.gateway import diagnostics
from kiwi_spark.gateway.positions import SCHEMA, offset_of
from kiwi_spark.gateway.service import SparkService
from kiwi_spark.gateway.sink import SINK_SCHEMA
from tests.plugins.spark.bench import context, fake_spark, settings


def test_the_plugin_declares_its_parts() -> None:
    manager = PluginManager()
    manager.register(plugin, "spark")
    kind = manager.source_types()["spark"]
    assert manager.service_types()["spark"].sections == ("spark",)
    assert not manager.config_sections()["spark"].required
    straight, sunk = settings({}), settings({}, sink={"topic": "t"})
    reading = settings({}, sink={"topic": "t", "write": False})
    found = [kind.description_of(item) for item in (straight, sunk, reading)]
    assert [(one.schema, one.replayable, one.services) for one in found] == [
        (SCHEMA, False, ("spark",)),
        (SINK_SCHEMA, True, ("kafka", "spark")),
        (SINK_SCHEMA, True, ("kafka",)),
    ]
    assert found[0].codec.dump({0: offset_of(3, 4)}) == {"batch": 3, "row": 4}
    assert [one.codec for one in found[1:]] == [BY_PARTITION, BY_PARTITION]
    assert list(found[0].depends) == ["in"]


def world(folder: Path, *sources: Mapping[str, Any], workers: int = 1) -> PluginContext:
    known = context(folder)
    own = {f"s{n}": settings({}, f"s{n}", **keys) for n, keys in enumerate(sources)}
    return replace(known, sources={**known.sources, **own}, workers=workers)


def test_several_workers_need_a_sink(tmp_path: Path) -> None:
    plugin.configure(world(tmp_path, {}))
    plugin.configure(world(tmp_path, {"sink": {"topic": "t"}}, workers=2))
    with pytest.raises(PluginError, match=r"'s1'.*sink"):
        plugin.configure(world(tmp_path, {"sink": {"topic": "t"}}, {}, workers=2))


def test_without_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    def gone(name: str) -> object:
        raise ModuleNotFoundError(f"No module named '{name}'", name="pyarrow")

    manager = PluginManager()
    monkeypatch.setattr("importlib.import_module", gone)
    with pytest.raises(MissingExtraError, match="pip install 'kiwi-gw\\[spark\\]'"):
        manager.load("spark")


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> None:
    @asynccontextmanager
    async def open_fake(context: PluginContext) -> AsyncIterator[SparkService]:
        async with fake_spark() as spark:
            yield spark

    monkeypatch.setattr(diagnostics, "open_spark", open_fake)


@pytest.mark.usefixtures("fake")
async def test_check(tmp_path: Path) -> None:
    wrong = {"sql": "SELECT\n nonsense"}
    lost = {"inputs": {"a": {"source": "in", "format": "avro", "avro_schema": "/no/such"}}}
    whole = world(tmp_path, {}, wrong, lost)
    check = plugin.check(whole, list(whole.sources.values()))
    assert check is not None
    with trio.fail_after(50):
        found = {(item.level, item.where, item.line): item.message for item in await check()}
    assert found["ok", ("spark",), 0] == "Spark 4.2.0-fake runs"
    assert found["ok", ("sources", "s0", "sql"), 0] == "columns: n bigint"
    assert found["ok", ("sources", "s0", "inputs", "a"), 0] == "schema of input a, inferred: n BIGINT"
    assert found["error", ("sources", "s1", "sql"), 1] == "[PARSE_SYNTAX_ERROR] near 'nonsense'"
    assert "avro_schema /no/such cannot be read" in found["error", ("sources", "s2"), 0]
    assert plugin.check(context(tmp_path), list(context(tmp_path).sources.values())) is None


@pytest.mark.usefixtures("fake")
async def test_check_has_several_queries_analysed_at_once(tmp_path: Path) -> None:
    """And says what was found in the order of the file."""
    whole = world(tmp_path, *[{"sql": '{"together": 5}'}] * 5)
    check = plugin.check(whole, list(whole.sources.values()))
    assert check is not None
    with trio.fail_after(50):
        found = [item.where[1] for item in await check() if item.message == "columns: n bigint"]
    assert found == ["s0", "s1", "s2", "s3", "s4"]


@pytest.mark.usefixtures("fake")
async def test_check_says_how_queries_run_and_counts_their_partitions(tmp_path: Path) -> None:
    elsewhere = {"sql": "real time", "sink": {"topic": "t", "write": False}}
    whole = world(tmp_path, {"sql": "real time"}, {"sql": "batches"}, elsewhere)
    few = plugin.check(whole, list(whole.sources.values()))
    whole = world(tmp_path, {"sql": "real time"}, {"sql": "real time"})
    many = plugin.check(whole, list(whole.sources.values()))
    assert few is not None
    assert many is not None
    with trio.fail_after(50):
        said = await few()
        found = {item.subject: item.message for item in said if item.message.startswith("runs")}
        wrong = [item for item in await many() if item.level == "error"]
    assert found == {
        "spark source s0": "runs in real time (3 partitions)",
        "spark source s1": "runs in micro-batches: it keeps state",
        "spark source s2": "runs in real time (3 partitions)",
    }
    assert not any(item.where == ("spark", "real_time_partitions") for item in said)
    assert [(item.where, item.message.split(":")[0]) for item in wrong] == [
        (
            ("spark", "real_time_partitions"),
            "the queries in real time read 6 partitions together, and there are threads for 4",
        )
    ]


@pytest.mark.usefixtures("fake")
async def test_explain(tmp_path: Path) -> None:
    whole = world(tmp_path, {}, {"sql": "nonsense"})
    sources = list(whole.sources.values())
    right, wrong = plugin.explain(whole, sources, "s0"), plugin.explain(whole, sources, "s1")
    assert right is not None
    assert wrong is not None
    assert plugin.explain(whole, sources, "in") is None
    with trio.fail_after(50):
        assert await right() == "a: schema inferred: n BIGINT\ncolumns:\n  n bigint\n\na plan\n"
        with pytest.raises(SourceFailed, match="PARSE_SYNTAX_ERROR"):
            await wrong()
