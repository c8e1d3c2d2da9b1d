"""The section `server`: the port, and what clients may ask of it."""

from __future__ import annotations

import re
from typing import Annotated, Self

from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from kiwi_gw.api import Bytes, Milliseconds, Section
from kiwi_gw.config.address import Address, TcpAddress, parse_address
from kiwi_gw.config.values import KIB, Delay, Number, Percent, Positive, Size

_HIGHEST_PORT = 65_535
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


def _socket_mode(value: object) -> object:
    # Without quotes YAML 1.2 has 0660 as the number 660, which is never meant.
    if not isinstance(value, str) or not re.fullmatch("0?[0-7]{3}", value):
        raise ValueError(f'must be an octal number in quotes, like "0660", not {value!r}')
    return value


def _one_address(value: object) -> object:
    if value in (None, ""):
        return None
    if not isinstance(value, str):
        raise ValueError("must be an address like 127.0.0.1:9464, or null")  # noqa: TRY004
    return str(parse_address(value))


SocketMode = Annotated[
    str,
    BeforeValidator(_socket_mode, json_schema_input_type=str),
    Field(json_schema_extra={"pattern": "^0?[0-7]{3}$"}),
]
Origin = Annotated[str, AfterValidator(_origin)]


class TlsSettings(Section):
    """Certificates. The files are read again when they change."""

    cert: str = Field(min_length=1)
    """Path of the certificate with its chain, in PEM."""
    key: str = Field(min_length=1)
    """Path of the private key, in PEM."""
    client_ca: str | None = Field(default=None, min_length=1)
    """Path of the authorities, in PEM, that client certificates must come from; null: none is asked for."""


class LimitSettings(Section):
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
    """How long before its credentials expire a client is told so; 0: it is not. Where its protocol
    has no message for that, the connection ends without it."""
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
    http_connections: Number = 1_000
    """Connections for plain HTTP that are kept for further requests; beyond them each has one."""
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
    """How long one batch may be sent before others get their turn; less while clients write."""

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


class ServerSettings(Section):
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
    worker_port: Annotated[int, Field(ge=0, le=65_535)] | None = None
    """Where each of several workers is reached alone, beside `address`, for what one of them has (a consumer
    of a subscription): the first worker at this port of the first TCP host of `address`, the others at the
    ports that follow. 0: any free ones. null: nowhere."""
    healthcheck: bool = True
    """Whether `/health` is served."""
    tls: TlsSettings | None = None
    """Serve TLS on every TCP address."""
    allowed_origins: tuple[Origin, ...] = ()
    """Pages of other origins that may connect: `https://a.example`, `https://*.a.example`, `null` or `*`."""
    drain_ms: Milliseconds = 5_000
    """How long clients may take what is left when a source is removed, or the gateway stops."""
    auth_timeout_ms: Delay = 5_000
    """Time for a plugin to say who a client is."""
    publish_timeout_ms: Delay = 4_000
    """Time for a source to write a record of a client, or to keep positions that one commits."""
    limits: LimitSettings = LimitSettings()
    """What one client, or all together, may cost."""

    @model_validator(mode="after")
    def _workers_have_ports(self) -> Self:
        if self.worker_port is None:
            return self
        if not any(isinstance(address, TcpAddress) for address in self.addresses):
            raise ValueError("worker_port needs a TCP address in address")
        if self.worker_port + self.workers - 1 > _HIGHEST_PORT:
            raise ValueError(f"worker_port and workers go beyond the port {_HIGHEST_PORT:,}")
        return self

    @property
    def addresses(self) -> tuple[Address, ...]:
        return tuple(parse_address(item) for item in self.address)

    def worker_addresses(self, worker: int) -> tuple[TcpAddress, ...]:
        """Return where one of several workers listens alone: at one address, or none."""
        hosts = [address.host for address in self.addresses if isinstance(address, TcpAddress)]
        if self.worker_port is None or self.workers == 1:
            return ()
        return (TcpAddress(hosts[0], self.worker_port and self.worker_port + worker),)

    @property
    def admin(self) -> Address | None:
        return parse_address(self.admin_address) if self.admin_address is not None else None

    @property
    def unix_mode_bits(self) -> int:
        return int(self.unix_mode, 8)

    @property
    def admin_wanted(self) -> bool:
        """Return whether the file asks for the admin address, which must not be missing then."""
        return "admin_address" in self.model_fields_set
