"""Sources, connections and subscriptions as JSON-compatible dictionaries. Times are seconds."""

from __future__ import annotations

import time
from typing import Any

from kiwi_gw.core.subscription import Subscription
from kiwi_gw.edge.websocket_writer import WebSocketWriter
from kiwi_gw.runtime.connection import Connection
from kiwi_gw.runtime.source_runner import SourceRunner

Item = dict[str, Any]

_HOLDERS = 10


def source_item(runner: SourceRunner) -> Item:
    """Show a source. `lag` is null where the source does not know; `positions` is null until it has
    started; `lag`, `positions` and `details` are in its own words (Kafka: by partition). `reloadRefused`:
    what of the last reload cannot work, so that it goes on as it was. `degraded`: what subscribers are told
    of its trouble. `heldBy`: the connections for which the source waits just now (policy `block`), the first
    ten."""
    hub, statistics = runner.hub, runner.statistics()
    window = hub.window
    behind = statistics.behind if statistics is not None else {}
    return {
        "id": hub.info.id,
        "type": hub.info.type,
        "state": hub.state.value,
        "error": runner.last_error or None,
        "degraded": hub.degradation or None,
        "reloadRefused": runner.refused or None,
        "restarts": runner.restarts,
        "reachable": statistics.reachable if statistics is not None else None,
        "details": dict(statistics.details) if statistics is not None and statistics.details else None,
        "lag": {str(partition): behind[partition] for partition in sorted(behind)} or None,
        "stalledSeconds": round(runner.stalled(time.monotonic()), 3),
        "subscriptions": hub.subscribers,
        "lagging": hub.behind,
        "heldBy": hub.held_by[:_HOLDERS],
        "wireKeys": hub.wire_keys,
        "events": hub.events_in,
        "dropped": sum(hub.dropped.values()),
        "window": {
            "events": len(window),
            "bytes": window.bytes,
            "maxEvents": window.max_events,
            "maxBytes": window.max_bytes,
        },
        "positions": hub.dump(hub.positions) if hub.positions else None,
    }


def connection_item(connection: Connection) -> Item:
    """Show a connection. `idleSeconds`: since the client last sent a byte."""
    writer, now = connection.writer, time.monotonic()
    open_ones = connection.subscriptions.values()
    return {
        "id": str(connection.number),
        "dialect": connection.dialect,
        "remote": connection.remote,
        "identity": connection.identity.name,
        "ageSeconds": round(now - connection.opened_at, 3),
        "idleSeconds": round(now - connection.heard_at, 3),
        "subscriptions": len(connection.subscriptions),
        "delivered": connection.delivered + sum(item.delivery.matched for item in open_ones),
        "sentBytes": writer.sent_bytes,
        "waitingBytes": writer.waiting_bytes if isinstance(writer, WebSocketWriter) else 0,
        "blocked": writer.full,
        "closing": writer.close_code,
    }


def subscription_item(connection: Connection, item: Subscription) -> Item:
    """Show a subscription. `credits` is null for push; `behind` and `unannounced` (given up, and the
    client not told yet) count events of the source; `positions` is where its next event is."""
    info = item.hub.info
    opened = item.seq >= 0
    return {
        "connection": str(connection.number),
        "identity": connection.identity.name,
        "source": info.id,
        "mode": item.delivery.mode.value,
        "state": item.state.value,
        "overflow": item.reader.terms.policy.value,
        "credits": item.delivery.credits if item.delivery.mode.value == "pull" else None,
        "behind": item.behind,
        "bufferCapacity": item.reader.terms.capacity,
        "unannounced": item.reader.lag.dropped,
        "scanned": item.delivery.scanned,
        "delivered": item.delivery.matched,
        "bad": item.delivery.decode_errors,
        "bytes": item.delivery.bytes,
        "positions": item.hub.dump(item.positions) if opened else None,
    }
