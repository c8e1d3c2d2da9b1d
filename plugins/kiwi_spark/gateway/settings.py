"""What a configuration says about Spark: the section `spark` and a source of type `spark`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Literal, Self, cast

from pydantic import BeforeValidator, ConfigDict, Field, field_validator, model_validator

from kiwi_gw.api import Bytes, Milliseconds, Section
from kiwi_spark.protocol.query_spec import BATCH_BYTES, EPOCH, RealTime

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_FUNCTION = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*")
_INTERVAL = re.compile(r"(?i)(\d+) ?(ms|milliseconds?|s|seconds?|m|minutes?|h|hours?|days?|weeks?)")
_SPARK_UNITS = {"ms": "milliseconds", "s": "seconds", "m": "minutes", "h": "hours"}
_SECONDS = {"milliseconds": 0.001, "millisecond": 0.001, "seconds": 1, "second": 1}
"""Of the units that may make a too short interval."""

SHORTEST_EPOCH_S = 5
"""Spark's own: `spark.sql.streaming.realTimeMode.minBatchDuration`."""

FILE_FORMATS = ("csv", "json", "parquet", "orc", "avro", "text")
STREAM_FORMATS = ("json", "avro", "string", "binary", "raw")


def _interval(value: object) -> object:
    """Write a duration as Spark does; ours (`500ms`) are understood, too."""
    text = f"{value} ms" if type(value) is int else value
    found = _INTERVAL.fullmatch(text.strip()) if isinstance(text, str) else None
    if found is None:
        raise ValueError(f"{value!r} is no duration; write `500 ms`, `10 seconds`, `1 hour`, `30 days`")
    number, unit = found.groups()
    return f"{number} {_SPARK_UNITS.get(unit.lower(), unit.lower())}"


_Interval = Annotated[str, BeforeValidator(_interval)]


class SparkSettings(Section):
    """The Spark driver that runs the queries of all sources of type `spark`."""

    model_config = ConfigDict(hide_input_in_errors=True)  # conf may hold passwords

    master: str = "local[*]"
    """Where queries run: `local[*]` (in the driver, on all cores), `spark://host:7077`, `yarn`,
    `k8s://...`."""
    real_time_partitions: Annotated[int, Field(ge=0, le=1000)] = 16
    """Partitions of topics that all queries in real time may read together. Each holds a thread of the
    driver: they are added to those of `local[*]` or `local[2]`. 0: no query runs in real time."""
    remote: str | None = None
    """A Spark Connect server instead of `master`: `sc://host:15002`. Its sources need a `sink`, and the
    server the connectors for Kafka and Avro."""
    conf: dict[str, str | int | float | bool] = Field(default_factory=dict)
    """Spark's own configuration, by its own names (`spark.sql.shuffle.partitions`). The
    connectors for Kafka and Avro are added to `spark.jars`, unless they are named there or in
    `spark.jars.packages`."""
    checkpoint_dir: str = "./state"
    """The folder (any file system that Spark knows) in which queries keep where they are, and their state:
    with a cluster one that all its machines share, with `remote` one of the server's."""
    stage_bytes: Bytes = 64 * 1024 * 1024
    """Batches of results wait in memory until they are whole: all together at most so much, the rest in
    temporary files."""
    batch_bytes: Annotated[Bytes, Field(ge=1)] = BATCH_BYTES
    """Most bytes of one batch of results that come to this gateway (without a `sink`). A larger one ends its
    query with an error, and nothing of it is sent. `spark.driver.maxResultSize` is 64 MiB more, unless `conf`
    says otherwise."""
    max_restarts: Annotated[int, Field(ge=0)] = 5
    """How often in a row a query that fails without having brought a batch is started again (so is a driver
    that has never run)."""
    restart_pause_ms: Annotated[Milliseconds, Field(ge=100)] = 30_000
    """The longest pause before a driver that has ended is started again. Pauses begin with 500 ms, double,
    and begin anew after a driver that ran for 30 s."""
    python_path: list[str] = Field(default_factory=list)
    """Folders in which the modules of `transform` are looked for."""
    nice: Annotated[int, Field(ge=0, le=19)] = 5
    """How nice the driver is to others who want the processor, as the command `nice` counts: 19 is the
    nicest, and 0 what processes usually are. The gateway's own is not added; the driver is no less nice."""
    start_timeout_ms: Annotated[Milliseconds, Field(ge=1000)] = 180_000
    """How long the driver may take until it can run queries (the first time it may fetch connectors)."""

    @field_validator("remote")
    @classmethod
    def _connect(cls, value: str | None) -> str | None:
        if value is not None and not value.startswith("sc://"):
            raise ValueError("must be the address of a Spark Connect server: sc://host:15002")
        if value is not None and ";session_id=" in value:
            raise ValueError("session_id is the gateway's to choose: every source has a session of its own")
        return value

    @model_validator(mode="after")
    def _one_place(self) -> Self:
        # Not `model_fields_set`: what `config show` prints has every default, and means the same.
        if self.remote is not None and self.master != type(self).model_fields["master"].default:
            raise ValueError("master and remote are two places to run queries: keep one of them")
        if self.remote is None and self.conf.get("spark.submit.deployMode") == "cluster":
            raise ValueError(
                "in deploy mode cluster the driver would be where this gateway cannot be reached, and Spark "
                "starts none of Python's there: leave `spark.submit.deployMode` out, or run it behind Spark "
                "Connect (`remote: sc://...`) and have results written to Kafka with `sink: {topic: ...}`"
            )
        return self

    @property
    def runs_locally(self) -> bool:
        """Return whether all of Spark runs on this machine."""
        return self.remote is None and self.master.startswith("local")


