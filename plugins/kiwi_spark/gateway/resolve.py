"""Makes what the driver needs of the configuration: the session, and the query of a source."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import cast

import msgspec
import structlog
import trio

from kiwi_gw.api import KiwiError, PluginContext, SourceFailed
from kiwi_spark.gateway.settings import (
    InputSettings,
    SparkSettings,
    SparkSourceSettings,
    StartTime,
    TriggerSettings,
    topic_of,
)
from kiwi_spark.protocol.query_spec import (
    EPOCH,
    MICRO_BATCH,
    Format,
    QuerySpec,
    SessionSpec,
    SinkSpec,
    StreamInput,
    TableInput,
    Watermark,
)

log = structlog.get_logger("kiwi_spark")

Scalar = str | int | float | bool


async def prepare(settings: SparkSettings) -> tuple[SessionSpec, Mapping[str, str]]:
    """Return the session, and what the driver's environment needs.

    Fetches the connectors, once, unless the configuration names its own, and has our own classes compiled,
    once, where they did not come with the package. KiwiError: there is no Java for it. OSError: the jars
    cannot be fetched now.
    """
    session = _session(settings)
    if session.remote:  # the server has its own Java and its own jars
        return session, {}
    from kiwi_spark.java.class_sharing import sharing_environment
    from kiwi_spark.java.classes import classes_jar, jars_conf
    from kiwi_spark.java.connector import connector_conf, fetch_connector
    from kiwi_spark.java.home import java_home
    from kiwi_spark.java.jar_set import FetchFailed, default_cache

    def report(line: str) -> None:
        log.info("spark jars", said=line)

    home = await trio.to_thread.run_sync(java_home)
    try:
        if connector_conf(session.conf):
            await fetch_connector(report=report)
        await classes_jar(report=report)
    except FetchFailed as error:
        raise OSError(str(error)) from error
    conf = session.conf | await trio.to_thread.run_sync(jars_conf, session.conf)
    # Of all tasks of a job. More than a batch: what Spark adds has room, and so has a small table for a join.
    conf.setdefault("spark.driver.maxResultSize", str(settings.batch_bytes + 64 * 1024 * 1024))
    conf.setdefault("spark.redaction.regex", "(?i)secret|password|token|access[.]?key|jaas|keystore")
    shared = await trio.to_thread.run_sync(sharing_environment, home, default_cache())
    return msgspec.structs.replace(session, conf=conf), {"JAVA_HOME": str(home), **shared}


def _session(settings: SparkSettings) -> SessionSpec:
    conf = {name: _text(value) for name, value in settings.conf.items()}
    folders = [os.path.abspath(folder) for folder in settings.python_path]
    master = settings.master if settings.remote is None else ""
    return SessionSpec(
        master=master,
        real_time_partitions=settings.real_time_partitions,
        remote=settings.remote or "",
        conf=conf,
        python_path=folders,
    )


def resolve(settings: SparkSourceSettings, context: PluginContext, *, fresh: bool = False) -> QuerySpec:
    """Make the query of a source. Reads files (certificates, an Avro schema): call it in a worker thread.

    fresh: as in `QuerySpec`. SourceFailed: something that it names cannot be used, in words.
    """
    spark = cast("SparkSettings", context.section("spark"))
    if reason := unreachable_reason(settings, context):
        raise SourceFailed(reason)
    try:
        streams = {
            name: _stream(name, item, item.source, context)
            for name, item in settings.inputs.items()
            if item.source is not None
        }
        sink = _sink(settings, context)
    except KiwiError as error:
        raise SourceFailed(str(error)) from error
    trigger = settings.trigger
    return QuerySpec(
        source=settings.id,
        streams=streams,
        tables={n: _table(item) for n, item in settings.inputs.items() if item.source is None},
        watermarks={n: Watermark(item.column, item.delay) for n, item in settings.watermarks.items()},
        sql=settings.sql or "",
        transform=settings.transform or "",
        output_mode=settings.output_mode,
        trigger=_trigger(trigger),
        real_time=settings.real_time,
        epoch=trigger.checkpoint_interval if isinstance(trigger, TriggerSettings) else EPOCH,
        key=list(settings.key),
        checkpoint=checkpoint_folder(context),
        batch_bytes=spark.batch_bytes,
        fresh=fresh or settings.on_other_checkpoint == "new",
        sink=sink,
    )


def _trigger(trigger: TriggerSettings | str) -> str:
    if isinstance(trigger, TriggerSettings):
        return trigger.processing_time or MICRO_BATCH
    return MICRO_BATCH if trigger == "auto" else ""


def unreachable_reason(settings: SparkSourceSettings, context: PluginContext) -> str:
    """Return why Spark, where it runs, cannot bring a source's results, and what to do; empty if it can."""
    if settings.sink is not None or cast("SparkSettings", context.section("spark")).remote is None:
        return ""
    return (
        "over Spark Connect results are made where this gateway cannot be reached: have them written to "
        "Kafka with `sink: {topic: ...}`"
    )


def _stream(name: str, item: InputSettings, source_id: str, context: PluginContext) -> StreamInput:
    topic = topic_of(context.sources[source_id]) or ""
    start = item.start.timestamp if isinstance(item.start, StartTime) else item.start
    return StreamInput(
        source=source_id,
        format=cast("Format", item.stream_format),
        schema=item.ddl or "",
        start=start,
        kafka={**kafka_options(context, consumer=True), "subscribe": topic},
        avro=_avro(name, item),
        registry=item.registry or "",
        registry_subject=item.registry_subject or (f"{topic}-value" if item.registry else ""),
        on_bad_record=item.on_bad_record,
        fail_on_data_loss=item.fail_on_data_loss,
        max_offsets=item.max_offsets,
    )


def _table(item: InputSettings) -> TableInput:
    options = {name: _text(value) for name, value in item.options.items()}
    return TableInput(
        format=item.format or "",
        path=item.path or "",
        schema=item.ddl or "",
        options=options,
        stream=item.stream,
    )


def _sink(settings: SparkSourceSettings, context: PluginContext) -> SinkSpec | None:
    if settings.sink is None:
        return None
    return SinkSpec(topic=settings.sink.topic, options=kafka_options(context, consumer=False))


def kafka_options(context: PluginContext, *, consumer: bool) -> dict[str, str]:
    """Return options of Spark's Kafka source or sink: the Java client's, with `kafka.` before them."""
    from kiwi_kafka.java_options import java_consumer_options, java_options
    from kiwi_kafka.settings import KafkaSettings

    settings = context.section("kafka")
    assert isinstance(settings, KafkaSettings)  # noqa: S101  its plugin declares it
    options = java_consumer_options(settings) if consumer else java_options(settings)
    return {f"kafka.{name}": value for name, value in options.items()}


def checkpoint_folder(context: PluginContext) -> str:
    """Return the folder in which queries keep what they need."""
    return _folder(cast("SparkSettings", context.section("spark")).checkpoint_dir)


def _avro(name: str, item: InputSettings) -> str:
    if item.avro_schema is None:
        return ""
    try:
        return item.avro_schema.read_text()
    except (OSError, ValueError) as error:
        raise SourceFailed(
            f"input {name!r}: avro_schema {item.avro_schema} cannot be read: {error}"
        ) from error


def _folder(name: str) -> str:
    """Return a local folder as an absolute path; one of another file system as it is."""
    return name if "://" in name or name.startswith("file:") else os.path.abspath(name)


def _text(value: Scalar) -> str:
    """Write a value as Spark reads it: `true`, not `True`."""
    return str(value).lower() if isinstance(value, bool) else str(value)
