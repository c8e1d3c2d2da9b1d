"""The gateway's own settings: every key, its meaning and its default.

Times are milliseconds, sizes bytes. Keys of plugins are declared by them and merged in by `load`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from kiwi_gw.api import Bytes, Milliseconds, Section
from kiwi_gw.config.address import Address, parse_address
from kiwi_gw.model import OverflowPolicy, ValueAs

KIB, MIB = 1024, 1024 * 1024

_ORIGIN = re.compile(
    r"\*|null|[A-Za-z][A-Za-z0-9+.-]*://(\*\.)?(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._~-]+)(:[0-9]{1,5})?"
)


def _addresses(value: object) -> object:
    items = [value] if isinstance(value, str) else value
    if not isinstance(items, (list, tuple)) or not items or not all(isinstance(item, str) for item in items):
        raise ValueError("must be an address like 127.0.0.1:8000, or a list of such")
    return tuple(str(parse_address(item)) for item in items)


def _origin(value: str) -> str:
    if not _ORIGIN.fullmatch(value):
        raise ValueError(f"must be an origin like https://example.com, 'null' or '*', not {value!r}")
    return value


def _policy(value: object) -> object:
    names = [item.value for item in OverflowPolicy]
    if isinstance(value, str) and value not in names:
        raise ValueError(f"must be one of {', '.join(names)}, not {value!r}")
    return value


def _socket_mode(value: object) -> object:
    # Without quotes YAML 1.2 has 0660 as the number 660, and nobody means that.
    if not isinstance(value, str) or not re.fullmatch("0?[0-7]{3}", value):
        raise ValueError(f'must be an octal number in quotes, like "0660", not {value!r}')
    return value


def _one_address(value: object) -> object:
    if value in (None, ""):
        return None
    if not isinstance(value, str):
        raise ValueError("must be an address like 127.0.0.1:9464, or null")  # noqa: TRY004
    return str(parse_address(value))


def _fallback(value: object) -> object:
    if value in (OverflowPolicy.BLOCK, OverflowPolicy.BLOCK.value):
        raise ValueError("is what happens where 'block' does not hold the source: it must be another policy")
    return _policy(value)


Number = Annotated[int, Field(ge=0)]
Percent = Annotated[int, Field(ge=0, le=100)]
Positive = Annotated[int, Field(ge=1)]
Delay = Annotated[Milliseconds, Field(ge=1)]
Size = Annotated[Bytes, Field(ge=1)]
SocketMode = Annotated[
    str,
    BeforeValidator(_socket_mode, json_schema_input_type=str),
    Field(json_schema_extra={"pattern": "^0?[0-7]{3}$"}),
]
Origin = Annotated[str, AfterValidator(_origin)]
Policy = Annotated[
    OverflowPolicy,
    BeforeValidator(
        _policy, json_schema_input_type=Literal["replay", "drop_oldest", "latest", "block", "close"]
    ),
]
Fallback = Annotated[
    OverflowPolicy,
    BeforeValidator(_fallback, json_schema_input_type=Literal["replay", "drop_oldest", "latest", "close"]),
]


class Tls(Section):
    """Certificates. The files are read again when they change."""

    cert: str = Field(min_length=1)
    """Path of the certificate with its chain, in PEM."""
    key: str = Field(min_length=1)
    """Path of the private key, in PEM."""
    client_ca: str | None = Field(default=None, min_length=1)
    """Path of the authorities, in PEM, that client certificates must come from; null: none is asked for."""


class Limits(Section):
    """What one client, or all together, may cost. A limit that 0 switches off is switched off
    for benchmarks, and in networks that are trusted."""

    max_connections: Number = 10_000
    """Connections at a time; more get 503. 0: as many as there are descriptors for."""
    max_connections_per_address: Number = 0
    """WebSocket connections at a time from one address (IPv6: from one /64 network), of one worker; more get
    503. It is the socket's address: behind a proxy all clients have the same one. Unix sockets have none.
    0: any number."""
    max_connections_per_identity: Number = 0
    """WebSocket connections at a time of one identity, by its name, of one worker; more get 503, or where it
    is told later, its credentials are refused. Anonymous clients are not counted. 0: any number."""
    connections_per_second: Number = 0
    """New WebSocket connections and requests for tickets of all clients of one worker, before their
    credentials are checked; more get 503. 0: any number."""
    connections_burst: Positive = 200
    """New connections that may come at once, where `connections_per_second` is set."""
    memory_shed_percent: Annotated[int, Field(ge=0, le=100)] = 80
    """When the process holds so much of the memory that it may have, encodings are given up, and while that
    is not enough, the oldest events of the windows. It ends 5 points lower. 0: never. Linux only."""
    memory_refuse_percent: Annotated[int, Field(ge=0, le=100)] = 90
    """From here on new connections get 503, `/readyz` too, and one without a subscription that asks for its
    first is closed with 1013. It ends 5 points lower. 0: never. Linux only."""
    resident_bytes: Size | None = None
    """What the process may have; null: the least of the limits of its control groups and the machine's
    memory, divided by `server.workers`. Give it where a Spark driver shares the container."""
    ticket_ttl_ms: Delay = 30_000
    """How long a one-use ticket (`POST /api/v1/ticket`) may wait for being used."""
    max_tickets: Number = 10_000
    """Tickets of one worker that wait for being used, of all clients; more get 429. 0: none are given."""
    max_tickets_per_identity: Positive = 16
    """Those of one identity, of one worker."""
    expiry_notice_ms: Milliseconds = 60_000
    """How long before its credentials expire a client is told so; 0: it is not. Only Kiwi has a message for
    that, and not with `envelope: nested`; the others' connections end without it."""
    max_message_bytes: Size = 64 * KIB
    """Largest message of a client; a larger one closes the connection with 1009."""
    max_fragments: Number = 1024
    """Frames that one message may come in; more close the connection with 1008. 0: any number."""
    head_bytes: Annotated[Bytes, Field(ge=1024)] = 16 * KIB
    """Largest HTTP request head; a larger one gets 431."""
    head_timeout_ms: Delay = 5_000
    """Time for a complete HTTP request head; after it 408."""
    tls_handshake_timeout_ms: Delay = 5_000
    """Time for the TLS handshake."""
    http_stall_timeout_ms: Delay = 10_000
    """How long a client may take no byte of an HTTP response."""
    close_timeout_ms: Delay = 5_000
    """How long a client may take to answer a close frame."""
    ping_interval_ms: Delay = 20_000
    """A connection to which nothing was sent for this long gets a ping."""
    dead_after_ms: Delay = 60_000
    """An idle connection that stays silent for this long is aborted."""
    stall_timeout_ms: Milliseconds = 0
    """A connection that takes no byte for this long is closed; 0: never."""
    vanished_after_ms: Milliseconds = 28_000
    """A TCP connection whose machine has answered nothing for this long, though it was sent something, is
    aborted (one that only does not read still answers); 0: when the system gives up. Linux only."""
    max_subscriptions: Number = 128
    """Subscriptions of one connection; 0: any number."""
    query_bytes: Annotated[Bytes, Field(ge=1, le=4 * KIB)] = 4 * KIB
    """Longest text of a query of a client (`where` and `select`, or what follows the `?` of a topic). One of
    more than 512 bytes or 80 words is read and compiled by a process of its own."""
    max_queries: Number = 32
    """Subscriptions of one connection that may have different queries, each of which is evaluated for every
    event; one more is refused. 0: any number."""
    queries_percent: Percent = 25
    """Time of the event loop in which queries of all clients may be evaluated while other work waits. What is
    beyond it is evaluated later: its subscriptions are behind meanwhile. 0: any."""
    connection_queries_percent: Percent = 10
    """The same for all queries of one connection."""
    query_percent: Percent = 5
    """The same for one query of one source, however many ask it."""
    compiling_percent: Percent = 10
    """Time of the event loop in which queries of all clients may be read and compiled. Beyond it a SUBSCRIBE
    with a query is refused, first for those who have used most. 0: any."""
    connection_compiling_percent: Percent = 5
    """The same for the queries of one connection."""
    commands_per_second: Number = 100
    """Commands of one connection, credit requests apart; 0: any number."""
    commands_burst: Positive = 200
    """Commands that may come at once."""
    requests_per_second: Number = 2_000
    """Credit requests of one connection; 0: any number."""
    requests_burst: Positive = 2_000
    """Credit requests that may come at once."""
    flood_ms: Delay = 3_000
    """A connection that is over its rate for this long is closed with 1008."""
    control_bytes: Size = 16 * KIB
    """Replies that may wait for one connection; while they do it is not read."""
    send_bytes: Size = 256 * KIB
    """Most that is offered to a socket in one call."""
    unsent_bytes: Size = 64 * KIB
    """Unsent bytes that the kernel may hold for one connection (TCP_NOTSENT_LOWAT)."""
    fan_out_slice_ms: Delay = 5
    """How long one batch may be sent to subscribers before others get their turn."""

    @model_validator(mode="after")
    def _pings_come_in_time(self) -> Self:
        if self.dead_after_ms <= self.ping_interval_ms:
            raise ValueError(
                f"dead_after_ms ({self.dead_after_ms}) must be more than "
                f"ping_interval_ms ({self.ping_interval_ms})"
            )
        return self

    @model_validator(mode="after")
    def _sheds_before_it_refuses(self) -> Self:
        shed, refuse = self.memory_shed_percent, self.memory_refuse_percent
        if shed and refuse and refuse <= shed:
            raise ValueError(
                f"memory_refuse_percent ({refuse}) must be more than memory_shed_percent ({shed})"
            )
        return self


