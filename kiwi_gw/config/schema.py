"""The gateway's own settings: every key, its meaning and its default.

Times are milliseconds, sizes bytes. Keys of plugins are declared by them and merged in by `load`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Literal, Self

from pydantic import BeforeValidator, Field, model_validator

from kiwi_gw.api import Milliseconds, Section
from kiwi_gw.config.error_wording import did_you_mean
from kiwi_gw.config.server import ServerSettings
from kiwi_gw.config.values import MIB, Delay, Number, Positive, Size
from kiwi_gw.model import OverflowPolicy, ValueAs


def _policy(value: object) -> object:
    names = [item.value for item in OverflowPolicy]
    if isinstance(value, str) and value not in names:
        raise ValueError(f"must be one of {', '.join(names)}, not {value!r}{did_you_mean(value, names)}")
    return value


def _fallback(value: object) -> object:
    if value in (OverflowPolicy.BLOCK, OverflowPolicy.BLOCK.value):
        raise ValueError("is what happens where 'block' does not hold the source: it must be another policy")
    return _policy(value)


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


class SubscriberSettings(Section):
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
    leaves it out, `close` ends the subscription behind what comes before it. Either way it is counted."""
    value_as: ValueAs | None = None
    """How an event's `value` is written, where a client does not say so itself (`valueAs`) and where it can
    be: `text`, a string with its text, or `json`, the JSON that it is. null: as the source has it, which is
    `text` for `kafka`, and `json` for `spark` and behind a `select`."""
    subscribe_timeout_ms: Delay | None = None
    """How long a subscription waits for a source that is starting; null: as long as its type says that its
    sources may take, which is 5 s, for `spark` 115 s."""


class WindowSettings(Section):
    """The events of every source that are kept. All but the memory that sources share, and `event_bytes`, may
    be set per source, too."""

    events: Positive = 65_536
    """Most events in a window."""
    bytes: Size = 64 * MIB
    """Most memory for the events of a window."""
    memory_bytes: Size = 512 * MIB
    """Most memory for all windows and encodings together. When it is used up, the sources that hold most
    give up their oldest events first; those with `block` subscriptions give up none and wait. What queries
    hold comes on top: see docs/reference/queries.md, "What it may cost"."""
    encodings_bytes: Size = 64 * MIB
    """Most memory for the encoded events of all sources that a reader may still need; set aside from
    `memory_bytes`, and at most a quarter of it."""
    event_bytes: Size = 8 * MIB
    """Largest encoded event; a larger one is given up and announced."""
    max_wire_keys: Positive = 1_000
    """Different wire keys of one source at a time (each an encoding of its events) that clients have chosen,
    by a query or by a pattern of topics that leaves events out; what needs one more is refused. Others do not
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
    """Keep the newest event of every key that has had one since the gateway began to read the source (older
    ones are in the source's history): for snapshots and the policy `latest`, with which it is always kept."""
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


class LoggingSettings(Section):
    """Logs go to stderr."""

    level: Literal["debug", "info", "warning", "error"] = "info"
    """Least severe level that is written."""
    format: Literal["auto", "json", "pretty"] = "auto"
    """`auto`: pretty on a terminal, else JSON lines."""


class MetricsSettings(Section):
    """What `/metrics` on the admin address shows; see docs/reference/metrics.md."""

    enabled: bool = True
    """Whether anything is measured; without it `/metrics` is not there."""
    max_sources: Annotated[int, Field(ge=1, le=10_000)] = 200
    """Sources that have series of their own; those that come later share the label `other`."""
    per_partition: bool = False
    """Whether the lag of a source is shown by partition, too (at most 256 of them)."""


class CoreSettings(Section):
    """The gateway's own top-level keys, `sources` and the sections of plugins apart."""

    name: Annotated[str, Field(min_length=1, max_length=255)] = "kiwi-gw"
    """The name of this gateway in logs and towards brokers."""
    plugins: tuple[str, ...] = ()
    """Plugins to load, by entry point name or as `module:object`. Those of source types and sections in use
    are loaded anyway."""
    server: ServerSettings = ServerSettings()
    subscriber: SubscriberSettings = SubscriberSettings()
    window: WindowSettings = WindowSettings()
    logging: LoggingSettings = LoggingSettings()
    metrics: MetricsSettings = MetricsSettings()


OWN_SECTIONS = ("server", "subscriber", "window", "logging", "metrics")
"""The keys of `CoreSettings` that are sections."""


@dataclass(frozen=True, slots=True)
class SourceSettings:
    """Describe one source. `settings` is the model of its type; `subscriber` and `window` are what holds for
    it, the general ones with its own on top; `line` is where it stands in the file; `blocks` what it says to
    single protocols."""

    id: str
    type: str
    settings: Section
    subscriber: SubscriberSettings
    window: WindowSettings
    line: int = field(default=0, compare=False)
    blocks: Mapping[str, Section] = field(default_factory=dict)

    @property
    def buffer_capacity(self) -> int:
        """Return how many events a subscription may be behind; never more than the window holds."""
        return min(self.subscriber.buffer_capacity or self.window.events, self.window.events)

    @property
    def lag_notice_threshold(self) -> int:
        return self.subscriber.lag_notice_threshold or max(1, self.buffer_capacity // 2)


@dataclass(frozen=True, slots=True)
class Settings:
    """Hold a valid configuration. `sources` by id in the order of the file; `sections` those of the plugins
    and `dialects` those of the protocols, with their defaults where the file has none; `written` those that
    it has. `plugins`: all that it needs, named or implied, in load order, without those that are always
    there."""

    name: str
    plugins: tuple[str, ...]
    server: ServerSettings
    subscriber: SubscriberSettings
    window: WindowSettings
    logging: LoggingSettings
    metrics: MetricsSettings
    sources: Mapping[str, SourceSettings]
    sections: Mapping[str, Section]
    dialects: Mapping[str, Section]
    written: frozenset[str] = field(default=frozenset(), compare=False)
