"""What a configuration says of a source, as what starts it needs it."""

from __future__ import annotations

from dataclasses import dataclass, replace

from kiwi_gw.api import SourceType
from kiwi_gw.config import LoadedConfig, SourceSettings
from kiwi_gw.core.hub_limits import HubLimits
from kiwi_gw.model import OverflowPolicy, SourceInfo


@dataclass(frozen=True, slots=True)
class SourcePlan:
    """A source that can be started: everything that a plugin says of it has been asked.

    altered: as in `SourceContext`."""

    entry: SourceSettings
    kind: SourceType
    info: SourceInfo
    services: tuple[str, ...]
    altered: bool


def plan_of(entry: SourceSettings, loaded: LoadedConfig, *, altered: bool = False) -> SourcePlan:
    kind = loaded.plugins.source_types()[entry.type]
    description = kind.description_of(entry.settings)
    decode = replace(description.decode, close=entry.subscriber.on_bad_record == "close")
    info = SourceInfo(
        entry.id,
        entry.type,
        description.schema,
        description.codec,
        description.replayable,
        decode,
        entry.blocks,
        entry.subscriber.value_as,
        publish=description.publish,
        commit=description.commit,
        keeps_commits=description.keeps_commits,
    )
    return SourcePlan(entry, kind, info, tuple(description.services), altered)


def limits_of(entry: SourceSettings, loaded: LoadedConfig, start_ms: int, *, replayable: bool) -> HubLimits:
    subscriber, window = entry.subscriber, entry.window
    usual = OverflowPolicy.REPLAY if replayable else OverflowPolicy.DROP_OLDEST
    overflow, fallback = subscriber.overflow or usual, subscriber.block_fallback or usual
    if OverflowPolicy.REPLAY in (overflow, fallback) and not replayable:
        # It was said for all sources together: of this one, which cannot, it says nothing.
        overflow = usual if overflow is OverflowPolicy.REPLAY else overflow
        fallback = usual if fallback is OverflowPolicy.REPLAY else fallback
    limits = loaded.settings.server.limits
    return HubLimits(
        window_events=window.events,
        window_bytes=window.bytes,
        buffer_capacity=subscriber.buffer_capacity or 0,
        lag_threshold=subscriber.lag_notice_threshold or 0,
        lag_interval=subscriber.lag_notice_interval_ms / 1000,
        overflow=overflow,
        allow=frozenset(subscriber.allow),
        block_timeout=subscriber.block_timeout_ms / 1000,
        block_fallback=fallback,
        subscribe_timeout=(subscriber.subscribe_timeout_ms or start_ms) / 1000,
        max_wire_keys=window.max_wire_keys,
        wire_keys_identity=window.wire_keys_identity,
        wire_keys_connection=window.wire_keys_connection,
        history_readers=window.history_readers,
        history_events=window.history_events,
        history_bytes=window.history_bytes,
        last_values=window.last_values or OverflowPolicy.LATEST in (overflow, fallback),
        last_values_keys=window.last_values_keys,
        last_values_bytes=window.last_values_bytes,
        direct_bytes=limits.send_bytes,
        slice_seconds=limits.fan_out_slice_ms / 1000,
    )
