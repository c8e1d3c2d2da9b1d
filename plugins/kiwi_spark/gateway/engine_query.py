"""Makes what the driver needs of a query over whole sources, or says why there is none."""

from __future__ import annotations

from typing import cast

from kiwi_gw.api import EngineQuery, KiwiError, PluginContext, QueriedTable, SourceFailed
from kiwi_spark.gateway.resolve import checkpoint_folder, kafka_options
from kiwi_spark.gateway.settings import SparkSettings, SparkSourceSettings, topic_of
from kiwi_spark.protocol.range_query import RangeQuery, TopicTable

NOT_CONFIGURED = "this query needs Spark, which is not configured here: section spark"


def refusal(query: EngineQuery, context: PluginContext) -> str | None:
    """Return why a query cannot be run in this gateway: `QueryEngine.refusal`."""
    if not _is_configured(context):
        return NOT_CONFIGURED
    if cast("SparkSettings", context.section("spark")).remote is not None:
        return "this query needs a Spark of this gateway, and here it is behind Spark Connect (spark.remote)"
    if context.workers > 1:
        return f"this query needs a gateway of one process, and here are {context.workers} (server.workers)"
    for table in query.tables.values():
        source = context.sources.get(table.source_id)
        if source is None or topic_of(source) is None:
            return f"{table.source_id} is no Kafka topic, and this query is for those only"
        if table.decode.registry and _registry(context) is None:
            words = (
                "whose registry asks for a password or has a certificate of its own: Spark cannot ask that"
            )
            return f"{table.source_id} has values in Avro, {words}"
    return None


def _registry(context: PluginContext) -> str | None:
    """Return the address of the cluster's schema registry, if anyone may ask it."""
    from kiwi_kafka.settings import KafkaSettings

    settings = context.sections.get("kafka")
    found = settings.registry if isinstance(settings, KafkaSettings) else None
    return None if found is None or found.user is not None or found.ca is not None else found.url


def _is_configured(context: PluginContext) -> bool:
    """Return whether the file says something of Spark: the plugin may be loaded for another reason."""
    sources = context.sources.values()
    return "spark" in context.written or any(isinstance(one, SparkSourceSettings) for one in sources)


def resolve_query(source_id: str, query: EngineQuery, context: PluginContext) -> RangeQuery:
    """Write a query as the driver wants it. Reads files (certificates): call it in a worker thread.
    SourceFailed: something cannot be used, in words."""
    try:
        tables = {name: _table(table, context) for name, table in query.tables.items()}
    except KiwiError as error:
        raise SourceFailed(str(error)) from error
    return RangeQuery(
        source=source_id,
        sql=query.sql,
        tables=tables,
        key=list(query.key),
        live=query.live,
        checkpoint=checkpoint_folder(context),
        result_bytes=query.limits.result_bytes,
        offsets=query.limits.offsets,
    )


def _table(table: QueriedTable, context: PluginContext) -> TopicTable:
    decode = table.decode
    return TopicTable(
        source=table.source_id,
        topic=topic_of(context.sources[table.source_id]) or "",
        kafka=kafka_options(context, consumer=True),
        value=decode.value,
        key=decode.key,
        schema=decode.fields,
        avro=decode.avro_schema,
        registry=(_registry(context) or "") if decode.registry else "",
        first_offset=table.first_offset,
        last_offset=table.last_offset,
        first_time=table.first_time,
        partitions=None if table.partitions is None else sorted(table.partitions),
    )
