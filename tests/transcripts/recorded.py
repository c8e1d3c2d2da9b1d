"""Recorded exchanges, as every protocol has them: what is played, and what must come of it.

A transcript is made of lines. Remarks begin with `#`; what is expected (`<`, `=`) follows the line that
causes it, in order and complete. All other marks are those of the protocol's player.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Protocol

from wsproto import ConnectionType
from wsproto.connection import Connection
from wsproto.events import TextMessage


class Player(Protocol):
    def play(self, line: str) -> list[str]:
        """What a line brings about, as lines."""


def transcripts(protocol: str) -> Sequence[Path]:
    """The files of a protocol."""
    return sorted((Path(__file__).parent / protocol).glob("*.txt"))


def check(path: Path, player: Player) -> None:
    """Play a transcript. AssertionError at the first line that brings about anything else."""
    for number, line, expected in exchanges(path):
        assert player.play(line) == expected, f"{path.name}:{number}: {line}"


def exchanges(path: Path) -> list[tuple[int, str, list[str]]]:
    """The lines that cause something, with their numbers, and what is expected of each."""
    found: list[tuple[int, str, list[str]]] = []
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        if not line.strip() or line.startswith("#"):
            continue
        if line.startswith(("< ", "= ")):
            found[-1][2].append(line)
        else:
            found.append((number, line, []))
    return found


def messages(files: Sequence[Path]) -> Iterator[tuple[str, dict[str, Any]]]:
    """What is recorded of messages with a type: the mark (`>`, `<`) and the message."""
    for path in files:
        for line in path.read_text(encoding="utf-8").splitlines():
            mark, _, text = line.partition(" ")
            try:
                message = json.loads(text) if mark in {">", "<"} else None
            except ValueError:
                continue
            if isinstance(message, dict) and isinstance(message.get("type"), str):
                yield mark, message


def texts(data: bytes) -> list[str]:
    """The text frames in some bytes, as an independent client reads them."""
    client = Connection(ConnectionType.CLIENT)
    client.receive_data(data)
    found: list[str] = []
    for event in client.events():
        assert isinstance(event, TextMessage)
        assert event.message_finished
        found.append(event.data)
    return found
