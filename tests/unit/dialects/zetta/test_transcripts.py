"""Every recorded exchange, frame by frame and byte by byte."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.transcripts.recorded import check, messages, transcripts
from tests.transcripts.zetta_player import Player

FILES = transcripts("zetta")


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_transcript(path: Path) -> None:
    check(path, Player())


def test_every_message_of_the_protocol_is_recorded() -> None:
    said: dict[str, set[str]] = {">": set(), "<": set()}
    codes = set()
    for mark, message in messages(FILES):
        said[mark].add(message["type"])
        codes.add(message.get("code"))
    assert said[">"] >= {"subscribe", "unsubscribe", "ping"}
    assert said["<"] == {"subscribe-ack", "unsubscribe-ack", "event", "error", "pong"}
    assert codes == {None, 400, 405, 500}