class Server(Section):
    """The port, and who may use it how much."""

    address: Annotated[
        tuple[str, ...], BeforeValidator(_addresses, json_schema_input_type=str | list[str])
    ] = ("127.0.0.1:8000",)
    """`host:port`, `[v6]:port` or `unix:/path`, or a list of such. Port 0: any free one."""
    admin_address: Annotated[str | None, BeforeValidator(_one_address, json_schema_input_type=str | None)] = (
        "127.0.0.1:9464"
    )
    """Where `/metrics`, `/sources`, `/connections` and `/subscriptions` are served, for operators only; null:
    nowhere. Where this default is taken by somebody else, the gateway starts without them and warns."""
    admin_unauthenticated: bool = False
    """Where no plugin authenticates clients, whether everybody who reaches `admin_address` may see everything
    and close connections. Without it that holds on loopback and on Unix sockets, and elsewhere there are
    `/metrics`, `/livez` and `/readyz` only."""
    unix_mode: SocketMode = "0600"
    """Who may connect to Unix sockets: their mode, in quotes. `"0660"`: the group, too."""
    workers: Annotated[int, Field(ge=1, le=256)] = 1
    """Processes that share the addresses. Each reads every source for itself and serves its share of the
    clients; limits, windows and memory are those of each."""
    healthcheck: bool = True
    """Whether `/health` is served."""
    tls: Tls | None = None
    """Serve TLS on every TCP address."""
    allowed_origins: tuple[Origin, ...] = ()
    """Pages of other origins that may connect: `https://a.example`, `https://*.a.example`, `null` or `*`."""
    drain_ms: Milliseconds = 5_000
    """How long clients may take what is left when a source is removed, or the gateway stops."""
    auth_timeout_ms: Delay = 5_000
    """Time for a plugin to say who a client is."""
    limits: Limits = Limits()
    """What one client, or all together, may cost."""

    @property
    def addresses(self) -> tuple[Address, ...]:
        return tuple(parse_address(item) for item in self.address)

    @property
    def admin(self) -> Address | None:
        return parse_address(self.admin_address) if self.admin_address is not None else None

    @property
    def unix_mode_bits(self) -> int:
        return int(self.unix_mode, 8)

    @property
    def admin_wanted(self) -> bool:
        """Whether somebody has asked for the admin address, which is then not to be missing."""
        return "admin_address" in self.model_fields_set


