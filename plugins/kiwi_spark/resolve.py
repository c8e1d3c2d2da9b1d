"""From the configuration to what the driver is told: the session, and one query."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import cast

import trio

from kiwi_gw.api import KiwiError, PluginContext, Section, SourceFailed
from kiwi_spark.settings import InputSettings, SparkSettings, SparkSourceSettings, StartTime
from kiwi_spark.spec import Format, Query, Session, Sink, StreamInput, TableInput, Watermark

Scalar = str | int | float | bool


async def prepare(settings: SparkSettings) -> tuple[Session, Mapping[str, str]]:
    """The session, and what the driver's environment needs. KiwiError: there is no Java for it."""
    return await trio.to_thread.run_sync(_prepare, settings)


def _prepare(settings: SparkSettings) -> tuple[Session, Mapping[str, str]]:
    conf = {name: _text(value) for name, value in settings.conf.items()}
    folders = [os.path.abspath(folder) for folder in settings.python_path]
    if settings.remote is not None:  # the server has its own Java and its own jars
        return Session(remote=settings.remote, conf=conf, python_path=folders), {}
    from kiwi_spark.jars import connector_conf
    from kiwi_spark.java import java_home

    conf |= connector_conf(conf)
    conf.setdefault("spark.driver.maxResultSize", str(result_bytes(settings.batch_bytes)))
    conf.setdefault("spark.redaction.regex", "(?i)secret|password|token|access[.]?key|jaas|keystore")
    session = Session(master=settings.master, conf=conf, python_path=folders)
    return session, {"JAVA_HOME": str(java_home())}


def result_bytes(batch_bytes: int) -> int:
    """Return the most bytes that the tasks of one job may return, all together. batch_bytes: of a batch of
    results. It is more than that: what Spark adds has room, and so has a small table for a join.
    """
    return batch_bytes + 64 * 1024 * 1024


def resolve(
    settings: SparkSourceSettings, context: PluginContext, *, fresh: bool = False, bridge: str = ""
) -> Query:
    """The query of a source. Reads files (certificates, an Avro schema): call it in a worker thread.

    fresh: as in `Query`. bridge: where the driver finds sources that Spark cannot read itself.
    SourceFailed: something that it names cannot be used, in words.
    """
    spark = cast("SparkSettings", context.section("spark"))
    if reason := out_of_reach(settings, context):
        raise SourceFailed(reason)
    try:
        streams = {
            name: _stream(name, item, context, bridge, once=settings.trigger == "available_now")
            for name, item in settings.inputs.items()
            if item.source is not None
        }
        sink = _sink(settings, context)
    except SourceFailed:
        raise
    except KiwiError as error:
        raise SourceFailed(str(error)) from error
    trigger = settings.trigger
    return Query(
        source=settings.id,
        streams=streams,
        tables={n: _table(item) for n, item in settings.inputs.items() if item.source is None},
        watermarks={n: Watermark(item.column, item.delay) for n, item in settings.watermarks.items()},
        sql=settings.sql or "",
        transform=settings.transform or "",
        output_mode=settings.output_mode,
        trigger="" if trigger == "available_now" else trigger.processing_time,
        key=list(settings.key),
        checkpoint=_folder(spark.checkpoint_dir),
        batch_bytes=spark.batch_bytes,
        fresh=fresh or settings.on_other_checkpoint == "new",
        sink=sink,
    )


def out_of_reach(settings: SparkSourceSettings, context: PluginContext) -> str:
    """Why Spark, where it runs, cannot bring a source's results or read its inputs, and what to do; empty if
    it can."""
    spark = cast("SparkSettings", context.section("spark"))
    remote = spark.remote is not None
    if circle := _reads_its_own(settings, context):
        return circle
    if settings.sink is None and remote:
        return (
            "over Spark Connect results are made where this gateway cannot be reached: have them written to "
            "Kafka with `sink: {topic: ...}`"
        )
    if not remote and spark.conf.get("spark.submit.deployMode") == "cluster":
        return (
            "in deploy mode cluster the driver would be where this gateway cannot be reached, and Spark "
            "starts none of Python's there: leave `spark.submit.deployMode` out, or run it behind Spark "
            "Connect (`remote: sc://...`) and have results written to Kafka with `sink: {topic: ...}`"
        )
    if spark.here:
        return ""
    for name, item in settings.inputs.items():
        origin = context.sources.get(item.source or "")
        if origin is not None and topic_of(origin, context) is None:
            who = "a Spark Connect server" if remote else "a cluster"
            return (
                f"input {name!r}: the events of {item.source!r} are in this gateway only, where {who} cannot "
                "read them: use a source of type kafka (or of type spark with a sink), or `master: local[*]`"
            )
    return ""


