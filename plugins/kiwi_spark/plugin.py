"""The hooks: source type, service and section `spark`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import cast

from kiwi_gw.api import (
    ConfigSection,
    Finding,
    PluginContext,
    PluginError,
    Section,
    ServiceType,
    SourceType,
    hookimpl,
)
from kiwi_spark.findings import spark_check, spark_explain
from kiwi_spark.service import open_spark
from kiwi_spark.settings import SparkSettings, SparkSourceSettings
from kiwi_spark.shape import BY_BATCH, SHAPE
from kiwi_spark.source import build_source


def _depends(settings: Section) -> Sequence[str]:
    return cast("SparkSourceSettings", settings).sources


SPARK = SourceType(
    "spark",
    SparkSourceSettings,
    build_source,
    SHAPE,
    services=("spark",),
    sections=("spark",),
    codec=BY_BATCH,
    depends=_depends,
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
    if context.workers == 1:
        return
    for source in context.sources.values():
        if isinstance(source, SparkSourceSettings) and source.sink is None:
            raise PluginError(
                f"source {source.id!r}: with server.workers: {context.workers} every worker would run the "
                "query; add `sink: {topic: ...}` to it, or set server.workers to 1"
            )


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
