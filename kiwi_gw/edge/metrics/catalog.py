"""Every metric there is: its name, what it means, its labels, and how the workers' values become one.

A name that is not in here cannot be exported. What types of sources have for themselves is declared by them
(`SourceType.metrics`) and comes in here when they are loaded. Labels take their values from closed sets only:
sources (at most `metrics.max_sources`), and enumerations of the code: never a client, an address, a query or
an offset.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from kiwi_gw.errors import PluginError
from kiwi_gw.model import MetricSpec

PREFIX = "kiwigw_"


class MetricKind(enum.Enum):
    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


class MergeRule(enum.Enum):
    """What becomes of several values for the same labels: of all workers, or of all sources of `other`."""

    SUM = "sum"
    MAX = "largest"
    MIN = "smallest"


@dataclass(frozen=True, slots=True)
class Metric:
    """One metric. name: with its prefix and its unit. meaning: a sentence."""

    name: str
    kind: MetricKind
    meaning: str
    labels: tuple[str, ...] = ()
    merge: MergeRule = MergeRule.SUM


_ROW = re.compile(r"(?P<name>\w+)(?:\{(?P<labels>[\w,]+)\})?(?: \((?P<merge>\w+)\))?: (?P<meaning>.+)")


def _own(kind: MetricKind, *rows: str) -> Iterable[Metric]:
    """Read rows `name{label,label} (merge): meaning`; without a merge rule values add up."""
    for row in rows:
        found = _ROW.fullmatch(row)
        assert found is not None, row  # noqa: S101  the rows are below
        labels = tuple(found["labels"].split(",")) if found["labels"] else ()
        yield Metric(
            PREFIX + found["name"], kind, found["meaning"], labels, MergeRule(found["merge"] or "sum")
        )


_SUM, _MAX, _MIN = MergeRule.SUM, MergeRule.MAX, MergeRule.MIN

_GATEWAY = (
    *_own(
        MetricKind.GAUGE,
        "build_info{version,python,trio} (largest): Always 1: what runs.",
        "config_info{hash} (largest): Always 1: the beginning of the SHA-256 of the configuration file in "
        "force.",
        "config_last_reload_success_timestamp_seconds (smallest): When a configuration was last applied.",
        "draining (largest): 1 while the gateway lets its clients go.",
        "overload_level (largest): Memory: 0 enough, 1 encodings and windows are cut down, 2 new "
        "connections are refused, too.",
        "tasks: Tasks that live in the event loop.",
        "workers (largest): Worker processes that there should be.",
        "worker_up{worker} (largest): Whether this worker answered this scrape.",
        "encodings_bytes: Memory of encoded events that a reader may still need.",
        "queries_waiting: Batches whose evaluation for a query waits for its turn.",
        "requests_waiting: Plain requests whose answers take time: for records to be written, or to come.",
        "groups_limit: In how many groups this gateway may have members.",
        "memory_used_bytes: Memory of all windows and encodings.",
        "memory_limit_bytes: What they may hold: `window.memory_bytes`.",
    ),
    *_own(
        MetricKind.COUNTER,
        "config_reloads_total{result}: Reloads of the configuration: applied, refused.",
        "worker_restarts_total: Workers that ended by themselves and were replaced.",
        "hook_failures_total{hook}: Errors that hooks of plugins raised.",
        "log_lines_lost_total: Lines of the log that could not be written, because its disk was full, say.",
        "encodings_total{result}: Batches that were encoded (miss) or found encoded (hit).",
        "queries_seconds_total{part}: Seconds that queries took of the event loop: to be evaluated "
        "(evaluating), or to be read and compiled (compiling).",
        "queries_postponed_total: Batches whose evaluation for a query was left for later.",
        "queries_refused_total: Subscriptions refused because reading queries has taken too long.",
        "auth_total{method,result}: Credentials checked: accepted, anonymous, missing (none were shown), "
        "refused, throttled (a password was not looked at, after too many wrong ones), or failed to decide.",
    ),
    *_own(
        MetricKind.HISTOGRAM,
        "event_loop_lag_seconds: How late a timer of the event loop fires.",
    ),
)

_CONNECTIONS = (
    *_own(
        MetricKind.GAUGE,
        "connections{dialect,transport}: Open connections, and what reads for plain requests (http).",
        "connections_limit: How many there may be: `server.limits.max_connections`, of all workers, if "
        "there is a limit.",
        "connections_blocked{transport}: Connections whose socket takes nothing at the moment.",
        "outbound_buffer_bytes{transport}: What connections own that their clients have not taken.",
    ),
    *_own(
        MetricKind.COUNTER,
        "connections_opened_total{dialect,transport}: Connections whose handshake succeeded.",
        "connections_closed_total{dialect,code}: Connections that ended, by WebSocket close code.",
        "connections_rejected_total{reason}: Connections refused before they were any: bad_request, "
        "timeout, left, origin, host, auth, draining, overload (of memory), rate, limit_total, limit_ip, "
        "limit_identity, limit_descriptors.",
        "sent_bytes_total{transport}: Bytes that sockets took.",
        "received_bytes_total{transport}: Bytes that clients sent, behind their handshakes.",
        "frames_received_total{dialect,opcode}: Frames that clients sent, control frames too.",
        "commands_total{dialect,command,result}: Commands carried out.",
        "rate_limited_total{kind}: What came too often: commands, requests (for credit), controls (pings, "
        "pongs), fragments.",
        "protocol_errors_total{dialect,kind}: Connections that were closed for what was sent on them.",
        "pong_timeouts_total{transport}: Idle connections given up: no sign of life, no answer to a ping.",
        "vanished_total{transport}: Connections given up because the client's machine answered nothing.",
        "write_deadline_exceeded_total{transport}: Connections given up that took no byte for too long.",
    ),
    *_own(
        MetricKind.HISTOGRAM,
        "connection_duration_seconds{dialect}: How long connections lasted.",
        "handshake_duration_seconds{transport}: From the first look at a connection to its request being "
        "let in.",
        "command_duration_seconds{dialect,command}: From a command to its answer; a SUBSCRIBE waits for "
        "its source.",
        "write_stall_seconds{transport}: How long a socket took nothing, each time that it was more than a "
        "millisecond.",
        "ping_rtt_seconds{transport}: From a ping to its pong; only idle connections get pings.",
    ),
    Metric(
        "http_server_request_duration_seconds",
        MetricKind.HISTOGRAM,
        "Plain HTTP requests, those of the admin address too, by OpenTelemetry's name and buckets.",
        ("http_route", "http_request_method", "http_response_status_code"),
    ),
)

_SUBSCRIPTIONS = (
    *_own(
        MetricKind.GAUGE,
        "subscriptions{source,mode}: Open subscriptions.",
        "subscriptions_lagging{source}: Subscriptions that have not had everything.",
        "subscriptions_out_of_credit{source}: Of those, the ones that wait for credit.",
        "subscriptions_replaying{source}: Subscriptions that read the source's history.",
        "subscription_lag_events_max{source} (largest): Events that the slowest subscription is behind.",
        "subscription_lag_seconds_max{source} (largest): Age of the next event of the slowest subscription.",
    ),
    *_own(
        MetricKind.COUNTER,
        "subscriptions_started_total{source,dialect}: Subscriptions that were opened.",
        "subscriptions_ended_total{source,reason}: Open subscriptions that ended.",
        "events_delivered_total{source,dialect}: Events that clients were sent.",
        "delivered_bytes_total{source,dialect}: The bytes of these events with their framing.",
        "events_dropped_total{source,policy}: Events given up for clients, each announced.",
        "events_replayed_total{source}: Of the delivered ones, those read from the source's history.",
        "events_bad_total{source}: Events left out for clients: a query could not be evaluated, or there "
        "is no JSON for them.",
        "lag_notices_total{source}: LAG notices.",
        "credits_granted_total{source}: Credit that pull subscriptions were given.",
        "credits_used_total{source}: Credit that they used.",
    ),
    *_own(
        MetricKind.HISTOGRAM,
        "delivery_delay_seconds{source}: From the timestamp of a batch's first event to the end of its "
        "fan-out, per batch.",
        "fanout_duration_seconds{source}: From a batch's arrival to the end of its fan-out, per batch.",
    ),
)

_SOURCES = (
    *_own(
        MetricKind.GAUGE,
        "source_up{source} (smallest): 1 while the source runs and its origin answers.",
        "source_state{source,state} (largest): 1 for the state that the source is in.",
        "source_lag_records{source} (largest): Records that the origin has and the gateway has not read.",
        "source_partition_lag_records{source,partition} (largest): The same by partition, if "
        "`metrics.per_partition`.",
        "source_stalled_seconds{source} (largest): For how long it has had something to read and has not "
        "moved.",
        "source_last_event_timestamp_seconds{source} (largest): When the newest event happened.",
        "window_events{source}: Events in the window.",
        "window_bytes{source}: Memory of these events.",
        "wire_keys{source}: Different wire keys in use: each is an encoding of its own.",
        "groups{source}: Groups in which this gateway has a member, for clients that share what it is given.",
        "group_partitions{source}: Partitions that these members have.",
        "group_pending_events{source}: Events that clients of these members were given and that are not "
        "acknowledged.",
    ),
    *_own(
        MetricKind.COUNTER,
        "source_events_total{source}: Events read from the source (by every worker for itself).",
        "source_bytes_total{source}: What these events weigh in memory.",
        "source_decode_errors_total{source,kind}: What could not be read and was stepped over: damaged, "
        "too_large.",
        "source_restarts_total{source,reason}: Starts after the first: error, changed, altered.",
        "produced_records_total{source,result}: Records that clients wrote: written, not_written, unknown.",
        "commits_total{source,result}: Commits of clients, and of members of groups for theirs: ok, refused, "
        "failed.",
        "group_joins_total{source}: Members of groups that began.",
        "group_redeliveries_total{source}: Events that clients of members of groups were given again.",
    ),
    *_own(
        MetricKind.HISTOGRAM,
        "produce_duration_seconds{source}: From handing records over to a source to what became of them, per "
        "call.",
    ),
)

_PROCESS = (
    *(
        Metric(name, MetricKind.GAUGE, meaning, (), merge)
        for name, meaning, merge in (
            ("process_virtual_memory_bytes", "Virtual memory size.", _SUM),
            ("process_resident_memory_bytes", "Resident memory size.", _SUM),
            ("process_start_time_seconds", "When the process started, in seconds since the epoch.", _MIN),
            ("process_open_fds", "Open file descriptors.", _SUM),
            ("process_max_fds", "File descriptors that one process may open.", _MIN),
        )
    ),
    Metric("process_cpu_seconds_total", MetricKind.COUNTER, "User and system time."),
    *(
        Metric(name, MetricKind.COUNTER, meaning, ("generation",))
        for name, meaning in (
            ("python_gc_objects_collected_total", "Objects that the cycle collector freed."),
            ("python_gc_objects_uncollectable_total", "Objects that it could not free."),
            ("python_gc_collections_total", "Its runs."),
        )
    ),
    Metric(
        "python_info",
        MetricKind.GAUGE,
        "Always 1: the interpreter.",
        ("version", "implementation", "major", "minor", "patchlevel"),
        _MAX,
    ),
)

OWN = (*_GATEWAY, *_CONNECTIONS, *_SUBSCRIPTIONS, *_SOURCES, *_PROCESS)
"""Those that every gateway has."""

_ALL = {item.name: item for item in OWN}

CATALOG: Mapping[str, Metric] = MappingProxyType(_ALL)
"""All metrics by name, in the order of a scrape."""

_NAME = re.compile(r"[a-z][a-z0-9_]*")


def metric_of(spec: MetricSpec) -> Metric:
    """How it is exported."""
    merge = MergeRule(spec.merge)
    return Metric(PREFIX + spec.name, MetricKind(spec.kind), spec.meaning, ("source",), merge)


def declare(metrics: Iterable[MetricSpec]) -> None:
    """Add what a type of sources has for itself. PluginError for a name that means something else already,
    or is none."""
    for spec in metrics:
        metric = metric_of(spec)
        wrong = not _NAME.fullmatch(spec.name) or spec.name.endswith("_total") != spec.grows
        if wrong or _ALL.setdefault(metric.name, metric) != metric:
            raise PluginError(f"{spec.name!r} cannot be the name of a {spec.kind} of a type of sources")
