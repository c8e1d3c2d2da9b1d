"""The hooks: source type, service and section `spark`, and the engine for queries over whole sources."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from importlib.util import find_spec

from kiwi_gw.api import (
    BY_PARTITION,
    ConfigSection,
    Decode,
    Diagnostic,
    PluginContext,
    PluginError,
    QueryEngine,
    Section,
    ServiceType,
    SourceDescription,
    SourceType,
    hookimpl,
)
from kiwi_spark.gateway.diagnostics import spark_check, spark_explain, vet, without_sink
from kiwi_spark.gateway.engine_source import ENGINE
from kiwi_spark.gateway.metrics import SPARK_METRICS
from kiwi_spark.gateway.positions import SCHEMA, codec
from kiwi_spark.gateway.service import open_spark
from kiwi_spark.gateway.settings import SparkSettings, SparkSourceSettings, validate
from kiwi_spark.gateway.sink import SERVICE, SINK_SCHEMA, too_many_workers
from kiwi_spark.gateway.source import build_source

if find_spec("pyspark") is None:  # it is the driver that needs it: say so at once, not when one is started
    raise ModuleNotFoundError("No module named 'pyspark'", name="pyspark")

_COMMON = SourceDescription(SCHEMA, decode=Decode(value="json", key="json"))


def _describe(settings: SparkSourceSettings) -> SourceDescription:
    sink = settings.sink
    if sink is None:
        return replace(
            _COMMON,
            codec=codec(settings.topic_inputs),
            services=("spark",),
            sections=("spark",),
            depends=settings.sources,
        )
    needed = (SERVICE, "spark") if sink.write else (SERVICE,)
    return replace(
        _COMMON,
        schema=SINK_SCHEMA,
        codec=BY_PARTITION,
        replayable=True,
        services=needed,
        sections=needed,
        depends=settings.sources,
    )


SPARK = SourceType(
    "spark",
    SparkSourceSettings,
    build_source,
    _COMMON,
    _describe,
    start_ms=115_000,  # a JVM and its session, then the plan of a query: up to a minute on a busy machine
    metrics=SPARK_METRICS,
    validate=validate,
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


@hookimpl(optionalhook=True)
def query_engine() -> QueryEngine:
    return ENGINE


@hookimpl
def configure(context: PluginContext) -> None:
    """PluginError: several processes would each run a query whose results only one of them can have."""
    if wrong := too_many_workers(context, without_sink(context.sources.values())):
        raise PluginError(wrong)


@hookimpl
def check(
    context: PluginContext, sources: Sequence[Section]
) -> Callable[[], Awaitable[Sequence[Diagnostic]]] | None:
    return spark_check(context, sources)


@hookimpl
def explain(
    context: PluginContext, sources: Sequence[Section], source_id: str
) -> Callable[[], Awaitable[str]] | None:
    return spark_explain(context, sources, source_id)
