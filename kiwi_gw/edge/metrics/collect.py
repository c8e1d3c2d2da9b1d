"""Reads the state of a running gateway into a snapshot, a piece at a time so that events keep flowing."""

from __future__ import annotations

import platform
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import trio
from prometheus_client import CollectorRegistry, GCCollector, PlatformCollector, ProcessCollector

from kiwi_gw import __version__, logs
from kiwi_gw.core.feed import Feed, FeedState
from kiwi_gw.core.states import IN_HISTORY, NOT_LIVE
from kiwi_gw.core.subscription import Subscription
from kiwi_gw.edge.metrics.catalog import CATALOG, declare
from kiwi_gw.edge.metrics.snapshot import Snapshot
from kiwi_gw.edge.outlet import Outlet
from kiwi_gw.model import Mode
from kiwi_gw.plugin_manager import PluginManager
from kiwi_gw.runtime.connection import Connection
from kiwi_gw.runtime.gateway import Gateway
from kiwi_gw.runtime.meters import Histogram, SourceMeter
from kiwi_gw.runtime.source_runner import SourceRunner

_TURN_SECONDS = 0.001
"""How long is read before others get their turn."""

_OPCODES = {0: "continuation", 1: "text", 2: "binary", 8: "close", 9: "ping", 10: "pong"}

_WS = "ws"
"""The transport of every connection that has subscriptions so far."""

_MAX_PARTITIONS = 256


class Door(Protocol):
    """What is read of a listener."""

    rejected: Counter[str]


class Reloads(Protocol):
    """What is read of a reloader."""

    applied: int
    refused: int
    applied_at: float


@dataclass(slots=True)
class _Slowest:
    """The subscription of a source that is furthest behind."""

    behind: int = 0
    subscription: Subscription | None = None


@dataclass(slots=True)
class _Open:
    """What open connections and subscriptions add to what the meters kept of those that are over."""

    sent_bytes: int
    connections: Counter[str] = field(default_factory=Counter)
    blocked: int = 0
    waiting_bytes: int = 0
    subscriptions: Counter[tuple[str, str]] = field(default_factory=Counter)
    lagging: Counter[str] = field(default_factory=Counter)
    out_of_credit: Counter[str] = field(default_factory=Counter)
    replaying: Counter[str] = field(default_factory=Counter)
    delivered: Counter[tuple[str, str]] = field(default_factory=Counter)
    delivered_bytes: Counter[tuple[str, str]] = field(default_factory=Counter)
    credits_used: Counter[str] = field(default_factory=Counter)
    bad: Counter[str] = field(default_factory=Counter)
    dropped: Counter[tuple[str, str]] = field(default_factory=Counter)
    lag_notices: Counter[str] = field(default_factory=Counter)
    replayed: Counter[str] = field(default_factory=Counter)
    slowest: dict[str, _Slowest] = field(default_factory=dict)


