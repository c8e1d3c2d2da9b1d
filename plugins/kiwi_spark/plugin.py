"""The hooks: source type, service and section `spark`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import cast

from kiwi_gw.api import (
    BY_PARTITION,
    ConfigSection,
    Decode,
    Finding,
    PluginContext,
    PositionCodec,
    Section,
    ServiceType,
    Shape,
    SourceType,
    hookimpl,
)
from kiwi_spark.figures import FIGURES
from kiwi_spark.findings import spark_check, spark_explain, vet, without_sink
from kiwi_spark.service import open_spark
from kiwi_spark.settings import SparkSettings, SparkSourceSettings
from kiwi_spark.shape import BY_BATCH, SHAPE
from kiwi_spark.sink import SERVICE, SINK_SHAPE, refuse_workers
from kiwi_spark.source import build_source


def _depends(settings: Section) -> Sequence[str]:
    return cast("SparkSourceSettings", settings).sources


def _has_sink(settings: Section) -> bool:
    return cast("SparkSourceSettings", settings).sink is not None


def _shape(settings: Section) -> Shape:
    return SINK_SHAPE if _has_sink(settings) else SHAPE


def _codec(settings: Section) -> PositionCodec:
    return BY_PARTITION if _has_sink(settings) else BY_BATCH


def _services(settings: Section) -> Sequence[str]:
    sink = cast("SparkSourceSettings", settings).sink
    if sink is None:
        return ("spark",)
    return (SERVICE, "spark") if sink.write else (SERVICE,)


SPARK = SourceType(
    "spark",
    SparkSourceSettings,
    build_source,
    _shape,
    services=_services,
    sections=_services,
    codec=_codec,
    replayable=_has_sink,
    depends=_depends,
    figures=FIGURES,
    decode=Decode(value="json", key="json"),
    start_ms=115_000,  # a JVM and its session, then the plan of a query: up to a minute on a busy machine
    vet=vet,
)


@hookimpl
def source_types() -> Sequence[SourceType]:
    return (SPARK,)


@hookimpl
def services() -> Sequence[ServiceType]:
    return (ServiceType("spark", open_spark, sections=("spark",)),)


@hookimpl
def config_sections() -> Sequence[ConfigSection]:
    return (ConfigSection("spark", SparkSettings),)


@hookimpl
def configure(context: PluginContext) -> None:
    """PluginError: several processes would each run a query whose results only one of them can have."""
    refuse_workers(context, without_sink(context.sources.values()))


@hookimpl
def check(
    context: PluginContext, sources: Sequence[Section]
) -> Callable[[], Awaitable[Sequence[Finding]]] | None:
    return spark_check(context, sources)


@hookimpl
def explain(
    context: PluginContext, sources: Sequence[Section], source_id: str
) -> Callable[[], Awaitable[str]] | None:
    return spark_explain(context, sources, source_id)
