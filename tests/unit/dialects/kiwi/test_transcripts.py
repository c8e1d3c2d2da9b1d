"""Every recorded exchange, frame by frame and byte by byte."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.transcripts.player import Player, exchanges

FILES = sorted((Path(__file__).parents[3] / "transcripts" / "kiwi").glob("*.txt"))


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_transcript(path: Path) -> None:
    player = Player()
    for number, line, expected in exchanges(path):
        assert player.play(line) == expected, f"{path.name}:{number}: {line}"


def test_every_message_of_the_protocol_is_recorded() -> None:
    said: dict[str, set[str]] = {">": set(), "<": set()}
    for path in FILES:
        for line in path.read_text(encoding="utf-8").splitlines():
            mark, _, text = line.partition(" ")
            if mark in said and text.startswith('{"type"'):
                try:
                    message = json.loads(text)
                except ValueError:
                    continue
                said[mark].add(str(message["type"]))
                if isinstance(inner := message.get("data"), dict) and "type" in inner:
                    said[mark].add(f"{message['type']} {inner['type']}")
    answers = {f"{kind}_{end}" for kind in ("SUBSCRIBE", "UNSUBSCRIBE", "REQUEST") for end in ("OK", "ERROR")}
    assert said[">"] >= {"SUBSCRIBE", "UNSUBSCRIBE", "REQUEST"}
    assert said["<"] >= answers | {f"COMMAND_RESPONSE {answer}" for answer in answers}
    assert said["<"] >= {
        "RESULT",
        "NOTICE LAG",
        "NOTICE SUBSCRIPTION_CLOSED",
        "NOTICE DRAINING",
        "NOTICE SOURCE_DEGRADED",
        "NOTICE SOURCE_RESTORED",
    }