class StartTime(Section):
    """A place in a stream by time."""

    timestamp: Annotated[int, Field(ge=0)]
    """The first record at or after this time, in ms since the epoch."""


class InputSettings(Section):
    """One input of a query, under the name that it has there: a stream (`source`, or files with `stream`) or
    a static table."""

    model_config = ConfigDict(populate_by_name=True)

    source: str | None = None
    """The id of a source of this gateway whose events are in a Kafka topic (type `kafka`, or `spark` with a
    `sink`): it is read as a stream."""
    format: str | None = None
    """Of a stream: how values are decoded (`json`, the default, `avro`, `string`, `binary`, `raw`). Of a
    table: as Spark reads it (`csv`, `parquet`, `jdbc`)."""
    ddl: str | None = Field(None, alias="schema")
    """The columns as in CREATE TABLE: `carrier STRING, delay DOUBLE`. Without it they are inferred."""
    start: Literal["latest", "earliest"] | StartTime = "latest"
    """Where a stream begins when the query has no checkpoint yet (later it goes on where that is, and this
    says nothing). `latest`: with what comes from now on; what is in the topic already is not read.
    `earliest`: with the oldest record that the topic keeps. Or a mapping with a `timestamp`."""
    avro_schema: Path | None = None
    """A file with the Avro schema (format `avro`)."""
    registry: str | None = None
    """The URL of a Schema Registry instead of `avro_schema`: values begin with the id of their schema."""
    registry_subject: str | None = None
    """The subject there; default: the topic with `-value`."""
    on_bad_record: Literal["drop", "null", "fail"] = "drop"
    """A record that cannot be decoded is left out and counted, has null in every column, or ends the
    query."""
    fail_on_data_loss: bool = True
    """Whether the query ends if records that it has not read yet are gone; else it goes on without them."""
    max_offsets: Annotated[int, Field(ge=1)] = 100_000
    """Most records of a stream in one micro-batch. In real time it says nothing."""
    path: str | None = None
    """Where a table is, or the folder of the files of a stream."""
    stream: bool = False
    """Of files at `path`: they are read as a stream, each once, those that are there and those that come, at
    most 1,000 in one micro-batch (`options: {maxFilesPerTrigger: 10}` says otherwise). Else they are a table,
    which is read as a whole."""
    options: dict[str, str | int | float | bool] = Field(default_factory=dict)
    """Options for reading a table, by Spark's names (`header: true`)."""

    @model_validator(mode="after")
    def _is_one_thing(self) -> Self:
        # Not `model_fields_set`: what `config show` prints has every default, and means the same.
        fields = type(self).model_fields
        given = {
            name
            for name in fields
            if getattr(self, name) != fields[name].get_default(call_default_factory=True)
        }
        if self.source is None:
            self._is_table(given)
        else:
            self._is_stream(self.source, given)
        return self

    def _is_table(self, given: set[str]) -> None:
        if self.format is None:
            raise ValueError(
                "an input is a stream (name the `source`) or a table (name its `format`, such as csv)"
            )
        if self.format in STREAM_FORMATS and not (self.path or self.options):
            raise ValueError(f"format {self.format} is of a stream or a file: add `source` or `path`")
        streams_only = ("start", "on_bad_record", "fail_on_data_loss", "max_offsets", "avro_schema")
        wrong = [key for key in (*streams_only, "registry", "registry_subject") if key in given]
        if wrong:
            raise ValueError(f"{wrong[0]} is for sources; a table has format, path, options and schema")
        if self.stream and (self.path is None or self.format not in FILE_FORMATS):
            raise ValueError(f"a stream of files has a path, and as its format {', '.join(FILE_FORMATS)}")

    def _is_stream(self, source: str, given: set[str]) -> None:
        form = self.stream_format
        if form not in STREAM_FORMATS:
            raise ValueError(f"{form!r} is not a format of a stream: choose {', '.join(STREAM_FORMATS)}")
        for key in ("path", "options", "stream"):
            if key in given:
                raise ValueError(f"{key} is for tables; {source!r} is read as a stream")
        avro = [key for key in ("avro_schema", "registry") if getattr(self, key) is not None]
        if form == "avro" and len(avro) != 1:
            raise ValueError("format avro needs avro_schema (a file) or registry (a URL), one of them")
        if form != "avro" and (avro or self.registry_subject is not None):
            raise ValueError("avro_schema and registry need format: avro")
        if self.registry_subject is not None and self.registry is None:
            raise ValueError("registry_subject needs registry")
        if self.ddl is not None and form != "json":
            raise ValueError(f"schema is for format json; {form} has its own columns")

    @property
    def streams(self) -> bool:
        """Return whether it is read as a stream."""
        return self.source is not None or self.stream

    @property
    def stream_format(self) -> str:
        """The format of a stream."""
        return self.format or "json"


