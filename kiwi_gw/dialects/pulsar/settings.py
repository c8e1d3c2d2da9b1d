"""The section `pulsar` of the configuration, and the block `pulsar` of a source."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import ConfigDict, Field, field_validator

from kiwi_gw.api import Milliseconds, Section

NOT_TENANTS = ("persistent", "non-persistent")
"""They are what Pulsar calls its kinds of topics, in paths."""

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
    advertised_url: Annotated[str, Field(pattern=r"^https?://[^/?#]+[^?#]*$")] | None = None
    """What `base_uri` of a consumer begins with (`http://gw1.example:8000`), where clients reach this gateway
    otherwise than as they have made it; null: as they say in `Host`."""
    broker_shape: bool = True
    """Whether Pulsar's own form of producing is served, too: `POST /topics/persistent/...`."""
    produce_timeout_ms: Annotated[Milliseconds, Field(ge=1_000)] = 10_000
    """How long a request waits for its records to be written."""

    @field_validator("tenant")
    @classmethod
    def _is_a_tenant(cls, value: str) -> str:
        if value in NOT_TENANTS:
            raise ValueError(f"{value!r} cannot be a tenant: it is a kind of topics")
        return value


class PulsarSchema(Section):
    """What the values of a topic are, where a request does not say so."""

    type: Literal[
        "NONE", "BYTES", "STRING", "BOOLEAN", "INT8", "INT16", "INT32", "INT64", "FLOAT", "DOUBLE", "JSON"
    ] = "NONE"
    """As in `schema_type`, here in capitals."""


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
