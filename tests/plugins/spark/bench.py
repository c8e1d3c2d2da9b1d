"""Sources of type spark on a fake driver, as tests want them."""

from __future__ import annotations

import json
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast

from kiwi_gw.api import PluginContext, SourceContext
from kiwi_gw.model import Batch
from kiwi_gw.testing import MemoryPublisher
from kiwi_kafka.settings import KafkaSettings, KafkaSourceSettings
from kiwi_spark.gateway.driver_supervisor import Launch
from kiwi_spark.gateway.positions import SCHEMA
from kiwi_spark.gateway.service import SparkService, serving
from kiwi_spark.gateway.settings import SparkSettings, SparkSourceSettings
from kiwi_spark.gateway.source import SparkSource
from kiwi_spark.protocol.query_spec import SessionSpec

FAKE = Path(__file__).with_name("fake_driver.py")


def settings(plan: Mapping[str, Any], source_id: str = "s", **keys: Any) -> SparkSourceSettings:
    given: dict[str, Any] = {
        "type": "spark",
        "id": source_id,
        "inputs": {"a": {"source": "in"}},
        "sql": json.dumps(plan),
        **keys,
    }
    return SparkSourceSettings.model_validate(given)


def context(folder: Path, **section: Any) -> PluginContext:
    """A world with one other source, a topic that nobody reads here."""
    spark = SparkSettings(checkpoint_dir=str(folder), **section)
    kafka = KafkaSettings(bootstrap_servers="127.0.0.1:1")
    topic = KafkaSourceSettings(type="kafka", id="in", topic="in")
    return PluginContext({"spark": spark, "kafka": kafka}, sources={"in": topic})


def launch(mode: str = "", **keys: Any) -> Launch:
    async def prepare() -> tuple[SessionSpec, Mapping[str, str]]:
        return SessionSpec(master="local[1]"), {"FAKE_DRIVER": mode}

    keys = {"nice": 1, "start_seconds": 20.0, "max_restarts": 2} | keys
    return Launch(prepare=prepare, command=(sys.executable, str(FAKE)), **keys)


@asynccontextmanager
async def fake_spark(
    mode: str = "", *, stage_bytes: int = 1 << 20, **keys: Any
) -> AsyncIterator[SparkService]:
    async with serving(launch(mode, **keys), stage_bytes) as spark:
        yield spark


def source(plan: Mapping[str, Any], folder: Path, spark: SparkService, **keys: Any) -> SparkSource:
    return SparkSource(settings(plan, **keys), SourceContext("s", context(folder), {"spark": spark}), spark)


def memory(start: Mapping[int, int] | None = None) -> MemoryPublisher:
    return MemoryPublisher(SCHEMA, start)


def numbers(batches: list[Batch]) -> list[int]:
    """The values that were published, in their order."""
    return [json.loads(value)["n"] for batch in batches for value in batch.columns["value"]]  # type: ignore[arg-type]


def places(batches: list[Batch]) -> list[tuple[int, int]]:
    """Batch and row of every event."""
    return [
        (cast("int", number), cast("int", row))
        for batch in batches
        for number, row in zip(batch.columns["batch"], batch.columns["row"], strict=True)
    ]
