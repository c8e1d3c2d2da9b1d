"""The section `pulsar` of the configuration, and the block `pulsar` of a source."""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self

from pydantic import ConfigDict, Field, SecretStr, field_validator, model_validator

from kiwi_gw.api import Milliseconds, Section

NOT_TENANTS = ("persistent", "non-persistent")
"""They are what Pulsar calls its kinds of topics, in paths."""

_URL = r"^https?://([A-Za-z0-9._~-]+|\[[0-9A-Fa-f:.]+\])(:[0-9]{1,5})?(/[A-Za-z0-9._~!$&'()*+,;=:@%/-]*)?$"
"""A host, and what may stand in a path (RFC 3986): it becomes the beginning of a `Location`."""
_KEY_BYTES = 32
_Part = Annotated[str, Field(pattern=r"^[A-Za-z0-9._=:-]+$", max_length=120)]


class PulsarSettings(Section):
    """The REST interface of Pulsar, below `/topics`."""

    enabled: bool = False
    """Whether it is served."""
    tenant: _Part = "public"
    """The tenant of topics that do not say so themselves (`pulsar.name`)."""
    namespace: _Part = "default"
    """Their namespace."""
    group_prefix: _Part = "kiwi-gw"
    """What the names of consumer groups begin with: `PREFIX/subscription/TENANT/NAMESPACE/TOPIC/NAME`."""
    advertised_url: Annotated[str, Field(pattern=_URL, max_length=100)] | None = None
    """What `base_uri` of a consumer begins with (`http://gw1.example:8000`): where clients reach this gateway
    and no other. null: as they say in `Host`. Of several workers each has the port that is its own
    (`server.worker_port`) instead of the one here."""
    consumer_key: SecretStr | None = None
    """What ids of consumers are signed with, 32 bytes or more. Gateways with the same one, and an
    `advertised_url` each, send clients to the one that has their consumer (307). null: a random one, that of
    all workers of this gateway."""
    broker_shape: bool = True
    """Whether Pulsar's own form of producing is served, too: `POST /topics/persistent/...`."""
    produce_timeout_ms: Annotated[Milliseconds, Field(ge=1_000)] = 10_000
    """How long a request waits for its records to be written."""

    @field_validator("consumer_key")
    @classmethod
    def _cannot_be_guessed(cls, value: SecretStr | None) -> SecretStr | None:
        if value is not None and len(value.get_secret_value().encode()) < _KEY_BYTES:
            raise ValueError(f"a key has at least {_KEY_BYTES} bytes")
        return value

    @field_validator("tenant")
    @classmethod
    def _is_a_tenant(cls, value: str) -> str:
        if value in NOT_TENANTS:
            raise ValueError(f"{value!r} cannot be a tenant: it is a kind of topics")
        return value


class PulsarSchema(Section):
    """What the values of a topic are, where a request does not say so."""

    type: Literal[
        "NONE", "BYTES", "STRING", "BOOLEAN", "INT8", "INT16", "INT32", "INT64", "FLOAT", "DOUBLE", "JSON",
        "AVRO",
    ] = "NONE"  # fmt: skip
    """As in `schema_type`, here in capitals."""
    definition: str | dict[str, Any] | list[Any] | None = Field(None, alias="schema")
    """The definition in Avro's language, for AVRO and, where values are to be checked, for JSON: as it is, or
    its text."""

    @model_validator(mode="after")
    def _can_be_used(self) -> Self:
        if self.definition is None:
            if self.type == "AVRO":
                raise ValueError("AVRO needs a definition: schema")
            return self
        if self.type not in ("AVRO", "JSON"):
            raise ValueError(f"a definition (schema) is for AVRO and JSON, not for {self.type}")
        from kiwi_gw.query.avro_writer import datum_writer, schema_text  # few need it

        try:
            datum_writer(schema_text(self.definition))
        except ModuleNotFoundError:
            raise ValueError("Avro needs the package fastavro: pip install 'kiwi-gw[avro]'") from None
        return self


class PulsarSource(Section):
    """What this source is called in Pulsar's REST interface, and what its values are."""

    model_config = ConfigDict(populate_by_name=True)

    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9._=:-]+/[A-Za-z0-9._=:-]+/[A-Za-z0-9._=:-]+$")] | None = (
        None
    )
    """`tenant/namespace/topic`; null: those of the section, and the id of the source."""
    values: PulsarSchema = Field(PulsarSchema(), alias="schema")
    """What its values are, where a request does not say so."""

    @field_validator("name")
    @classmethod
    def _has_a_tenant(cls, value: str | None) -> str | None:
        if value is not None and value.partition("/")[0] in NOT_TENANTS:
            raise ValueError(f"{value.partition('/')[0]!r} cannot be a tenant: it is a kind of topics")
        return value
