"""Every recorded exchange, frame by frame and byte by byte."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.transcripts.kiwi_player import Player
from tests.transcripts.recorded import check, messages, transcripts

FILES = transcripts("kiwi")


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_transcript(path: Path) -> None:
    check(path, Player())


def test_every_message_of_the_protocol_is_recorded() -> None:
    said: dict[str, set[str]] = {">": set(), "<": set()}
    for mark, message in messages(FILES):
        said[mark].add(message["type"])
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
        "NOTICE ERROR",
        "NOTICE QUERY_HINT",
    }
