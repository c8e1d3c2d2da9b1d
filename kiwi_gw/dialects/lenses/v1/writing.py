"""PUBLISH and COMMIT: what a client writes, and how that is answered (document 000, Publishing and Offsets
Commit).

Theory of operation. A record is on its way as soon as it is read, and its request is answered when the source
says what became of it; answers of one connection come in order. A COMMIT is one for each of its topics, and
is answered when all of them are.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Final, Literal
from urllib.parse import quote

import msgspec
from msgspec import Raw, Struct

from kiwi_gw.codes import RefusalCode
from kiwi_gw.core.commands import Command, Commit, Produce, Reply
from kiwi_gw.core.notices import CommitDone, Produced
from kiwi_gw.dialects.lenses.tables import Tables, unknown_table
from kiwi_gw.dialects.lenses.v1 import messages, replies
from kiwi_gw.model import Outgoing, Published, Refusal, Unpublished

MOST_TOPICS: Final = 32
"""Of one COMMIT."""

_INTEGER: Final = re.compile(rb"-?[0-9]{1,19}")

_encode = msgspec.json.Encoder().encode
_read_text: Final = msgspec.json.Decoder(str).decode
_read_json: Final = msgspec.json.Decoder(Raw).decode


class Unwritable(Exception):  # noqa: N818  (it states what the request is)
    """What is to be written cannot be. The message is for the client."""


class _Written(Struct, frozen=True):
    topic: str
    partition: int
    offset: int


@dataclass(frozen=True, slots=True, eq=False)
class Publishing:
    """A PUBLISH that is not answered."""

    number: int
    topic: str


@dataclass(slots=True, eq=False)
class Committing:
    """A COMMIT that is not answered. waiting: how many of its topics are not. stored: those whose offsets are
    kept. error: of the first that was refused; empty: none was."""

    number: int
    waiting: int
    stored: list[str] = field(default_factory=list)
    error: str = ""


@dataclass(frozen=True, slots=True, eq=False)
class CommitPart:
    """One topic of a COMMIT."""

    of: Committing
    topic: str


class Writing:
    """See the top of this file. offset_is: what the offset of a COMMIT names, see `lenses.commit`."""

    def __init__(self, tables: Tables, offset_is: Literal["done", "next"]) -> None:
        self._tables = tables
        self._more = 1 if offset_is == "done" else 0
        self.unanswered = 0

    def publish(self, number: int, content: messages.Publish, within: float) -> Iterator[Command]:
        """Have a record written, in so many seconds. Raises Unwritable."""
        record = Outgoing(
            _part("key", content.ktype, content.key),
            _part("value", content.vtype, content.value),
            partition=content.partition,
        )
        self.unanswered += 1
        source_id = self._tables.source_id(content.topic)
        yield Produce(Publishing(number, content.topic), source_id, record, within)

    def produced(self, asked: Publishing, notice: Produced) -> Reply:
        """Say what became of a record."""
        self.unanswered -= 1
        match notice.result:
            case Published(partition, offset):
                return replies.success(
                    asked.number, _encode(_Written(asked.topic, partition, offset)).decode()
                )
            case Unpublished(message):
                return replies.error(asked.number, message)
            case refusal:
                return replies.error(asked.number, _why(refusal, asked.topic))

    def commit(self, number: int, content: messages.Commit, group: str, within: float) -> Iterator[Command]:
        """Have the offsets of a group kept, in so many seconds. Raises Unwritable."""
        wanted: dict[str, dict[int, tuple[int, str]]] = {}
        for each in content.commits:
            positions = wanted.setdefault(each.topic, {})
            positions[each.partition] = each.offset + self._more, ""
        if len(wanted) > MOST_TOPICS:
            raise Unwritable(f"a COMMIT can be of at most {MOST_TOPICS} topics")
        asked = Committing(number, len(wanted))
        self.unanswered += 1
        for topic, positions in wanted.items():
            source_id = self._tables.source_id(topic)
            yield Commit(CommitPart(asked, topic), source_id, group, positions, within)

    def committed(self, part: CommitPart, notice: CommitDone) -> Iterator[Reply]:
        """Answer a COMMIT, if that was the last of its topics."""
        asked = part.of
        asked.waiting -= 1
        if notice.result is None:
            asked.stored.append(part.topic)
        elif not asked.error:
            unknown = notice.result.code == RefusalCode.UNKNOWN_SOURCE
            why = _why(notice.result, part.topic)
            asked.error = why if unknown else f"{part.topic}: {why}"
        if not asked.waiting:
            self.unanswered -= 1
            stored = f" (stored of {', '.join(asked.stored)})" if asked.stored else ""
            yield (
                replies.error(asked.number, asked.error + stored)
                if asked.error
                else replies.success(asked.number)
            )


def group_of(template: str, user: str, client: str) -> str:
    """Make the name of the consumer group of a client. Names are percent-encoded, dots too: no user can be
    called so that it gets the group of another."""
    named = template.replace("{user}", "\0").replace("{client}", _encoded(client))
    return named.replace("\0", _encoded(user))


def _encoded(name: str) -> str:
    return quote(name, safe="").replace(".", "%2E")


def _why(refusal: Refusal, topic: str) -> str:
    return unknown_table(topic) if refusal.code == RefusalCode.UNKNOWN_SOURCE else refusal.message


# --- what a key and a value become -------------------------------------------------------------


def _part(name: str, decoder: str, given: Raw) -> bytes | None:
    """Encode a key or a value: a string as its text, other JSON as it is written; None for null."""
    written = bytes(given)
    if written == b"null":
        return None
    encode = _ENCODERS.get(decoder.upper())
    if encode is None:
        known = ", ".join(_ENCODERS)
        raise Unwritable(f"{name}: records cannot be written as {decoder[:20]!r}, but as one of {known}")
    text = _read_text(written).encode() if written[:1] == b'"' else written
    try:
        return encode(text)
    except ValueError as error:
        raise Unwritable(f"{name}: {error}") from None


def _integer(bits: int) -> Callable[[bytes], bytes]:
    def encode(text: bytes) -> bytes:
        if _INTEGER.fullmatch(text) and -(1 << bits - 1) <= int(text) < 1 << bits - 1:
            return int(text).to_bytes(bits // 8, "big", signed=True)
        raise ValueError(f"it must be an integer of {bits} bits")

    return encode


def _json(text: bytes) -> bytes:
    try:
        _read_json(text)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        raise ValueError("it must be JSON") from None
    return text


def _binary(text: bytes) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except binascii.Error:
        raise ValueError("it must be base64") from None


_ENCODERS: Final[dict[str, Callable[[bytes], bytes]]] = {
    "STRING": bytes,
    "JSON": _json,
    "INT": _integer(32),
    "LONG": _integer(64),
    "BINARY": _binary,
    "BYTES": _binary,
}
"""By the names of decoders, in any case."""
