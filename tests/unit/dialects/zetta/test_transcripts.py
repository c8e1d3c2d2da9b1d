"""Every recorded exchange, frame by frame and byte by byte."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.transcripts.player import exchanges
from tests.transcripts.zetta_player import Player

FILES = sorted((Path(__file__).parents[3] / "transcripts" / "zetta").glob("*.txt"))


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_transcript(path: Path) -> None:
    player = Player()
    for number, line, expected in exchanges(path):
        assert player.play(line) == expected, f"{path.name}:{number}: {line}"


def test_every_message_of_the_protocol_is_recorded() -> None:
    said: dict[str, set[str]] = {">": set(), "<": set()}
    codes = set()
    for path in FILES:
        for line in path.read_text(encoding="utf-8").splitlines():
            mark, _, text = line.partition(" ")
            try:
                message = json.loads(text) if mark in said else None
            except ValueError:
                continue
            if isinstance(message, dict) and isinstance(message.get("type"), str):
                said[mark].add(message["type"])
                codes.add(message.get("code"))
    assert said[">"] >= {"subscribe", "unsubscribe", "ping"}
    assert said["<"] == {"subscribe-ack", "unsubscribe-ack", "event", "error", "pong"}
    assert codes == {None, 400, 405, 500}
