"""Reads the state of a running gateway into a snapshot, a piece at a time so that events keep flowing."""

from __future__ import annotations

import platform
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

import trio
from prometheus_client import CollectorRegistry, GCCollector, PlatformCollector, ProcessCollector

from kiwi_gw import __version__, logs
from kiwi_gw.core.hub_limits import HubState
from kiwi_gw.core.source_hub import SourceHub
from kiwi_gw.core.states import IN_HISTORY, NOT_LIVE
from kiwi_gw.core.subscription import Subscription
from kiwi_gw.edge.metrics.catalog import CATALOG, declare
from kiwi_gw.edge.metrics.snapshot import MetricsSnapshot
from kiwi_gw.edge.websocket_writer import WebSocketWriter
from kiwi_gw.model import Mode
from kiwi_gw.plugin_manager import PluginManager
from kiwi_gw.runtime.connection import Connection
from kiwi_gw.runtime.gateway import Gateway
from kiwi_gw.runtime.meters import Histogram, SourceMeter
from kiwi_gw.runtime.request_rights import MOST_GROUPS
from kiwi_gw.runtime.source_runner import SourceRunner

_TURN_SECONDS = 0.001
"""How long is read before others get their turn."""

_OPCODES = {0: "continuation", 1: "text", 2: "binary", 8: "close", 9: "ping", 10: "pong"}

_WS, _HTTP = "ws", "http"
"""The transport of every connection that has subscriptions so far."""

_MAX_PARTITIONS = 256

_Key = TypeVar("_Key", bound=str | tuple[str, ...])


class ListenerStats(Protocol):
    """What is read of a listener."""

    rejected: Counter[str]


class ReloadStats(Protocol):
    """What is read of a reloader."""

    applied: int
    refused: int
    applied_at: float


@dataclass(slots=True)
class _Slowest:
    """The subscription of a source that is furthest behind."""

    behind: int = 0
    subscription: Subscription | None = None


_Totals = Counter[tuple[str, ...]]
"""What open connections and subscriptions add to what the meters kept of those that are over: by metric and
labels."""


