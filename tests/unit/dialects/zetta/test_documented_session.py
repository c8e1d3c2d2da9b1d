"""The session that docs/guides/zetta.md shows is what is said."""

from __future__ import annotations

import json
import re
from pathlib import Path

from kiwi_gw.core.hub_limits import HubLimits
from tests.unit.dialects.zetta.bench import Sources

PAGE = (Path(__file__).parents[4] / "docs" / "guides" / "zetta.md").read_text(encoding="utf-8")


def test_the_session_of_the_page() -> None:
    (session,) = re.findall(r"```text title=\"ws://.*?\"\n(.*?)```", PAGE, re.DOTALL)
    readings = [("a5", {"f": 86.2, "c": 30.1}), ("b7", {"f": 85.8, "c": 29.9})]
    sources = Sources(
        HubLimits(last_values=True), readings={"topic": "hub/thermostat/{key}/temperature", "data": "value"}
    )
    client = sources.client()
    heard: list[dict[str, object]] = []
    for line in session.splitlines():
        mark, text = line.split(" ", 1)
        if mark == ">":
            assert heard == [], "the page leaves something out"
            client.raw(text)
            heard = client.hear()
        else:
            if not heard:
                key, value = readings.pop(0)
                sources.send("readings", value, keys=[key])
                heard = client.hear()
            message, expected = heard.pop(0), json.loads(text)
            assert message.pop("timestamp")
            assert expected.pop("timestamp")
            assert (list(message), message) == (list(expected), expected)
    assert not heard
    assert not readings