class Collector:
    """Makes snapshots of one process. dialects: names of those that it serves. clock: monotonic seconds."""

    def __init__(
        self,
        gateway: Gateway,
        door: Door,
        reloads: Reloads,
        dialects: Sequence[str] = (),
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._gateway = gateway
        self._door = door
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

    async def collect(self) -> Snapshot:
        """Everything there is to see. Counters never go back from one snapshot to the next."""
        self._declare()
        snapshot = Snapshot()
        # What is over is read in the same step as the lists of what is open: what ends while they are
        # walked is in them with all its numbers, and not among what is over.
        connections = [(item, tuple(item.subscriptions.values())) for item in self._gateway.connections]
        feeds = [*(runner.feed for runner in self._gateway.runners()), *self._gateway.leaving]
        over = _Open(self._gateway.meters.sent_bytes)
        for meter in self._gateway.meters.sources():
            _source_over(over, meter)
        turn = _Turn()
        for connection, subscriptions in connections:
            await turn.over()
            self._connection(over, connection)
            for subscription in subscriptions:
                self._subscription(over, connection.dialect, subscription)
        for meter in self._gateway.meters.sources():
            await turn.over()
            _meter(snapshot, meter)
        for runner in list(self._gateway.runners()):
            await turn.over()
            self._source(snapshot, over, runner)
        for feed in feeds:
            await turn.over()
            self._feed(snapshot, feed)
        self._counted(snapshot)
        self._gauges(snapshot)
        for standard in self._standard:
            for family in standard.collect():
                for sample in family.samples:
                    names = CATALOG[sample.name].labels
                    snapshot.put(sample.name, sample.value, *(sample.labels[name] for name in names))
        _put_open(snapshot, over)
        return snapshot

    # --- inside ----------------------------------------------------------------------------

    def _declare(self) -> None:
        """Know what the types of sources count, those of the last reload, too."""
        plugins = self._gateway.loaded.plugins
        if plugins is not self._types:
            self._types = plugins
            for kind in plugins.source_types().values():
                declare(kind.figures)

    def _counted(self, snapshot: Snapshot) -> None:
        gateway, meters = self._gateway, self._gateway.meters
        for dialect, count in meters.opened.items():
            snapshot.put("connections_opened_total", count, dialect, _WS)
        for (dialect, code), count in meters.closed.items():
            snapshot.put("connections_closed_total", count, dialect, code)
        for reason, count in self._door.rejected.items():
            snapshot.put("connections_rejected_total", count, reason)
        for key, count in meters.commands.items():
            snapshot.put("commands_total", count, *key)
        for who, count in meters.auth.items():
            snapshot.put("auth_total", count, *who)
        for hook, count in gateway.hooks.failures.items():
            snapshot.put("hook_failures_total", count, hook)
        for dialect, lives in meters.lives.items():
            _put(snapshot, "connection_duration_seconds", lives, dialect)
        for transport, handshakes in meters.handshakes.items():
            _put(snapshot, "handshake_duration_seconds", handshakes, transport)
        for command, durations in meters.command_durations.items():
            _put(snapshot, "command_duration_seconds", durations, *command)
        for request, durations in meters.requests.items():
            _put(snapshot, "http_server_request_duration_seconds", durations, *request)
        _put(snapshot, "event_loop_lag_seconds", meters.loop_lag)
        _put(snapshot, "write_stall_seconds", meters.stalls, _WS)
        _put(snapshot, "ping_rtt_seconds", meters.pings, _WS)
        snapshot.put("received_bytes_total", meters.received_bytes, _WS)
        for dialect, frames in meters.all_frames().items():
            for opcode, name in _OPCODES.items():
                snapshot.put("frames_received_total", frames[opcode], dialect, name)
        for error, count in meters.protocol_errors.items():
            snapshot.put("protocol_errors_total", count, *error)
        for kind, count in meters.rate_limited.items():
            snapshot.put("rate_limited_total", count, kind)
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

    def _connection(self, over: _Open, connection: Connection) -> None:
        outlet = connection.outlet
        over.sent_bytes += outlet.sent_bytes
        if connection.closed:
            return  # it ended while we looked
        over.connections[connection.dialect] += 1
        over.blocked += outlet.full
        if isinstance(outlet, Outlet):
            over.waiting_bytes += outlet.waiting_bytes

    def _subscription(self, over: _Open, dialect: str, subscription: Subscription) -> None:
        label = self._gateway.meters.source(subscription.feed.info.id).label
        over.delivered[label, dialect] += subscription.matched
        over.delivered_bytes[label, dialect] += subscription.bytes
        over.bad[label] += subscription.bad
        if subscription.mode is Mode.PULL:
            over.credits_used[label] += subscription.matched
        if subscription.closed:
            return  # it ended while we looked
        over.subscriptions[label, subscription.mode.value] += 1
        if subscription.state in NOT_LIVE:
            over.lagging[label] += 1
            if subscription.mode is Mode.PULL and subscription.credits == 0:
                over.out_of_credit[label] += 1
            if subscription.state in IN_HISTORY:
                over.replaying[label] += 1
            slowest = over.slowest.setdefault(label, _Slowest())
            if subscription.behind > slowest.behind:
                slowest.behind, slowest.subscription = subscription.behind, subscription

    def _source(self, snapshot: Snapshot, over: _Open, runner: SourceRunner) -> None:
        label = self._gateway.meters.source(runner.feed.info.id).label
        slowest = over.slowest.get(label, _Slowest())
        snapshot.put("subscription_lag_events_max", slowest.behind, label)
        snapshot.put("subscription_lag_seconds_max", _age(slowest.subscription, time.time()), label)
        # Zeros, so that a series is there before the first such subscription.
        for name in ("subscriptions_lagging", "subscriptions_out_of_credit", "subscriptions_replaying"):
            snapshot.put(name, 0, label)
        for mode in Mode:
            snapshot.put("subscriptions", 0, label, mode.value)
        snapshot.put("events_dropped_total", 0, label, runner.feed.limits.overflow.value)
        state, statistics = runner.feed.state, runner.statistics()
        reachable = statistics is None or statistics.reachable
        snapshot.put("source_up", int(state is FeedState.RUNNING and reachable), label)
        for known in FeedState:
            snapshot.put("source_state", int(known is state), label, known.value)
        snapshot.put("source_stalled_seconds", runner.stalled(self._clock()), label)
        for name, value in runner.figures.gauges.items():
            snapshot.put(name, value, label)
        if statistics is not None and statistics.behind:
            snapshot.put("source_lag_records", sum(statistics.behind.values()), label)
            if self._gateway.loaded.settings.metrics.per_partition:
                for partition in sorted(statistics.behind)[:_MAX_PARTITIONS]:
                    behind = statistics.behind[partition]
                    snapshot.put("source_partition_lag_records", behind, label, str(partition))

    def _feed(self, snapshot: Snapshot, feed: Feed) -> None:
        label = self._gateway.meters.source(feed.info.id).label
        for policy, count in feed.dropped.items():
            snapshot.put("events_dropped_total", count, label, policy.value)
        snapshot.put("lag_notices_total", feed.lag_notices, label)
        snapshot.put("events_replayed_total", feed.events_replayed, label)
        snapshot.put("window_events", len(feed.window), label)
        snapshot.put("window_bytes", feed.window.bytes, label)
        snapshot.put("wire_keys", feed.wire_keys, label)

    def _gauges(self, snapshot: Snapshot) -> None:
        gateway = self._gateway
        settings = gateway.loaded.settings
        snapshot.put("build_info", 1, __version__, platform.python_version(), trio.__version__)
        snapshot.put("config_info", 1, gateway.loaded.text_hash[:8])
        snapshot.put("config_last_reload_success_timestamp_seconds", self._reloads.applied_at)
        snapshot.put("draining", int(gateway.draining))
        snapshot.put("overload_level", gateway.memory_watch.level)
        snapshot.put("tasks", trio.lowlevel.current_statistics().tasks_living)
        snapshot.put("workers", settings.server.workers)
        if settings.server.limits.max_connections:  # whoever divides by it would divide by zero
            snapshot.put("connections_limit", settings.server.limits.max_connections)
        for dialect in self._dialects:
            snapshot.put("connections", 0, dialect, _WS)
            snapshot.put("connections_opened_total", 0, dialect, _WS)
        snapshot.put("encodings_bytes", gateway.encodings.bytes)
        snapshot.put("queries_waiting", len(gateway.evaluations))
        snapshot.put("memory_used_bytes", gateway.memory.used)
        snapshot.put("memory_limit_bytes", gateway.memory.limit)


class _Turn:
    """Lets others run whenever it has been busy for a while."""

    def __init__(self) -> None:
        self._until = time.perf_counter() + _TURN_SECONDS

    async def over(self) -> None:
        if time.perf_counter() >= self._until:
            await trio.lowlevel.checkpoint()
            self._until = time.perf_counter() + _TURN_SECONDS


def _source_over(over: _Open, meter: SourceMeter) -> None:
    label = meter.label
    for dialect, count in meter.delivered.items():
        over.delivered[label, dialect] += count
    for dialect, count in meter.delivered_bytes.items():
        over.delivered_bytes[label, dialect] += count
    over.credits_used[label] += meter.credits_used
    over.bad[label] += meter.bad
    over.lag_notices[label] += meter.lag_notices
    over.replayed[label] += meter.replayed
    for policy, count in meter.dropped.items():
        over.dropped[label, policy] += count


def _meter(snapshot: Snapshot, meter: SourceMeter) -> None:
    """What is over as well as open: it is counted when it happens."""
    label = meter.label
    snapshot.put("credits_granted_total", meter.credits_granted, label)
    snapshot.put("source_events_total", meter.events, label)
    snapshot.put("source_bytes_total", meter.bytes, label)
    if meter.last_event:
        snapshot.put("source_last_event_timestamp_seconds", meter.last_event, label)
    snapshot.put("source_restarts_total", 0, label, "error")
    for kind, count in meter.unreadable.items():
        snapshot.put("source_decode_errors_total", count, label, kind)
    for reason, count in meter.restarts.items():
        snapshot.put("source_restarts_total", count, label, reason)
    for dialect, count in meter.started.items():
        snapshot.put("subscriptions_started_total", count, label, dialect)
    for reason, count in meter.ended.items():
        snapshot.put("subscriptions_ended_total", count, label, reason)
    for name, value in meter.figures.items():
        snapshot.put(name, value, label)
    for name, histogram in meter.histograms.items():
        _put(snapshot, name, histogram, label)
    _put(snapshot, "delivery_delay_seconds", meter.delivery_delay, label)
    _put(snapshot, "fanout_duration_seconds", meter.fanout, label)


def _put_open(snapshot: Snapshot, over: _Open) -> None:
    snapshot.put("connections_blocked", over.blocked, _WS)
    snapshot.put("outbound_buffer_bytes", over.waiting_bytes, _WS)
    for dialect, count in over.connections.items():
        snapshot.put("connections", count, dialect, _WS)
    for row, count in over.subscriptions.items():
        snapshot.put("subscriptions", count, *row)
    for name, counts in (
        ("subscriptions_lagging", over.lagging),
        ("subscriptions_out_of_credit", over.out_of_credit),
        ("subscriptions_replaying", over.replaying),
        ("lag_notices_total", over.lag_notices),
        ("events_replayed_total", over.replayed),
    ):
        for label, count in counts.items():
            snapshot.put(name, count, label)
    for (label, policy), count in over.dropped.items():
        snapshot.put("events_dropped_total", count, label, policy)
    snapshot.put("sent_bytes_total", over.sent_bytes, _WS)
    for key, count in over.delivered.items():
        snapshot.put("events_delivered_total", count, *key)
    for key, count in over.delivered_bytes.items():
        snapshot.put("delivered_bytes_total", count, *key)
    for label, count in over.credits_used.items():
        snapshot.put("credits_used_total", count, label)
    for label, count in over.bad.items():
        snapshot.put("events_bad_total", count, label)


def _age(subscription: Subscription | None, wall: float) -> float:
    """Seconds since the next event of a subscription happened; 0 if that is not known."""
    if subscription is None or subscription.state in IN_HISTORY:
        return 0.0
    window = subscription.feed.window
    cursor = max(subscription.cursor, window.base)
    entry = window.find(cursor)
    timestamps = entry.batch.columns.get("timestamp") if entry is not None else None
    if entry is None or timestamps is None:
        return 0.0
    happened = timestamps[cursor - entry.base]
    return max(0.0, wall - happened / 1000) if isinstance(happened, int) and happened >= 0 else 0.0


def _put(snapshot: Snapshot, name: str, histogram: Histogram, *labels: str) -> None:
    snapshot.put_histogram(name, histogram.bounds, histogram.counts, histogram.sum, *labels)