class Subscriber(Section):
    """What holds for every subscription. May be set per source, too."""

    buffer_capacity: Positive | None = None
    """How many events a subscription may be behind before it overflows; null: as many as the window holds."""
    lag_notice_threshold: Positive | None = None
    """A LAG notice is sent when a subscription is this many events behind; null: half of buffer_capacity."""
    lag_notice_interval_ms: Milliseconds = 1_000
    """Such notices come at most once in this time (those of a loss always come)."""
    overflow: Policy | None = None
    """On overflow `replay` reads on from the source's own history, `drop_oldest` goes on with the newest
    events, `latest` with the newest event of every key, `close` ends the subscription, `block` holds the
    source. null: `replay` where the source can be read again, else `drop_oldest`."""
    allow: tuple[Policy, ...] = (
        OverflowPolicy.REPLAY,
        OverflowPolicy.DROP_OLDEST,
        OverflowPolicy.LATEST,
        OverflowPolicy.CLOSE,
    )
    """Policies that a client may ask for instead, where the source has them."""
    block_timeout_ms: Milliseconds = 30_000
    """How long a subscription that has granted no credit may hold the source by `block`."""
    block_fallback: Fallback | None = None
    """What happens to it then; null: as for `overflow`."""
    on_bad_record: Literal["skip", "close"] = "skip"
    """What becomes of an event for which a query cannot be evaluated (its value is no JSON, say): `skip`
    leaves it out, `close` ends the subscription. Either way it is counted."""
    value_as: ValueAs | None = None
    """How an event's `value` is written, where a client does not say so itself (`valueAs`) and where it can
    be: `text`, a string with its text, or `json`, the JSON that it is. null: as the source has it, which is
    `text` for `kafka`, and `json` for `spark` and behind a `select`."""
    subscribe_timeout_ms: Delay | None = None
    """How long a subscription waits for a source that is starting; null: as long as its type says that its
    sources may take, which is 5 s, for `spark` 115 s."""


