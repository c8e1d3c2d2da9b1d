"""What the load client says to subscribe, and how it knows an event, by protocol."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

Protocol = Literal["kiwi", "zetta", "lenses"]


@dataclass(frozen=True, slots=True)
class Words:
    """Hold what a protocol says. path: where it is served, with `{}` for the number of the client. event: how
    every event begins. answered: what is in the answer to a command that holds. joined: how the payload of a
    frame that holds several events begins, and what comes behind the last one; None: each has its own."""

    path: str
    event: bytes
    answered: bytes
    joined: tuple[bytes, bytes] | None = None


WORDS: Final[Mapping[Protocol, Words]] = {
    "kiwi": Words("/", b'{"type":"RESULT"', b'"SUBSCRIBE_OK"'),
    "zetta": Words("/events", b'{"type":"event"', b'"subscribe-ack"'),
    "lenses": Words(
        "/api/kafka/ws/client-{}",
        b'{"key":"',
        b'{"type":"SUCCESS"',
        (b'{"content":[', b'],"correlationId":'),
    ),
}

_FIRST_ID: Final = 1_800_000_000_000_000_000
"""Of the length that ids made from a clock have."""


def subscriptions(
    protocol: Protocol, source: str, *, pull: bool, more: Mapping[str, Any], before: int, number: int
) -> Sequence[Mapping[str, object]]:
    """Return the commands with which a connection subscribes to a source. before: Zetta: how many topics that
    do not exist are subscribed to first, so that the number of the one that does is another. number: of the
    client; Lenses: makes a `correlationId` that no other one has."""
    if protocol == "lenses":
        return [
            lenses("LOGIN", 1, {"user": "any", "password": "any"}),
            lenses("SUBSCRIBE", _FIRST_ID + number, {"sqls": [f"SELECT * FROM `{source}`"]}),  # noqa: S608
        ]
    if protocol == "kiwi":
        return [{"type": "SUBSCRIBE", "sourceId": source, "mode": "pull" if pull else "push", **more}]
    nowhere = {"type": "subscribe", "topic": "nowhere/at/all"}
    return [*[nowhere] * before, {"type": "subscribe", "topic": f"*/*/{source}/events"}]


def lenses(kind: str, number: int, content: Mapping[str, object]) -> Mapping[str, object]:
    """Return a request of Lenses' v1."""
    return {"type": kind, "correlationId": number, "content": json.dumps(content)}


def queries(count: int) -> Sequence[dict[str, object]]:
    """Return so many different queries of two terms, as members of SUBSCRIBE: every record passes them (see
    `records.value`). 0: one without a query."""
    terms = [f"value.delay > {-11 - number} AND value.carrier IN ('UA', 'AA')" for number in range(count)]
    return [{"where": where} for where in terms] or [{}]
