"""What `kiwi-gw check` finds out about queries, and what `kiwi-gw explain` shows: Spark's own words."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import cast

import trio

from kiwi_gw.api import Diagnostic, KiwiError, PluginContext, Section, SourceContext, SourceFailed
from kiwi_spark.gateway.query_run import RunEnd
from kiwi_spark.gateway.resolve import resolve, unreachable_reason
from kiwi_spark.gateway.service import SparkService, open_spark
from kiwi_spark.gateway.settings import SparkSettings, SparkSourceSettings
from kiwi_spark.gateway.sink import check_sinks, too_many_workers, writes_here
from kiwi_spark.protocol.messages import QueryAnalysed
from kiwi_spark.protocol.query_spec import FINAL

_ANALYSE_SECONDS = 60.0
_AT_ONCE = 8
"""Queries that Spark analyses at the same time. Much of it is waiting: for Kafka, and for one of them."""


def spark_check(
    context: PluginContext, sources: Sequence[Section]
) -> Callable[[], Awaitable[Sequence[Diagnostic]]] | None:
    """Return the check of all sources of type spark; None without such sources."""
    own = [source for source in sources if isinstance(source, SparkSourceSettings)]
    if not own:
        return None

    async def check() -> Sequence[Diagnostic]:
        diagnostics = [diagnostic for source in own for diagnostic in notes(source, context)]
        diagnostics += check_folder(cast("SparkSettings", context.section("spark")))
        if wrong := too_many_workers(context, without_sink(own)):
            diagnostics.append(Diagnostic("error", "spark", wrong, ("server", "workers")))
        topics = [source.sink.topic for source in own if source.sink is not None]
        diagnostics += await check_sinks(context, topics)
        async with open_spark(context) as spark:
            try:
                await spark.driver.ready()
            except SourceFailed as error:
                return [*diagnostics, Diagnostic("error", "spark", str(error), ("spark",))]
            diagnostics.append(Diagnostic("ok", "spark", f"Spark {spark.driver.spark} runs", ("spark",)))
            found: dict[str, list[Diagnostic]] = {}
            limit = trio.CapacityLimiter(_AT_ONCE)
            partitions = 0

            async def ask(source: SparkSourceSettings) -> None:
                nonlocal partitions
                async with limit:
                    found[source.id], read = await check_query(spark, source, context)
                    partitions += read if _runs_here(source, context) else 0

            async with trio.open_nursery() as nursery:
                for source in own:
                    if not unreachable_reason(source, context):  # which was said
                        nursery.start_soon(ask, source)
            if partitions > spark.driver.places:
                diagnostics.append(too_many_partitions(partitions, spark.driver.places))
        return [*diagnostics, *(diagnostic for source in own for diagnostic in found.get(source.id, ()))]

    return check


def spark_explain(
    context: PluginContext, sources: Sequence[Section], source_id: str
) -> Callable[[], Awaitable[str]] | None:
    """Return what shows the plan of a source of type spark; None for others."""
    own = [s for s in sources if isinstance(s, SparkSourceSettings) and s.id == source_id]
    if not own:
        return None

    async def explain() -> str:
        async with open_spark(context) as spark:
            answer = await _ask(spark, own[0], context, explain=True)
        if answer.error:
            raise SourceFailed(answer.error)
        columns = "\n".join(f"  {name} {kind}" for name, kind in answer.columns)
        inferred = "".join(f"{name}: schema inferred: {ddl}\n" for name, ddl in answer.schemas.items())
        said = "".join(f"{note}\n" for note in (how_it_runs(answer), *answer.notes) if note)
        return f"{said}{inferred}columns:\n{columns}\n\n{answer.plan.strip()}\n"

    return explain


def without_sink(sources: Iterable[Section]) -> list[str]:
    """Return ids of the sources of type spark whose results come straight to the gateway."""
    return [item.id for item in sources if isinstance(item, SparkSourceSettings) and item.sink is None]


def notes(source: SparkSourceSettings, context: PluginContext) -> list[Diagnostic]:
    """Return what can be said without Spark."""
    diagnostics = []
    if reason := unreachable_reason(source, context):
        diagnostics.append(Diagnostic("error", f"spark source {source.id}", reason, ("sources", source.id)))
    if source.sink is None and source.output_mode == "update":
        message = (
            "without a sink its results are in the gateway's window only: after a restart of the gateway "
            "it is empty, and a key is there again when it changes; `sink: {topic: ...}` keeps them"
        )
        mode = ("sources", source.id, "output_mode")
        diagnostics.append(Diagnostic("warning", f"spark source {source.id}", message, mode))
    return diagnostics


def check_folder(settings: SparkSettings) -> list[Diagnostic]:
    """Warn where other machines must have the folder of the checkpoints, too."""
    name = settings.checkpoint_dir
    if settings.runs_locally or ("://" in name and not name.startswith("file:")):
        return []
    whose = (
        "it is a folder of the Spark Connect server's machine, and of all its executors"
        if settings.remote is not None
        else "all machines of the cluster must have it, with the same files in it"
    )
    message = f"checkpoint_dir {name}: {whose}; a file system that they share (hdfs://, s3a://) is one"
    return [Diagnostic("warning", "spark", message, ("spark", "checkpoint_dir"))]


def how_it_runs(answer: QueryAnalysed) -> str:
    """Say whether a query will run in real time, and if not, why; empty where it says so itself."""
    if answer.real_time:
        partitions = f" ({answer.partitions} partitions)" if answer.partitions else ""
        return f"runs in real time{partitions}"
    return f"runs in micro-batches: {answer.batches_because}" if answer.batches_because else ""


def too_many_partitions(partitions: int, places: int) -> Diagnostic:
    """Say that the queries in real time read more partitions together than they may."""
    message = (
        f"the queries in real time read {partitions} partitions together, and there are threads for"
        f" {places}: raise real_time_partitions, or give some of them a `trigger` with `processing_time`"
    )
    return Diagnostic("error", "spark", message, ("spark", "real_time_partitions"))


async def check_query(
    spark: SparkService, source: SparkSourceSettings, context: PluginContext
) -> tuple[list[Diagnostic], int]:
    """Return what Spark says of one query, and how many partitions it reads in real time. Raises nothing for
    what it finds."""
    subject, where = f"spark source {source.id}", _where(source)
    try:
        answer = await _ask(spark, source, context)
    except KiwiError as error:
        return [Diagnostic("error", subject, str(error), ("sources", source.id))], 0
    if answer.error:
        return [_refused(source, answer)], 0
    columns = ", ".join(f"{name} {kind}" for name, kind in answer.columns)
    diagnostics = [Diagnostic("ok", subject, f"columns: {columns}", where)]
    for name, ddl in answer.schemas.items():
        message = f"schema of input {name}, inferred: {ddl}"
        diagnostics.append(Diagnostic("ok", subject, message, ("sources", source.id, "inputs", name)))
    if mode := how_it_runs(answer):
        diagnostics.append(Diagnostic("ok", subject, mode, where))
    diagnostics += [Diagnostic("warning", subject, note, where) for note in answer.notes]
    return diagnostics, answer.partitions


async def vet(settings: Section, context: SourceContext) -> list[Diagnostic]:
    """Find what would keep a query from working: what Spark refuses, and what it cannot analyse, for it
    fails at that or its driver dies of it. Nothing where something else does not answer (Kafka, for a schema
    that is inferred): that is no fault of the query.
    """
    source = cast("SparkSourceSettings", settings)
    if not _runs_here(source, context.plugins):
        return []
    spark = cast("SparkService", context.services["spark"])
    try:
        query = await trio.to_thread.run_sync(resolve, source, context.plugins)
        await spark.driver.ready()
    except KiwiError as error:
        return [Diagnostic("error", f"spark source {source.id}", str(error), ("sources", source.id))]
    answer = await spark.analyse(query)
    if isinstance(answer, RunEnd):
        why = answer.message
    elif answer.error_kind in FINAL:
        return [_refused(source, answer)]
    elif not answer.error or answer.error_kind == "unreachable":
        return []
    else:
        why = answer.error
    message = f"could not be analysed ({why}); the old one stays, reload again"
    return [Diagnostic("error", f"spark source {source.id}", message, _where(source))]


def _runs_here(source: SparkSourceSettings, context: PluginContext) -> bool:
    return source.sink is None or writes_here(source.sink.write, context)


def _where(source: SparkSourceSettings) -> tuple[str, ...]:
    return ("sources", source.id, "sql" if source.sql is not None else "transform")


def _refused(source: SparkSourceSettings, answer: QueryAnalysed) -> Diagnostic:
    subject = f"spark source {source.id}"
    where = ("sources", source.id, *answer.where) if answer.where else _where(source)
    return Diagnostic("error", subject, answer.error, where, max(0, answer.line - 1))


async def _ask(
    spark: SparkService, source: SparkSourceSettings, context: PluginContext, *, explain: bool = False
) -> QueryAnalysed:
    """Return Spark's analysis. KiwiError: there is none, and why."""
    query = await trio.to_thread.run_sync(resolve, source, context)
    await spark.driver.ready()
    with trio.move_on_after(_ANALYSE_SECONDS):
        answer = await spark.analyse(query, explain=explain)
        if isinstance(answer, RunEnd):
            raise SourceFailed(answer.message or "the Spark driver has ended")
        return answer
    raise SourceFailed(f"Spark has not analysed the query within {_ANALYSE_SECONDS:g} s")