class Window(Section):
    """The events of every source that are kept. All but the memory that sources share, and `event_bytes`, may
    be set per source, too."""

    events: Positive = 65_536
    """Most events in a window."""
    bytes: Size = 64 * MIB
    """Most memory for the events of a window."""
    memory_bytes: Size = 512 * MIB
    """Most memory for all windows and encodings together. When it is used up, the sources that hold most
    give up their oldest events first. What queries hold comes on top: see QUERIES.md, "What it may cost"."""
    encodings_bytes: Size = 64 * MIB
    """Most memory for the encoded events of all sources that a reader may still need; set aside from
    `memory_bytes`, and at most a quarter of it."""
    event_bytes: Size = 8 * MIB
    """Largest encoded event; a larger one is given up and announced."""
    max_wire_keys: Positive = 1_000
    """Different wire keys of one source at a time (each an encoding of its events) that clients have chosen,
    by a query or by a Zetta pattern that leaves events out; what needs one more is refused. Others do not
    count."""
    wire_keys_identity: Number = 250
    """Those of one identity, of clients without one those of an address; 0: any number."""
    wire_keys_connection: Number = 64
    """Those of one connection; 0: any number."""

    history_readers: Positive = 4
    """How many groups of subscriptions may read a source's history at a time; the others take turns."""
    history_events: Positive = 65_536
    """Most events that one of them holds."""
    history_bytes: Size = 16 * MIB
    """Most memory for them."""
    last_values: bool = False
    """Keep the newest event of every key: for snapshots and the policy `latest`, with which it is always
    kept."""
    last_values_keys: Positive = 100_000
    """Most keys of which it is kept; those that were updated last."""
    last_values_bytes: Size = 16 * MIB
    """Most memory for them."""

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if self.bytes > self.memory_bytes:
            raise ValueError(f"bytes ({self.bytes}) must not be more than memory_bytes ({self.memory_bytes})")
        return self


SHARED_BY_ALL_SOURCES = ("memory_bytes", "encodings_bytes", "event_bytes")
"""Keys of `window` that no single source can have for itself."""


class Logging(Section):
    """Logs go to stderr."""

    level: Literal["debug", "info", "warning", "error"] = "info"
    """Least severe level that is written."""
    format: Literal["auto", "json", "pretty"] = "auto"
    """`auto`: pretty on a terminal, else JSON lines."""


class Metrics(Section):
    """What `/metrics` on the admin address shows; see METRICS.md."""

    enabled: bool = True
    """Whether anything is measured; without it `/metrics` is not there."""
    max_sources: Annotated[int, Field(ge=1, le=10_000)] = 200
    """Sources that have series of their own; those that come later share the label `other`."""
    per_partition: bool = False
    """Whether the lag of a source is shown by partition, too (at most 256 of them)."""


class Kiwi(Section):
    """The Kiwi protocol."""

    envelope: Literal["flat", "nested"] = "flat"
    """`flat` as its document says, `nested` as the original server does."""
    unknown_members: Literal["refuse", "ignore"] = "refuse"
    """What becomes of a command with a member that there is not (`mod` for `mode`): `refuse` answers with an
    error that names it, `ignore` carries out the rest, as the original server does."""


_BRACES = re.compile(r"\{([^{}]*)\}")
_PATH = re.compile(r"[A-Za-z_][^.\[\]{}]*(\.[^.\[\]{}]+|\[[0-9]{1,9}\])*")
_TOPIC_ROOTS = ("key", "value", "partition", "offset", "timestamp", "headers")


