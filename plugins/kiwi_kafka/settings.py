"""What a configuration says about Kafka: the section `kafka` and a source of type `kafka`."""

from __future__ import annotations

import difflib
import re
from pathlib import Path
from typing import Annotated, Literal, Self
from urllib.parse import urlsplit

from pydantic import ConfigDict, Field, SecretStr, field_validator, model_validator

from kiwi_gw.api import Bytes, Milliseconds, Section
from kiwi_kafka.decode import DecodeKey, DecodeSettings
from kiwi_kafka.event_schema import FIELD_NAMES

_Time = Annotated[Milliseconds, Field(ge=1)]
_Size = Annotated[Bytes, Field(ge=1)]
_Count = Annotated[int, Field(ge=1)]

TLS_PROTOCOLS = ("SSL", "SASL_SSL")
SASL_PROTOCOLS = ("SASL_PLAINTEXT", "SASL_SSL")


class SecuritySettings(Section):
    """How to speak to the brokers, and as whom. Files are PEM."""

    protocol: Literal["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"] = "PLAINTEXT"
    """As the brokers' listener has it."""
    mechanism: Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"] = "PLAIN"
    """How user name and password are shown to the broker (SASL protocols)."""
    username: str | None = None
    """The user (SASL protocols)."""
    password: SecretStr | None = None
    """The user's password (SASL protocols)."""
    ca: Path | None = None
    """Certificates of the authorities that the brokers' certificates are checked against; default: the
    system's."""
    cert: Path | None = None
    """The client's own certificate, where brokers ask for one (mTLS)."""
    key: Path | None = None
    """The key of `cert`."""
    key_password: SecretStr | None = None
    """The password of `key`, if it is encrypted."""
    check_hostname: bool = True
    """Whether a broker's certificate must name the host that was connected to."""

    @model_validator(mode="after")
    def _belongs_together(self) -> Self:
        if self.protocol in SASL_PROTOCOLS:
            if self.username is None or self.password is None:
                raise ValueError(f"protocol {self.protocol} needs username and password")
        elif self.username is not None or self.password is not None:
            raise ValueError(f"username and password need protocol SASL_SSL, not {self.protocol}")
        if self.protocol not in TLS_PROTOCOLS and (self.ca or self.cert or self.key):
            raise ValueError(f"ca, cert and key need protocol SSL or SASL_SSL, not {self.protocol}")
        if (self.cert is None) != (self.key is None):
            raise ValueError("cert and key belong together: a client certificate and its key")
        if self.key_password is not None and self.key is None:
            raise ValueError("key_password needs key")
        return self


class ClientSettings(Section):
    """Options of the Kafka client, named as in Kafka's own documentation with `_` for `.`."""

    client_id: str = "kiwi-gw"
    """The name under which brokers know this client."""
    client_rack: str | None = None
    """Where this client is: brokers with a rack-aware selector let it read from the nearest replica."""
    request_timeout_ms: _Time = 10_000
    """A request without an answer for so long is given up with its connection."""
    fetch_max_wait_ms: _Time = 2_000
    """How long a broker may hold a fetch for which it has nothing."""
    fetch_min_bytes: _Size = 1
    """A broker answers a fetch as soon as it has so much."""
    fetch_max_bytes: _Size = 16 * 1024 * 1024
    """At most so much in one answer of one broker (one batch may be larger)."""
    max_partition_fetch_bytes: _Size = 1024 * 1024
    """At most so much of one partition in one answer (one batch may be larger)."""
    max_poll_records: _Count = 2_000
    """Records decoded at a time: the event loop does nothing else for about 4 ms per 2,000."""
    retry_backoff_ms: _Time = 100
    """The pause after a request that failed."""
    metadata_max_age_ms: _Time = 30_000
    """How often a consumer looks who leads its partitions, if nothing makes it look earlier."""
    session_timeout_ms: _Time = 6_000
    """A member of a group that says nothing for so long is put out by Kafka: others get its partitions."""
    connections_max_idle_ms: _Time = 540_000
    """A connection that is not used for so long is closed."""
    max_consumers: Annotated[int, Field(ge=1, le=64)] = 10
    """How many consumers (each with a connection to every broker) share the sources of the cluster."""

    max_history_consumers: Annotated[int, Field(ge=1, le=64)] = 4
    """How many further consumers may read history at a time; where more are needed they take turns."""

    @model_validator(mode="after")
    def _waits_fit(self) -> Self:
        if self.fetch_max_wait_ms >= self.request_timeout_ms:
            raise ValueError("fetch_max_wait_ms must be below request_timeout_ms")
        return self


