"""What the load client says to subscribe, and how it knows an event, by protocol."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

Protocol = Literal["kiwi", "zetta"]


@dataclass(frozen=True, slots=True)
class Words:
    """Hold what a protocol says. path: where it is served. event: how the payload of every event begins.
    answered: what is in the answer to a subscription that holds."""

    path: str
    event: bytes
    answered: bytes


WORDS: Final[Mapping[Protocol, Words]] = {
    "kiwi": Words("/", b'{"type":"RESULT"', b'"SUBSCRIBE_OK"'),
    "zetta": Words("/events", b'{"type":"event"', b'"subscribe-ack"'),
}


def subscriptions(
    protocol: Protocol, source: str, *, pull: bool, more: Mapping[str, Any], before: int
) -> Sequence[Mapping[str, object]]:
    """Return the commands with which a connection subscribes to a source. before: Zetta: how many topics that
    do not exist are subscribed to first, so that the number of the one that does is another."""
    if protocol == "kiwi":
        return [{"type": "SUBSCRIBE", "sourceId": source, "mode": "pull" if pull else "push", **more}]
    nowhere = {"type": "subscribe", "topic": "nowhere/at/all"}
    return [*[nowhere] * before, {"type": "subscribe", "topic": f"*/*/{source}/events"}]


def queries(count: int) -> Sequence[dict[str, object]]:
    """Return so many different queries of two terms, as members of SUBSCRIBE: every record passes them (see
    `records.value`). 0: one without a query."""
    terms = [f"value.delay > {-11 - number} AND value.carrier IN ('UA', 'AA')" for number in range(count)]
    return [{"where": where} for where in terms] or [{}]
