"""What the second protocol costs beside the native one: the hot path alone, in deliveries per CPU second.

    python -m benchmarks.protocols [ROUNDS [BATCHES]]

Batches as Kafka's plugin makes them are encoded and sent to 100 subscribers whose sockets take everything, so
that nothing but the gateway's own work is counted. One JSON line per way, with the best of the rounds, which
take turns: `kiwi`; `zetta`, all with the id 1; `zetta, 100 sets`, everyone with an id of its own.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable

from benchmarks.hot_path import Memory, Nobody, batch, no_task, zero
from kiwi_gw.core.encoding import EncodingMemo, wire
from kiwi_gw.core.feed import Feed, FeedLimits, Request
from kiwi_gw.core.window import Budget
from kiwi_gw.dialects.kiwi import kiwi_wire
from kiwi_gw.dialects.zetta import ZettaDialect
from kiwi_gw.dialects.zetta.dialect import MAX_EVENT_BYTES
from kiwi_gw.dialects.zetta.events import Member, events_wire
from kiwi_gw.dialects.zetta.wishes import wish
from kiwi_gw.edge.outlet import Outlet
from kiwi_gw.model import Mode, SourceInfo, WireFormat
from kiwi_kafka.shape import event_shape

_SUBSCRIBERS = 100
_EVENTS = 400
_MIB = 1024 * 1024

INFO = SourceInfo("flights", "kafka", event_shape())

_stream = ZettaDialect().stream(INFO)


def zetta(number: int) -> WireFormat:
    """The form for a client whose only topic has this id."""
    members = [Member(number, wish("kiwi-gw/kafka/flights/events"))]
    return events_wire(_stream, members, multiple=False, max_event_bytes=MAX_EVENT_BYTES)


WAYS: dict[str, Callable[[int], WireFormat]] = {
    "kiwi": lambda subscriber: kiwi_wire(INFO),
    "zetta": lambda subscriber: zetta(1),
    "zetta, 100 sets": lambda subscriber: zetta(subscriber + 1),
}


def rate(form: Callable[[int], WireFormat], batches: int) -> float:
    """Deliveries per second of CPU time. RuntimeError if somebody did not get every event."""
    budget = Budget(512 * _MIB)
    feed = Feed(INFO, FeedLimits(), EncodingMemo(64 * _MIB, budget), budget, zero)
    made = [batch(number, _EVENTS) for number in range(batches)]
    feed.started(made[0].starts)
    outlets = [Outlet(Memory(), no_task, zero) for _ in range(_SUBSCRIBERS)]
    readers = [
        feed.subscribe(Request(number, wire(form(number), None), Mode.PUSH, 0, {}), outlet, Nobody())
        for number, outlet in enumerate(outlets)
    ]
    began = time.process_time()
    for item in made:
        for _ in feed.publish(item):
            pass
    spent = time.process_time() - began
    if any(reader.matched != batches * _EVENTS or reader.bad for reader in readers):
        raise RuntimeError("not everyone was sent everything")
    return batches * _EVENTS * _SUBSCRIBERS / spent


def main(rounds: int = 5, batches: int = 50) -> None:
    best = dict.fromkeys(WAYS, 0.0)
    for _ in range(rounds):
        for name, form in WAYS.items():
            best[name] = max(best[name], rate(form, batches))
    for name, found in best.items():
        line = {
            "way": name,
            "deliveries_per_cpu_second": round(found),
            "of_kiwi": round(found / best["kiwi"], 3),
        }
        print(json.dumps(line))


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