class RegistrySettings(Section):
    """The schema registry of the cluster, with Confluent's REST API: for sources with `decode.registry`."""

    model_config = ConfigDict(hide_input_in_errors=True)  # an address may hold a password, too

    url: str
    """Its address: `https://registry:8081`, with a path if it has one. Redirects are not followed."""
    user: str | None = None
    """The user, where the registry asks for one (HTTP Basic)."""
    password: SecretStr | None = None
    """The user's password."""
    ca: Path | None = None
    """Certificates (PEM) of the authorities that the registry's certificate is checked against; default: the
    system's."""

    @field_validator("url")
    @classmethod
    def _is_an_address(cls, value: str) -> str:
        try:
            parts = urlsplit(value)
            _ = parts.port
        except ValueError:
            raise ValueError("this is no address") from None
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError("must be an address that begins with https:// or http://")
        if parts.username is not None or parts.password is not None:
            raise ValueError("write user and password beside the address, not into it")
        if parts.query or parts.fragment or not value.isprintable() or " " in value:
            raise ValueError("must end with the host, the port or a path")
        return value

    @model_validator(mode="after")
    def _belongs_together(self) -> Self:
        if (self.user is None) != (self.password is None):
            raise ValueError("user and password belong together")
        if self.user is not None and ":" in self.user:
            raise ValueError("user must have no colon (HTTP Basic ends the name there)")
        if self.ca is not None and not self.url.lower().startswith("https:"):
            raise ValueError("ca needs an address that begins with https://")
        return self


class KafkaSettings(Section):
    """One Kafka cluster."""

    model_config = ConfigDict(hide_input_in_errors=True)  # a message never quotes a password

    bootstrap_servers: str | list[str]
    """Brokers to begin with, `host:port`: a list, or one text with commas."""
    group_id_prefix: str = ""
    """Accepted from files of the original and not used: no consumer group is."""
    partition_discovery_enabled: bool = True
    """Whether partitions that are added to a topic are noticed."""
    partition_discovery_interval_ms: _Time = 300_000
    """How long an added partition may stay unnoticed at most (with few topics it is seconds)."""
    probe_interval_ms: _Time = 1_000
    """How often the cluster is asked whether it is there."""
    probe_timeout_ms: _Time = 2_000
    """A cluster that does not answer for so long is away: consumers are closed, subscriptions stay."""
    security: SecuritySettings = SecuritySettings()
    """How to speak to the brokers, and as whom."""
    client: ClientSettings = ClientSettings()
    """Further options of the client."""
    registry: RegistrySettings | None = None
    """The schema registry of the cluster, with Confluent's REST API: for sources with `decode.registry`."""

    @field_validator("bootstrap_servers")
    @classmethod
    def _servers(cls, value: str | list[str]) -> str | list[str]:
        names = value.split(",") if isinstance(value, str) else value
        if not names or not all(name.strip() for name in names):
            raise ValueError("name at least one broker as host:port")
        for name in map(str.strip, names):
            _, colon, port = name.rpartition(":")
            if colon and not name.endswith("]") and not (port.isdigit() and 0 < int(port) < 65536):
                raise ValueError(f"{name!r} is not host:port")
        return value

    @property
    def servers(self) -> list[str]:
        """Return the bootstrap servers as `host:port`, in their order."""
        value = self.bootstrap_servers
        names = value.split(",") if isinstance(value, str) else value
        return [name.strip() for name in names]


class KafkaSourceSettings(Section):
    """A source of type `kafka`: one topic, from its end on."""

    type: Literal["kafka"]
    """The type of the source."""
    id: str | None = None
    """What clients call the source; default: the topic."""
    topic: str
    """The topic. One that does not exist yet is waited for, and never created."""
    fields: list[str] | None = None
    """The members of an event on the wire, of `key`, `value`, `payload` (the bytes of the value, in base64),
    `partition`, `offset`, `timestamp` and `headers`; default: all but `headers`. `sourceId` and `sourceType`
    are always there. Clients that go on behind their last event need `partition` and `offset`."""
    decode: DecodeKey = DecodeSettings()
    """What queries make of a record: how its value is read (`json`, `string`, `int`, `long`, `binary`), or
    more than that. Nothing is decoded for subscriptions without a query."""
    on_partition_change: Literal["close", "continue"] = "close"
    """What happens when a partition is added: subscriptions are closed with a notice, or the partition
    joins silently from its first offset."""

    publish: bool = False
    """Whether clients may write to the topic. Where a plugin says who they are, it must permit that, too."""
    commit: bool = False
    """Whether clients may commit how far they have come, where no plugin says who they are; where one does,
    it must permit that."""

    @field_validator("topic")
    @classmethod
    def _topic_name(cls, value: str) -> str:
        # Kafka's own rule for names of topics.
        if not re.fullmatch(r"[A-Za-z0-9._-]{1,249}", value) or value in (".", ".."):
            raise ValueError(
                f"{value!r} is not a topic name: 1 to 249 letters, digits, dots, underscores and hyphens are"
            )
        return value

    @field_validator("fields")
    @classmethod
    def _known_fields(cls, value: list[str] | None) -> list[str] | None:
        if value is None:
            return None
        if not value:
            raise ValueError("name at least one field, or leave `fields` out for all")
        for name in value:
            if name not in FIELD_NAMES:
                near = difflib.get_close_matches(name, FIELD_NAMES, n=1)
                hint = f"did you mean {near[0]!r}?" if near else "known: " + ", ".join(FIELD_NAMES)
                raise ValueError(f"{name!r} is not a field of a Kafka event; {hint}")
        if len(set(value)) != len(value):
            raise ValueError("a field is named twice")
        return value
