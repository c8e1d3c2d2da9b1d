"""What a configuration says of the bytes of a topic's records, for queries."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal, Self, get_args

from pydantic import BeforeValidator, ConfigDict, Field, model_validator

from kiwi_gw.api import Decode, Section, decode_mistake

Form = Literal["json", "string", "int", "long", "binary", "avro"]


def _settings(value: object) -> object:
    """Take `decode: string` as short for `decode: {value: string}`."""
    if isinstance(value, str):
        if value not in get_args(Form):
            raise ValueError(f"must be one of {', '.join(get_args(Form))}, not {value!r}")
        return {"value": value}
    return value


class DecodeSettings(Section):
    """What queries make of the bytes of a record. On the wire they are as they were."""

    model_config = ConfigDict(populate_by_name=True)

    value: Form = "json"
    """The record's value: `json`, `string` (UTF-8), `int` or `long` (4 or 8 bytes, as Kafka's serializers
    write them), `binary` (any; queries see base64), `avro` (one datum, without a header: `avro_schema`; or
    behind the id of its schema: `registry`)."""
    key: Form = "string"
    """The record's key, likewise."""
    ddl: str | None = Field(None, alias="schema")
    """The types of the members of a JSON value, as Spark writes them: `carrier STRING, delay BIGINT`. A
    member of another type is null then. Without it every record has its own types."""
    avro_schema: Path | None = None
    """A file with the Avro schema, for `avro`."""
    registry: bool = False
    """Whether what is `avro` begins with the id of its schema (a zero, 4 bytes), as Confluent's serializers
    write it. The schema comes from `kafka.registry`."""

    @model_validator(mode="after")
    def _readable(self) -> Self:
        avro = "avro" in (self.value, self.key)
        if avro and self.avro_schema is None and not self.registry:
            raise ValueError("avro needs avro_schema: a file with the schema (or registry: true)")
        if not avro and (self.avro_schema is not None or self.registry):
            given = "registry" if self.registry else "avro_schema"
            raise ValueError(f"{given} needs value: avro, or key: avro")
        if self.avro_schema is not None and self.registry:
            raise ValueError("avro_schema and registry are two ways to say the same; keep one of them")
        if self.ddl and self.value != "json":
            raise ValueError(f"schema is about JSON; this value is {self.value}")
        try:
            mistake = decode_mistake(self.decode)
        except (OSError, UnicodeDecodeError) as error:
            mistake = f"avro_schema cannot be read: {error}"
        if mistake is not None:
            raise ValueError(mistake)
        return self

    @property
    def decode(self) -> Decode:
        """Return it as the gateway wants it. Reads the file of the Avro schema."""
        avro = self.avro_schema.read_text(encoding="utf-8") if self.avro_schema is not None else ""
        return Decode(self.value, self.key, avro, self.ddl or "", registry=self.registry)


DecodeKey = Annotated[
    DecodeSettings, BeforeValidator(_settings, json_schema_input_type=DecodeSettings | Form)
]
