"""What is counted while the gateway runs, beyond what its parts know of themselves.

Counters are bumped per batch, per command or per connection, never per event and subscriber; whatever a
part knows anyway (how much a subscription was sent, how full a window is) is read when it is asked for, and
only what a part takes with it when it goes is added up here. Nothing here waits or looks at a clock.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Mapping, Sequence

from kiwi_gw.codes import NOTHING_SHOWN, UNDECIDED, CloseCode, RefusalCode
from kiwi_gw.core.commands import Violation
from kiwi_gw.core.source_hub import SourceHub
from kiwi_gw.core.subscription import Subscription
from kiwi_gw.model import (
    Batch,
    CloseReason,
    Credential,
    HeadCredential,
    Identity,
    Mode,
    Password,
    Refusal,
    Token,
)

OTHER = "other"
"""The label of what has none of its own."""

DELAYS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
"""Upper bounds, in seconds, of everything that should take less than a second."""

LIVES = (1.0, 10.0, 60.0, 300.0, 1_800.0, 3_600.0, 14_400.0, 43_200.0, 86_400.0)
"""Upper bounds, in seconds, of how long connections last."""

STALLS = (0.001, 0.01, 0.1, 0.5, 1.0, 5.0, 10.0, 30.0, 60.0, 300.0, 1_800.0)
"""Upper bounds, in seconds, of how long a socket takes nothing."""

REQUESTS = (0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0)
"""Upper bounds, in seconds, of HTTP requests: those of OpenTelemetry, whose name the metric has."""

_METHODS = frozenset({"CONNECT", "DELETE", "GET", "HEAD", "OPTIONS", "PATCH", "POST", "PUT", "TRACE"})
_METHOD_OF: Mapping[type[Credential], str] = {HeadCredential: "head", Password: "password", Token: "token"}
_OTHER_METHOD = "_OTHER"  # as OpenTelemetry calls those that it does not know

_RATES = frozenset({Violation.COMMANDS, Violation.REQUESTS, Violation.CONTROLS, Violation.FRAGMENTS})

_CODES = frozenset(CloseCode)
"""Close codes that have a series of their own. A client may send any number from 3000 to 4999."""


class Histogram:
    """How many values were at most each of some bounds.

    bounds: ascending. counts: of values within each bound but above the one before; the last for those
    above all. sum: of all values.
    """

    __slots__ = ("bounds", "counts", "sum")

    def __init__(self, bounds: Sequence[float] = DELAYS) -> None:
        self.bounds = tuple(bounds)
        self.counts = [0] * (len(self.bounds) + 1)
        self.sum = 0.0

    def observe(self, value: float) -> None:
        self.counts[bisect_left(self.bounds, value)] += 1
        self.sum += value


class SourceMeter:
    """What is added up for one source, over its restarts, or for all those without a label of their own.

    delivered, delivered_bytes: by dialect, of subscriptions that are over; credits_used, decode_errors, too.
    dropped (by policy), lag_notices and replayed: of hubs that are over. last_event: when the newest event
    happened, in seconds since the epoch (when it came, if it does not say); 0 if there was none. unreadable:
    what the source could not read and stepped over, by kind. metrics, histograms: what its type declares, by
    name. produced, commits: what clients wrote, by result. produce_duration: from handing records over to
    what became of them. joins: how often this process became a member of a group. redelivered: to clients of
    memberships that are over.
    """

    def __init__(self, label: str) -> None:
        self.label = label
        self.events = 0
        self.bytes = 0
        self.last_event = 0.0
        self.delivery_delay = Histogram()
        self.fanout = Histogram()
        self.restarts: Counter[str] = Counter()
        self.started: Counter[str] = Counter()
        self.ended: Counter[str] = Counter()
        self.delivered: Counter[str] = Counter()
        self.delivered_bytes: Counter[str] = Counter()
        self.credits_granted = 0
        self.credits_used = 0
        self.decode_errors = 0
        self.dropped: Counter[str] = Counter()
        self.lag_notices = 0
        self.replayed = 0
        self.unreadable: Counter[str] = Counter()
        self.produced: Counter[str] = Counter()
        self.produce_duration = Histogram()
        self.commits: Counter[str] = Counter()
        self.joins = 0
        self.redelivered = 0
        self.metrics: dict[str, float] = {}
        self.histograms: dict[str, Histogram] = {}

    def published(self, batch: Batch, subscribers: int, seconds: float, wall: float) -> None:
        """Count a batch that was taken, and all who could be served were, within `seconds`; it is `wall`
        now."""
        # For a source of single events this is a good part of all that is done: no calls that can be spared.
        size = len(batch.offsets)
        if batch.gap is not None and batch.gap.unreadable is not None:
            self.unreadable[batch.gap.unreadable.value] += 1
        if not size:
            return
        self.events += size
        self.bytes += batch.cost
        fanout = self.fanout
        fanout.counts[bisect_left(DELAYS, seconds)] += 1
        fanout.sum += seconds
        timestamps = batch.columns.get("timestamp")
        newest = None if timestamps is None else timestamps[-1]
        if timestamps is None or type(newest) is not int or newest < 0:
            self.last_event = wall
            return
        self.last_event = newest / 1000
        first = timestamps[0]
        if (
            subscribers and type(first) is int and first >= 0
        ):  # else nothing was delivered, or it says not when
            delay = wall - first / 1000
            if delay < 0:
                delay = 0.0  # clocks of two machines may differ
            delays = self.delivery_delay
            delays.counts[bisect_left(DELAYS, delay)] += 1
            delays.sum += delay


class Meters:
    """What is added up for the whole gateway.

    max_sources: how many sources get a meter of their own; those that come later share one.
    opened: connections by dialect. closed: by dialect and close code. lives: their durations by dialect.
    sent_bytes: of connections that are over; received_bytes: of all. commands: by dialect, command and
    result; their durations by dialect and command, from the message to its answer. auth: by method and
    result. protocol_errors: by dialect and kind. rate_limited: what was refused for coming too often.
    stalls: how long sockets took nothing. pings: from a ping to its pong. requests: plain HTTP, by route,
    method and status.
    """

    def __init__(self, max_sources: int) -> None:
        self._max_sources = max_sources
        self._sources: dict[str, SourceMeter] = {}
        self._other = SourceMeter(OTHER)
        self.opened: Counter[str] = Counter()
        self.closed: Counter[tuple[str, str]] = Counter()
        self.lives: dict[str, Histogram] = {}
        self.sent_bytes = 0
        self.commands: Counter[tuple[str, str, str]] = Counter()
        self.auth: Counter[tuple[str, str]] = Counter()
        self.loop_lag = Histogram()
        self.handshakes: dict[str, Histogram] = {}
        self.received_bytes = 0
        self.command_durations: dict[tuple[str, str], Histogram] = {}
        self.protocol_errors: Counter[tuple[str, str]] = Counter()
        self.rate_limited: Counter[str] = Counter()
        self.stalls = Histogram(STALLS)
        self.pings = Histogram()
        self.requests: dict[tuple[str, str, str], Histogram] = {}
        self._frames: dict[str, list[int]] = {}

    def source(self, source_id: str) -> SourceMeter:
        """Return the meter of a source, the same for as long as the process lives."""
        meter = self._sources.get(source_id)
        if meter is not None:
            return meter
        if len(self._sources) >= self._max_sources:
            return self._other
        meter = self._sources[source_id] = SourceMeter(source_id)
        return meter

    def sources(self) -> list[SourceMeter]:
        """Every meter that has counted something, or may."""
        shared = [self._other] if len(self._sources) >= self._max_sources else []
        return [*self._sources.values(), *shared]

    def connection_over(self, dialect: str, code: int | None, seconds: float, sent_bytes: int) -> None:
        self.closed[dialect, str(code) if code in _CODES else OTHER] += 1
        self.lives.setdefault(dialect, Histogram(LIVES)).observe(seconds)
        self.sent_bytes += sent_bytes

    def subscription_over(self, dialect: str, subscription: Subscription, reason: CloseReason) -> None:
        """Keep what a subscription was sent."""
        meter = self.source(subscription.hub.info.id)
        if subscription.seq >= 0:  # it was open
            meter.ended[reason.value] += 1
        meter.delivered[dialect] += subscription.delivery.matched
        meter.delivered_bytes[dialect] += subscription.delivery.bytes
        meter.decode_errors += subscription.delivery.decode_errors
        if subscription.delivery.mode is Mode.PULL:
            meter.credits_used += subscription.delivery.matched

    def hub_over(self, hub: SourceHub) -> None:
        """Keep what a hub has counted; it counts no more."""
        meter = self.source(hub.info.id)
        for policy, count in hub.dropped.items():
            meter.dropped[policy.value] += count
        meter.lag_notices += hub.lag_notices
        meter.replayed += hub.events_replayed

    def authentication_over(self, credential: Credential, answer: Identity | Refusal) -> None:
        """Count a client that was authenticated, or not."""
        method = _METHOD_OF[type(credential)]
        if isinstance(answer, Identity):
            result = "anonymous" if answer.anonymous else "accepted"
        elif answer.code == RefusalCode.TOO_MANY_FAILURES:
            result = "throttled"
        elif answer.code in NOTHING_SHOWN:
            result = "missing"  # nothing was wrong: many protocols let such a client log in later
        else:
            result = "failed" if answer.code in UNDECIDED else "refused"
        self.auth[method, result] += 1

    def handshake_over(self, transport: str, seconds: float) -> None:
        self.handshakes.setdefault(transport, Histogram()).observe(seconds)

    def frames(self, dialect: str) -> list[int]:
        """Return how many frames came, by opcode (16 numbers): their reader counts in here."""
        return self._frames.setdefault(dialect, [0] * 16)

    def all_frames(self) -> Mapping[str, Sequence[int]]:
        """Return the same of every dialect."""
        return self._frames

    def command_over(self, dialect: str, command: str, seconds: float) -> None:
        """Count a command that was answered, so long after it came."""
        histogram = self.command_durations.get((dialect, command))
        if histogram is None:
            histogram = self.command_durations[dialect, command] = Histogram()
        histogram.observe(seconds)

    def count_violation(self, dialect: str, violation: Violation) -> None:
        """Count what a client did that it may not."""
        if violation in _RATES:
            self.rate_limited[violation.value] += 1
        else:
            self.protocol_errors[dialect, violation.value] += 1

    def request_over(self, route: str, method: str, status: int, seconds: float) -> None:
        """Count a plain HTTP request that was answered. route: as it is served, empty where nothing is."""
        key = route, method if method in _METHODS else _OTHER_METHOD, str(status)
        histogram = self.requests.get(key)
        if histogram is None:
            histogram = self.requests[key] = Histogram(REQUESTS)
        histogram.observe(seconds)