class Collector:
    """Makes snapshots of one process. dialects: names of those that it serves. clock: monotonic seconds."""

    def __init__(
        self,
        gateway: Gateway,
        listener: ListenerStats,
        reloads: ReloadStats,
        dialects: Sequence[str] = (),
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._gateway = gateway
        self._listener = listener
        self._reloads = reloads
        self._dialects = tuple(dialects)
        self._clock = clock
        registry = CollectorRegistry()
        self._standard = (
            ProcessCollector(registry=registry),
            GCCollector(registry=registry),
            PlatformCollector(registry=registry),
        )
        self._types: PluginManager | None = None
        self._declare()

    async def collect(self) -> MetricsSnapshot:
        """Everything there is to see. Counters never go back from one snapshot to the next."""
        self._declare()
        snapshot = MetricsSnapshot()
        # What is over is read in the same step as the lists of what is open: what ends while they are
        # walked is in them with all its numbers, and not among what is over.
        connections = [(item, tuple(item.subscriptions.values())) for item in self._gateway.connections]
        hubs = [*(runner.hub for runner in self._gateway.runners()), *self._gateway.leaving]
        totals: _Totals = Counter({("connections_blocked", _WS): 0, ("outbound_buffer_bytes", _WS): 0})
        totals["sent_bytes_total", _WS] = self._gateway.meters.sent_bytes
        slowest: dict[str, _Slowest] = {}
        for meter in self._gateway.meters.sources():
            _source_over(totals, meter)
        self._groups(totals)
        turn = _CollectorTurn()
        for connection, subscriptions in connections:
            await turn.over()
            _connection(totals, connection)
            for subscription in subscriptions:
                self._subscription(totals, slowest, connection.dialect, subscription)
        for meter in self._gateway.meters.sources():
            await turn.over()
            _meter(snapshot, meter)
        for runner in list(self._gateway.runners()):
            await turn.over()
            self._source(snapshot, slowest, runner)
        for hub in hubs:
            await turn.over()
            self._hub(snapshot, hub)
        self._counted(snapshot)
        self._gauges(snapshot)
        for standard in self._standard:
            for family in standard.collect():
                for sample in family.samples:
                    names = CATALOG[sample.name].labels
                    snapshot.put(sample.name, sample.value, *(sample.labels[name] for name in names))
        for (name, *labels), value in totals.items():
            snapshot.put(name, value, *labels)
        return snapshot

    # --- inside ----------------------------------------------------------------------------

    def _declare(self) -> None:
        """Know what the types of sources count, those of the last reload, too."""
        plugins = self._gateway.loaded.plugins
        if plugins is not self._types:
            self._types = plugins
            for kind in plugins.source_types().values():
                declare(kind.metrics)

    def _groups(self, totals: _Totals) -> None:
        for group in self._gateway.request_load.groups:
            label, sink = self._gateway.meters.source(group.source_id).label, group.sink
            totals["groups", label] += 1
            totals["group_partitions", label] += len(sink.offsets)
            totals["group_pending_events", label] += sink.pending
            totals["group_redeliveries_total", label] += sink.redelivered

    def _counted(self, snapshot: MetricsSnapshot) -> None:
        gateway, meters = self._gateway, self._gateway.meters
        for dialect, count in meters.opened.items():
            # Who reads for plain requests is one, too, of a protocol without WebSocket.
            snapshot.put(
                "connections_opened_total", count, dialect, _WS if dialect in self._dialects else _HTTP
            )
        _put_counts(snapshot, "connections_closed_total", meters.closed)
        _put_counts(snapshot, "connections_rejected_total", self._listener.rejected)
        _put_counts(snapshot, "commands_total", meters.commands)
        _put_counts(snapshot, "auth_total", meters.auth)
        _put_counts(snapshot, "hook_failures_total", gateway.hooks.failures)
        _put_counts(snapshot, "protocol_errors_total", meters.protocol_errors)
        _put_counts(snapshot, "rate_limited_total", meters.rate_limited)
        _put_histograms(snapshot, "connection_duration_seconds", meters.lives)
        _put_histograms(snapshot, "handshake_duration_seconds", meters.handshakes)
        _put_histograms(snapshot, "command_duration_seconds", meters.command_durations)
        _put_histograms(snapshot, "http_server_request_duration_seconds", meters.requests)
        _put(snapshot, "event_loop_lag_seconds", meters.loop_lag)
        _put(snapshot, "write_stall_seconds", meters.stalls, _WS)
        _put(snapshot, "ping_rtt_seconds", meters.pings, _WS)
        snapshot.put("received_bytes_total", meters.received_bytes, _WS)
        for dialect, frames in meters.all_frames().items():
            for opcode, name in _OPCODES.items():
                snapshot.put("frames_received_total", frames[opcode], dialect, name)
        snapshot.put("pong_timeouts_total", gateway.keepalive.unresponsive, _WS)
        snapshot.put("vanished_total", gateway.keepalive.vanished, _WS)
        snapshot.put("write_deadline_exceeded_total", gateway.keepalive.stalled, _WS)
        snapshot.put("config_reloads_total", self._reloads.applied, "applied")
        snapshot.put("config_reloads_total", self._reloads.refused, "refused")
        snapshot.put("log_lines_lost_total", logs.lost())
        snapshot.put("encodings_total", gateway.encodings.hits, "hit")
        snapshot.put("encodings_total", gateway.encodings.misses, "miss")
        snapshot.put("queries_seconds_total", gateway.evaluations.all.used, "evaluating")
        snapshot.put("queries_seconds_total", gateway.compiling.used, "compiling")
        snapshot.put("queries_postponed_total", gateway.evaluations.postponed)
        snapshot.put("queries_refused_total", gateway.compiling.refused)

    def _subscription(
        self, totals: _Totals, slowest: dict[str, _Slowest], dialect: str, subscription: Subscription
    ) -> None:
        label, delivery = self._gateway.meters.source(subscription.hub.info.id).label, subscription.delivery
        totals["events_delivered_total", label, dialect] += delivery.matched
        totals["delivered_bytes_total", label, dialect] += delivery.bytes
        totals["events_bad_total", label] += delivery.decode_errors
        if delivery.mode is Mode.PULL:
            totals["credits_used_total", label] += delivery.matched
        if subscription.closed:
            return  # it ended while we looked
        totals["subscriptions", label, delivery.mode.value] += 1
        if subscription.state in NOT_LIVE:
            totals["subscriptions_lagging", label] += 1
            if delivery.mode is Mode.PULL and delivery.credits == 0:
                totals["subscriptions_out_of_credit", label] += 1
            if subscription.state in IN_HISTORY:
                totals["subscriptions_replaying", label] += 1
            found = slowest.setdefault(label, _Slowest())
            if subscription.behind > found.behind:
                found.behind, found.subscription = subscription.behind, subscription

    def _source(
        self, snapshot: MetricsSnapshot, slowest_of: Mapping[str, _Slowest], runner: SourceRunner
    ) -> None:
        label = self._gateway.meters.source(runner.hub.info.id).label
        slowest = slowest_of.get(label, _Slowest())
        snapshot.put("subscription_lag_events_max", slowest.behind, label)
        snapshot.put("subscription_lag_seconds_max", _age(slowest.subscription, time.time()), label)
        # Zeros, so that a series is there before the first such subscription.
        for name in ("subscriptions_lagging", "subscriptions_out_of_credit", "subscriptions_replaying"):
            snapshot.put(name, 0, label)
        for mode in Mode:
            snapshot.put("subscriptions", 0, label, mode.value)
        snapshot.put("events_dropped_total", 0, label, runner.hub.limits.overflow.value)
        state, statistics = runner.hub.state, runner.statistics()
        reachable = statistics is None or statistics.reachable
        snapshot.put("source_up", int(state is HubState.RUNNING and reachable), label)
        for known in HubState:
            snapshot.put("source_state", int(known is state), label, known.value)
        snapshot.put("source_stalled_seconds", runner.stalled(self._clock()), label)
        for name, value in runner.metrics.gauges.items():
            snapshot.put(name, value, label)
        if statistics is not None and statistics.behind:
            snapshot.put("source_lag_records", sum(statistics.behind.values()), label)
            if self._gateway.loaded.settings.metrics.per_partition:
                for partition in sorted(statistics.behind)[:_MAX_PARTITIONS]:
                    behind = statistics.behind[partition]
                    snapshot.put("source_partition_lag_records", behind, label, str(partition))

    def _hub(self, snapshot: MetricsSnapshot, hub: SourceHub) -> None:
        label = self._gateway.meters.source(hub.info.id).label
        for policy, count in hub.dropped.items():
            snapshot.put("events_dropped_total", count, label, policy.value)
        snapshot.put("lag_notices_total", hub.lag_notices, label)
        snapshot.put("events_replayed_total", hub.events_replayed, label)
        snapshot.put("window_events", len(hub.window), label)
        snapshot.put("window_bytes", hub.window.bytes, label)
        snapshot.put("wire_keys", hub.wire_keys, label)

    def _gauges(self, snapshot: MetricsSnapshot) -> None:
        gateway = self._gateway
        settings = gateway.loaded.settings
        snapshot.put("build_info", 1, __version__, platform.python_version(), trio.__version__)
        snapshot.put("config_info", 1, gateway.loaded.text_hash[:8])
        snapshot.put("config_last_reload_success_timestamp_seconds", self._reloads.applied_at)
        snapshot.put("draining", int(gateway.draining))
        snapshot.put("overload_level", gateway.memory_watch.level)
        snapshot.put("tasks", trio.lowlevel.current_statistics().tasks_living)
        snapshot.put("workers", settings.server.workers)
        if settings.server.limits.max_connections:  # a rule that divides by it would divide by zero
            snapshot.put("connections_limit", settings.server.limits.max_connections)
        for dialect in self._dialects:
            snapshot.put("connections", 0, dialect, _WS)
            snapshot.put("connections_opened_total", 0, dialect, _WS)
        snapshot.put("encodings_bytes", gateway.encodings.bytes)
        snapshot.put("queries_waiting", len(gateway.evaluations))
        snapshot.put("requests_waiting", gateway.request_load.waiting)
        snapshot.put("groups_limit", MOST_GROUPS)
        snapshot.put("memory_used_bytes", gateway.memory.used)
        snapshot.put("memory_limit_bytes", gateway.memory.limit)


class _CollectorTurn:
    """Lets others run whenever it has been busy for a while."""

    def __init__(self) -> None:
        self._until = time.perf_counter() + _TURN_SECONDS

    async def over(self) -> None:
        if time.perf_counter() >= self._until:
            await trio.lowlevel.checkpoint()
            self._until = time.perf_counter() + _TURN_SECONDS


def _connection(totals: _Totals, connection: Connection) -> None:
    writer = connection.writer
    totals["sent_bytes_total", _WS] += writer.sent_bytes
    if connection.closed:
        return  # it ended while we looked
    transport = _WS if isinstance(writer, WebSocketWriter) else _HTTP
    totals["connections", connection.dialect, transport] += 1
    totals["connections_blocked", _WS] += writer.full
    if isinstance(writer, WebSocketWriter):
        totals["outbound_buffer_bytes", _WS] += writer.waiting_bytes


def _source_over(totals: _Totals, meter: SourceMeter) -> None:
    label = meter.label
    for dialect, count in meter.delivered.items():
        totals["events_delivered_total", label, dialect] += count
    for dialect, count in meter.delivered_bytes.items():
        totals["delivered_bytes_total", label, dialect] += count
    totals["credits_used_total", label] += meter.credits_used
    totals["events_bad_total", label] += meter.decode_errors
    totals["lag_notices_total", label] += meter.lag_notices
    totals["events_replayed_total", label] += meter.replayed
    if meter.joins:
        for name in ("groups", "group_partitions", "group_pending_events"):
            totals[name, label] += 0
        totals["group_redeliveries_total", label] += meter.redelivered
    for policy, count in meter.dropped.items():
        totals["events_dropped_total", label, policy] += count


def _meter(snapshot: MetricsSnapshot, meter: SourceMeter) -> None:
    """Put what is over as well as open: it is counted when it happens."""
    label = meter.label
    snapshot.put("credits_granted_total", meter.credits_granted, label)
    snapshot.put("source_events_total", meter.events, label)
    snapshot.put("source_bytes_total", meter.bytes, label)
    if meter.last_event:
        snapshot.put("source_last_event_timestamp_seconds", meter.last_event, label)
    snapshot.put("source_restarts_total", 0, label, "error")
    _put_counts(snapshot, "source_decode_errors_total", meter.unreadable, label)
    _put_counts(snapshot, "source_restarts_total", meter.restarts, label)
    _put_counts(snapshot, "subscriptions_started_total", meter.started, label)
    _put_counts(snapshot, "subscriptions_ended_total", meter.ended, label)
    _put_counts(snapshot, "produced_records_total", meter.produced, label)
    _put_counts(snapshot, "commits_total", meter.commits, label)
    if meter.joins:
        snapshot.put("group_joins_total", meter.joins, label)
    if meter.produced:
        _put(snapshot, "produce_duration_seconds", meter.produce_duration, label)
    for name, value in meter.metrics.items():
        snapshot.put(name, value, label)
    for name, histogram in meter.histograms.items():
        _put(snapshot, name, histogram, label)
    _put(snapshot, "delivery_delay_seconds", meter.delivery_delay, label)
    _put(snapshot, "fanout_duration_seconds", meter.fanout, label)


def _age(subscription: Subscription | None, wall: float) -> float:
    """Seconds since the next event of a subscription happened; 0 if that is not known."""
    if subscription is None or subscription.state in IN_HISTORY:
        return 0.0
    window = subscription.hub.window
    cursor = max(subscription.seq, window.base)
    entry = window.find(cursor)
    timestamps = entry.batch.columns.get("timestamp") if entry is not None else None
    if entry is None or timestamps is None:
        return 0.0
    happened = timestamps[cursor - entry.base]
    return max(0.0, wall - happened / 1000) if isinstance(happened, int) and happened >= 0 else 0.0


def _put(snapshot: MetricsSnapshot, name: str, histogram: Histogram, *labels: str) -> None:
    snapshot.put_histogram(name, histogram.bounds, histogram.counts, histogram.sum, *labels)


def _put_counts(snapshot: MetricsSnapshot, name: str, counts: Mapping[_Key, int], *labels: str) -> None:
    for key, count in counts.items():
        snapshot.put(name, count, *labels, *_labels(key))


def _put_histograms(snapshot: MetricsSnapshot, name: str, histograms: Mapping[_Key, Histogram]) -> None:
    for key, histogram in histograms.items():
        _put(snapshot, name, histogram, *_labels(key))


def _labels(key: str | tuple[str, ...]) -> tuple[str, ...]:
    return (key,) if isinstance(key, str) else key