def _reads_its_own(settings: SparkSourceSettings, context: PluginContext) -> str:
    """A query that has its own results as input never comes to an end of them."""
    for name, item in settings.inputs.items():
        origin = context.sources.get(item.source or "")
        if settings.sink is None or origin is None or topic_of(origin, context) != settings.sink.topic:
            continue
        return (
            f"input {name!r} ({item.source}) is the topic {settings.sink.topic!r}, to which the query "
            "writes: give its `sink` another topic"
        )
    return ""


def topic_of(source: Section, context: PluginContext) -> str | None:
    """The Kafka topic in which Spark finds the events of a source; None: only the gateway has them."""
    if getattr(source, "type", "") == "kafka":
        return cast("str", getattr(source, "topic"))  # noqa: B009  its class is another plugin's
    if isinstance(source, SparkSourceSettings) and source.sink is not None:
        return source.sink.topic
    return None


def _stream(
    name: str, item: InputSettings, context: PluginContext, bridge: str, *, once: bool
) -> StreamInput:
    source_id = item.source or ""
    source = context.sources.get(source_id)
    if source is None:
        known = ", ".join(context.sources) or "none"
        raise SourceFailed(f"input {name!r}: there is no source {source_id!r}; there is {known}")
    topic = topic_of(source, context)
    kafka = None
    if topic is not None:
        kafka = {**_kafka_options(context, consumer=True), "subscribe": topic}
    elif not bridge:
        raise SourceFailed(f"input {name!r}: Spark can read {source_id!r} only through the gateway's bridge")
    start = item.start.timestamp if isinstance(item.start, StartTime) else item.start
    subject = item.registry_subject or (f"{topic or source_id}-value" if item.registry else "")
    return StreamInput(
        source=source_id,
        format=cast("Format", item.stream_format),
        schema=item.ddl or "",
        start=start,
        kafka=kafka,
        bridge="" if kafka is not None else bridge,
        avro=_avro(name, item),
        registry=item.registry or "",
        registry_subject=subject,
        on_bad_record=item.on_bad_record,
        fail_on_data_loss=item.fail_on_data_loss,
        # Of a source that is read through the gateway Spark takes one batch then, and no more.
        max_offsets=0 if once and kafka is None else item.max_offsets,
    )


def _table(item: InputSettings) -> TableInput:
    options = {name: _text(value) for name, value in item.options.items()}
    return TableInput(
        format=item.format or "",
        path=item.path or "",
        schema=item.ddl or "",
        options=options,
        stream=item.stream,
        max_files=item.max_files if item.stream else 0,
    )


def _sink(settings: SparkSourceSettings, context: PluginContext) -> Sink | None:
    if settings.sink is None:
        return None
    return Sink(topic=settings.sink.topic, options=_kafka_options(context, consumer=False))


def _kafka_options(context: PluginContext, *, consumer: bool) -> dict[str, str]:
    """Options of Spark's Kafka source or sink: the Java client's, with `kafka.` before them."""
    if "kafka" not in context.sections:
        raise SourceFailed("results through Kafka need the section `kafka` with bootstrap_servers")
    from kiwi_kafka.java_options import java_consumer_options, java_options
    from kiwi_kafka.settings import KafkaSettings

    settings = context.section("kafka")
    assert isinstance(settings, KafkaSettings)  # noqa: S101  its plugin declares it
    options = java_consumer_options(settings) if consumer else java_options(settings)
    return {f"kafka.{name}": value for name, value in options.items()}


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
    """A local folder as an absolute path; one of another file system as it is."""
    return name if "://" in name or name.startswith("file:") else os.path.abspath(name)


def _text(value: Scalar) -> str:
    """As Spark reads it: `true`, not `True`."""
    return str(value).lower() if isinstance(value, bool) else str(value)