def _path(value: str) -> str:
    root = re.split(r"[.\[]", value, maxsplit=1)[0]
    if not _PATH.fullmatch(value) or root not in _TOPIC_ROOTS:
        raise ValueError(f"must be a path like value.celsius, from {', '.join(_TOPIC_ROOTS)}, not {value!r}")
    return value


def _template(value: str) -> str:
    for inside in _BRACES.findall(value):
        _path(inside)
    bare = _BRACES.sub("x", value)
    if "{" in bare or "}" in bare:
        raise ValueError(f"has a brace without its other one: {value!r}")
    if any(not level for level in value.split("/")):
        raise ValueError(f"has an empty level: {value!r}")
    if bare == value and "/" not in value:
        raise ValueError(f"has one level only, and nobody could subscribe to it: {value!r}")
    if any(sign in bare for sign in "*?[\0"):
        raise ValueError(f"is that of an event; *, ? and [ are for subscriptions: {value!r}")
    return value


JsonPath = Annotated[str, AfterValidator(_path)]


class Zetta(Section):
    """The Zetta protocol: topics with patterns and queries, on `/events`."""

    enabled: bool = True
    """Whether it is served."""
    name: str | None = Field(default=None, min_length=1, max_length=255, pattern=r"^[^/{}*\[\]?]+$")
    """The first level of the topics of sources that name none of their own; null: the name of the gateway."""


class ZettaSource(Section):
    """What the events of this source are in the Zetta protocol. Paths begin with `key`, `value`, `partition`,
    `offset`, `timestamp` or `headers`."""

    topic: Annotated[str, Field(min_length=1, max_length=1024), AfterValidator(_template)] | None = None
    """Their topic, `server/type/id/stream`, with what comes from each event in braces:
    `hub/heater/{key}/state`, or `{value.topic}` alone. An event that lacks it is on no topic. null:
    `kiwi-gw/kafka/flights/events`, with `zetta.name`, the type and the id of the source."""
    data: JsonPath | None = None
    """What of an event is its `data`: `value.celsius`; null: its value."""
    name: JsonPath | None = None
    """Where an event says how its device is called; for queries over devices."""
    state: JsonPath | None = None
    """Where an event says which state its device is in; for queries over devices."""


class Core(Section):
    """The gateway's own top-level keys, `sources` and the sections of plugins apart."""

    name: Annotated[str, Field(min_length=1, max_length=255)] = "kiwi-gw"
    """The name of this gateway in logs and towards brokers."""
    plugins: tuple[str, ...] = ()
    """Plugins to load, by entry point name or as `module:object`. Those of source types and sections in use
    are loaded anyway."""
    server: Server = Server()
    subscriber: Subscriber = Subscriber()
    window: Window = Window()
    logging: Logging = Logging()
    metrics: Metrics = Metrics()
    kiwi: Kiwi = Kiwi()
    zetta: Zetta = Zetta()


BLOCKS: Mapping[str, type[Section]] = {"zetta": ZettaSource}
"""What a source may say to single protocols: by key."""


@dataclass(frozen=True, slots=True)
class SourceSettings:
    """One source. `settings` is the model of its type; `subscriber` and `window` are what holds for it, the
    general ones with its own on top; `line` is where it stands in the file; `blocks` what it says to single
    protocols."""

    id: str
    type: str
    settings: Section
    subscriber: Subscriber
    window: Window
    line: int = field(default=0, compare=False)
    blocks: Mapping[str, Section] = field(default_factory=dict)

    @property
    def buffer_capacity(self) -> int:
        """How many events a subscription may be behind; never more than the window holds."""
        return min(self.subscriber.buffer_capacity or self.window.events, self.window.events)

    @property
    def lag_notice_threshold(self) -> int:
        return self.subscriber.lag_notice_threshold or max(1, self.buffer_capacity // 2)


@dataclass(frozen=True, slots=True)
class Settings:
    """A valid configuration. `sources` by id in the order of the file; `sections` those of the plugins, with
    their defaults where the file has none; `plugins` all that it needs, named or implied, in load order."""

    name: str
    plugins: tuple[str, ...]
    server: Server
    subscriber: Subscriber
    window: Window
    logging: Logging
    metrics: Metrics
    kiwi: Kiwi
    zetta: Zetta
    sources: Mapping[str, SourceSettings]
    sections: Mapping[str, Section]