class WatermarkSettings(Section):
    """How late events of an input may come."""

    column: str
    """The column with the time of the event."""
    delay: _Interval
    """How much older than the newest an event may be before it is left out: `1 hour`."""


class TriggerSettings(Section):
    """When Spark looks for new input: one of `processing_time` and `real_time`."""

    processing_time: _Interval | None = None
    """In micro-batches, at most so often: `500 ms`."""
    real_time: bool = False
    """All the time: every record makes its rows at once. For queries over Kafka topics that keep no state and
    need no shuffle, in SQL or in functions of DataFrames without Python in them."""
    checkpoint_interval: _Interval = EPOCH
    """How often a query in real time notes how far it is, 5 seconds or more. What it has read since is read
    again after a start, and its rows are dropped; nothing comes for some 0.2 s meanwhile."""

    @model_validator(mode="after")
    def _one(self) -> Self:
        if (self.processing_time is None) is not self.real_time:
            raise ValueError("a trigger is processing_time or real_time: write one of them")
        if not self.real_time and self.checkpoint_interval != EPOCH:
            raise ValueError("checkpoint_interval is for real_time")
        number, unit = self.checkpoint_interval.split()
        if int(number) * _SECONDS.get(unit, 60) < SHORTEST_EPOCH_S:
            raise ValueError(
                f"checkpoint_interval: {self.checkpoint_interval} is too short, Spark takes "
                f"{SHORTEST_EPOCH_S} seconds or more"
            )
        return self


class SinkSettings(Section):
    """Where results go instead of straight to the gateway."""

    topic: str
    """A Kafka topic: results are written there, and the source is that topic."""
    write: bool = True
    """False: this gateway only reads the topic; another one runs the query."""

    @field_validator("topic")
    @classmethod
    def _topic_name(cls, value: str) -> str:
        if not re.fullmatch(r"[A-Za-z0-9._-]{1,249}", value) or value in (".", ".."):
            raise ValueError(
                f"{value!r} is not a topic name: 1 to 249 letters, digits, dots, underscores and hyphens are"
            )
        return value


