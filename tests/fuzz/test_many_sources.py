"""What the dearest topics cost where there are many sources: each turn as little as any message may."""

from __future__ import annotations

import gc
import json

import pytest

from kiwi_gw.dialect_api.limits import SessionLimits
from kiwi_gw.dialects.zetta.step_queue import STEPS
from tests.fuzz.targets import TARGETS, forget
from tests.processor import seconds, slowness
from tests.unit.dialects.zetta.bench import Client, Sources

SOURCES, TOPICS = 300, 128
REGEXES = "**/" + "/".join(["{" + "(x+x+)+y|" * 6 + "z|e}"] * 15) + "/**"
DEAREST = {
    "all": ["**"],
    "limits": ["**"],
    "ids": ["**"],
    "queries": [f"**?where data.a > {number}" for number in range(32)],
    "expressions": [REGEXES],
    "alternating": ["**/" + "**/".join(["{e}/"] * 31) + "**"],
    "stars": ["**/" + "*/" * 20 + "**", "/".join(["*"] * 63) + "/**"],
}


def dearest(client: Client, message: str) -> float:
    """Seconds of the processor for the message, or for what one of those before it has left to do."""
    taken = [seconds(lambda: client.raw(message))]
    while client.turns:
        taken.append(seconds(client.turn))
    assert len(taken) > SOURCES // STEPS
    return max(taken)


@pytest.mark.slow
@pytest.mark.cost
@pytest.mark.parametrize("kind", DEAREST)
def test_no_turn_of_the_dearest_topics_costs_more_than_a_message_may(kind: str) -> None:
    sources = Sources()
    many = "filterMultiple=true" if kind == "ids" else ""
    client = sources.client(many, SessionLimits(commands_per_second=0))
    more = {"limit": 1_000} if kind == "limits" else {}
    written = [json.dumps({"type": "subscribe", "topic": topic, **more}) for topic in DEAREST[kind]]
    for number in range(TOPICS - 1):
        client.raw(written[number % len(written)])
    for number in range(SOURCES):
        sources.source(f"s{number}", topic=f"hub/t{number}/{{key}}/state")
    tries = []
    for number in range(TOPICS, TOPICS + 3):
        forget()
        gc.collect()
        joins = dearest(client, written[number % len(written)])
        leaves = dearest(client, json.dumps({"type": "unsubscribe", "subscriptionId": number}))
        tries.append(max(joins, leaves))
    assert [message for message in client.hear() if message["type"] == "error"] == []
    assert min(tries) / slowness() <= TARGETS["zetta"].seconds
