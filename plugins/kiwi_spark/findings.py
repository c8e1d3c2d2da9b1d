"""What `kiwi-gw check` finds out about queries, and what `kiwi-gw explain` shows: Spark's own words."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from functools import partial
from typing import cast

import trio

from kiwi_gw.api import Finding, KiwiError, PluginContext, Section, SourceFailed
from kiwi_spark.resolve import out_of_reach, resolve, topic_of
from kiwi_spark.runs import Over
from kiwi_spark.service import Spark, open_spark
from kiwi_spark.settings import SparkSettings, SparkSourceSettings
from kiwi_spark.sink import check_sinks, too_many_workers
from kiwi_spark.wire import Analysed

_ANALYSE_SECONDS = 60.0
_UNUSED = "check"
"""Stands for the bridge: a query that is only analysed reads nothing through it."""


def spark_check(
    context: PluginContext, sources: Sequence[Section]
) -> Callable[[], Awaitable[Sequence[Finding]]] | None:
    """The check of all sources of type spark; None without such sources."""
    own = [source for source in sources if isinstance(source, SparkSourceSettings)]
    if not own:
        return None

    async def check() -> Sequence[Finding]:
        findings = [finding for source in own for finding in notes(source, context)]
        findings += about_folder(cast("SparkSettings", context.section("spark")))
        if wrong := too_many_workers(context, without_sink(own)):
            findings.append(Finding("error", "spark", wrong, ("server", "workers")))
        topics = [source.sink.topic for source in own if source.sink is not None]
        findings += await check_sinks(context, topics)
        async with open_spark(context) as spark:
            try:
                await spark.driver.ready()
            except SourceFailed as error:
                return [*findings, Finding("error", "spark", str(error), ("spark",))]
            findings.append(Finding("ok", "spark", f"Spark {spark.driver.spark} runs", ("spark",)))
            for source in own:
                if not out_of_reach(source, context):  # which was said
                    findings += await check_query(spark, source, context)
        return findings

    return check


def spark_explain(
    context: PluginContext, sources: Sequence[Section], source_id: str
) -> Callable[[], Awaitable[str]] | None:
    """The plan of a source of type spark; None for others."""
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
        said = "".join(f"{note}\n" for note in answer.notes)
        return f"{said}{inferred}columns:\n{columns}\n\n{answer.plan.strip()}\n"

    return explain


def without_sink(sources: Iterable[Section]) -> list[str]:
    """Ids of the sources of type spark whose results come straight to the gateway."""
    return [item.id for item in sources if isinstance(item, SparkSourceSettings) and item.sink is None]


def notes(source: SparkSourceSettings, context: PluginContext) -> list[Finding]:
    """What can be said without Spark."""
    findings = []
    if reason := out_of_reach(source, context):
        findings.append(Finding("error", f"spark source {source.id}", reason, ("sources", source.id)))
    for name, item in source.inputs.items():
        if item.source is None or (origin := context.sources.get(item.source)) is None:
            continue
        if topic_of(origin, context) is None and item.source not in context.replayable:
            message = (
                f"input {name} ({item.source}) cannot be read again: its events are taken at most once when "
                "the gateway or Spark is started again"
            )
            where = ("sources", source.id, "inputs", name)
            findings.append(Finding("warning", f"spark source {source.id}", message, where))
    return findings


def about_folder(settings: SparkSettings) -> list[Finding]:
    """Whether others than this machine must have the folder of the checkpoints."""
    name = settings.checkpoint_dir
    if settings.here or ("://" in name and not name.startswith("file:")):
        return []
    whose = (
        "it is a folder of the Spark Connect server's machine, and of all its executors"
        if settings.remote is not None
        else "all machines of the cluster must have it, with the same files in it"
    )
    message = f"checkpoint_dir {name}: {whose}; a file system that they share (hdfs://, s3a://) is one"
    return [Finding("warning", "spark", message, ("spark", "checkpoint_dir"))]


async def check_query(spark: Spark, source: SparkSourceSettings, context: PluginContext) -> list[Finding]:
    """What Spark says of one query. Raises nothing for what it finds."""
    subject = f"spark source {source.id}"
    part = "sql" if source.sql is not None else "transform"
    where = ("sources", source.id, part)
    try:
        answer = await _ask(spark, source, context)
    except KiwiError as error:
        return [Finding("error", subject, str(error), ("sources", source.id))]
    if answer.error:
        return [Finding("error", subject, answer.error, where, max(0, answer.line - 1))]
    columns = ", ".join(f"{name} {kind}" for name, kind in answer.columns)
    findings = [Finding("ok", subject, f"columns: {columns}", where)]
    for name, ddl in answer.schemas.items():
        message = f"schema of input {name}, inferred: {ddl}"
        findings.append(Finding("ok", subject, message, ("sources", source.id, "inputs", name)))
    findings += [Finding("warning", subject, note, where) for note in answer.notes]
    return findings


async def _ask(
    spark: Spark, source: SparkSourceSettings, context: PluginContext, *, explain: bool = False
) -> Analysed:
    """Spark's analysis. KiwiError: there is none, and why."""
    query = await trio.to_thread.run_sync(partial(resolve, source, context, bridge=_UNUSED))
    await spark.driver.ready()
    with trio.move_on_after(_ANALYSE_SECONDS):
        answer = await spark.analyse(query, explain=explain)
        if isinstance(answer, Over):
            raise SourceFailed(answer.message or "the Spark driver has ended")
        return answer
    raise SourceFailed(f"Spark has not analysed the query within {_ANALYSE_SECONDS:g} s")