class SparkSourceSettings(Section):
    """A source of type `spark`: the results of a streaming query."""

    type: Literal["spark"]
    """The type of the source."""
    id: str
    """What clients call the source."""
    inputs: dict[str, InputSettings]
    """What the query reads, by the names that it uses for them."""
    watermarks: dict[str, WatermarkSettings] = Field(default_factory=dict)
    """By input: how late its events may come. What is grouped by time needs one."""
    sql: str | None = None
    """The query, in Spark SQL."""
    transform: str | None = None
    """Instead of `sql`: a function as `module:function`, from a dict of DataFrames to one."""
    output_mode: Literal["append", "update", "complete"] = "append"
    """Which rows of a changing result are sent: those that are final, those that changed, or all."""
    trigger: TriggerSettings | Literal["auto", "available_now"] = "auto"
    """When Spark looks for new input. `auto`: in real time where Spark can run the query so, else every 500
    ms. `available_now`: what there is, then the source ends. Or a mapping with one of the two below."""
    key: list[str] = Field(default_factory=list)
    """Columns of the result that make the `key` of an event."""
    sink: SinkSettings | None = None
    """Results go through Kafka: they can then be read again, and served by many gateways."""
    on_other_checkpoint: Literal["refuse", "new"] = "refuse"
    """What happens at the start if the checkpoint is of another query or Spark: the source fails and says
    so, or a new one is begun and the old one left. (A query that a reload altered begins a new one.)"""

    @model_validator(mode="after")
    def _belongs_together(self) -> Self:
        if (self.sql is None) == (self.transform is None):
            raise ValueError("a query is sql or transform (module:function): write one of them")
        if self.sql is not None and not self.sql.strip():
            raise ValueError("sql is empty: write a SELECT over the inputs")
        if self.transform is not None and _FUNCTION.fullmatch(self.transform) is None:
            raise ValueError(
                f"transform {self.transform!r} is not module:function, such as my_pipelines:late_flights"
            )
        if self.trigger != "available_now" and not any(item.streams for item in self.inputs.values()):
            raise ValueError(
                "a query needs at least one stream among its inputs: one with `source` or `stream: true`; of "
                "tables alone it is computed once, with `trigger: available_now`"
            )
        for name in self.inputs:
            if _NAME.fullmatch(name) is None:
                raise ValueError(f"{name!r} cannot be a table in SQL: use letters, digits and underscores")
        for name in self.watermarks:
            item = self.inputs.get(name)
            if item is None or not item.streams:
                streams = ", ".join(key for key, value in self.inputs.items() if value.streams)
                raise ValueError(f"watermarks names {name!r}, which is no stream here; there is {streams}")
        if len(set(self.key)) != len(self.key):
            raise ValueError("key names a column twice")
        if isinstance(self.trigger, TriggerSettings) and self.trigger.real_time:
            self._can_be_real_time()
        return self

    def _can_be_real_time(self) -> None:
        if self.output_mode == "complete":
            raise ValueError("real_time sends rows as they come: output_mode complete is none of it")
        if any(item.stream for item in self.inputs.values()):
            raise ValueError("real_time reads Kafka topics, and no streams of files")
        if not all(item.fail_on_data_loss for item in self.inputs.values()):
            raise ValueError("real_time ends where records are gone: leave `fail_on_data_loss` out")

    @property
    def topic_inputs(self) -> list[str]:
        """Names of the inputs that are Kafka topics, in their order."""
        return [name for name, item in self.inputs.items() if item.source is not None]

    @property
    def real_time(self) -> RealTime:
        """Whether it is to run in real time."""
        if isinstance(self.trigger, TriggerSettings):
            return "only" if self.trigger.real_time else "no"
        return "no" if self.output_mode == "complete" or self.trigger != "auto" else "auto"

    @property
    def sources(self) -> list[str]:
        """Ids of the sources that it reads, each once, in their order."""
        return list(dict.fromkeys(item.source for item in self.inputs.values() if item.source is not None))


def topic_of(source: Section) -> str | None:
    """Return the Kafka topic that the events of a source are in; None where they are in none."""
    if getattr(source, "type", "") == "kafka":
        return cast("str", getattr(source, "topic"))  # noqa: B009  its class is another plugin's
    if isinstance(source, SparkSourceSettings) and source.sink is not None:
        return source.sink.topic
    return None


def validate(settings: SparkSourceSettings, sources: Mapping[str, Section]) -> Mapping[tuple[str, ...], str]:
    """Return what is wrong with its inputs: `SourceType.validate`."""
    mistakes: dict[tuple[str, ...], str] = {}
    for name, item in settings.inputs.items():
        origin = sources.get(item.source or "")
        if origin is None:
            continue
        topic = topic_of(origin)
        where = ("inputs", name, "source")
        if topic is None:
            mistakes[where] = _not_a_topic(item.source or "", origin)
        elif settings.sink is not None and topic == settings.sink.topic:
            mistakes[where] = (
                f"{item.source!r} is the topic {topic!r}, to which this query writes, so that it would never "
                "come to an end of it: give its `sink` another topic"
            )
    return mistakes


def _not_a_topic(source_id: str, source: Section) -> str:
    kind = getattr(source, "type", "")
    instead = (
        "give that source a sink (`sink: {topic: ...}`)"
        if isinstance(source, SparkSourceSettings)
        else "write its events to a Kafka topic, and name the source of type kafka that has the topic"
    )
    return f"Spark reads Kafka topics, and {source_id!r} (type {kind}) is none: {instead}"
