"""Reading: the messages of one partition, from wherever is wanted, as one answer or line by line.

GET /topics/public/default/orders/partitions/0/messages?from=earliest&max_messages=100
200 {"messages":[{"messageId":"CLy14rPFxgQQABgA","key":"k1","value":{"a":1},...}],"next":"CLy14rPFxgQQARgA"}
"""

from __future__ import annotations

import base64
import math
import time
from collections.abc import AsyncGenerator, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Final, NoReturn

import msgspec

from kiwi_gw.api import SCHEMA_COLUMNS, RegisteredSchema
from kiwi_gw.codes import RefusalCode
from kiwi_gw.dialect_api.http import ClientRights, HttpRequest, HttpResponse, HttpStream, NotStreamed
from kiwi_gw.dialect_api.reading import AtEvents, EventReader
from kiwi_gw.dialects.pulsar.errors import JSON, PulsarCode, PulsarError
from kiwi_gw.dialects.pulsar.message_encoder import IN_ARRAY, IN_LINES, messages_wire
from kiwi_gw.dialects.pulsar.message_ids import read_message_id
from kiwi_gw.dialects.pulsar.messages import ReadParameters, SchemaRead
from kiwi_gw.dialects.pulsar.settings import PulsarSettings
from kiwi_gw.dialects.pulsar.topics import ReadableTopic, readable_topic, uses_registry
from kiwi_gw.dialects.pulsar.values import PulsarType, schema_read
from kiwi_gw.errors import SubscribeRefused
from kiwi_gw.model import AtOffset, AtTime, CloseReason, Start, StartAt

LINES: Final = "application/x-ndjson"

PIECE_BYTES: Final = 32 * 1024
MOST_SCHEMAS: Final = 16
MOST_SCHEMA_CHARACTERS: Final = 256 * 1024
"""Of a registry, which an answer shows."""
_VERSIONS_SECONDS: Final = 1.0
"""How long the registry may take to say which versions they are."""
_SIGN_OF_LIFE_SECONDS: Final = 15.0
_FOREVER: Final = 2**53
_FIRST_PAGE_SECONDS: Final = 2.0
"""How long it is waited for the first of what is known to be there, before there is an answer."""
_NEXT_PAGE_SECONDS: Final = 0.1
"""How long an answer that has something waits for more that is known to be there."""

_CODES: Final[Mapping[str, PulsarCode]] = {
    RefusalCode.UNKNOWN_SOURCE: PulsarCode.TOPIC,
    RefusalCode.FORBIDDEN: PulsarCode.FORBIDDEN,
    RefusalCode.TOKEN_EXPIRED: PulsarCode.UNAUTHENTICATED,
    RefusalCode.POSITIONS: PulsarCode.GONE,
    RefusalCode.START: PulsarCode.MALFORMED,
    CloseReason.REMOVED.value: PulsarCode.TOPIC,
    CloseReason.UNAUTHORIZED.value: PulsarCode.FORBIDDEN,
}
"""By why the core refuses or ends a subscription; all else is for now."""

_NO_ERROR: Final = frozenset((CloseReason.ENDED.value, RefusalCode.UNAVAILABLE))
"""Why it ends where nothing is wrong: the source is finite, or the gateway stops."""

_encode = msgspec.json.Encoder().encode


@dataclass(frozen=True, slots=True)
class Reading:
    """Answer requests to read."""

    settings: PulsarSettings

    async def messages(self, request: HttpRequest[ReadParameters, bytes]) -> HttpResponse | HttpStream:
        """Read messages of one partition, in order. With `Accept: application/x-ndjson` each is a line of its
        own, as it comes."""
        try:
            topic = await readable_topic(request.parameters, request.rights, self.settings)
            start = _start(request.parameters, topic)
        except PulsarError as error:
            return error.response
        if LINES in (request.head.header("accept") or ""):
            return HttpStream(_lines(request, topic, start), LINES, patient=True)
        return HttpStream(_answer(request, topic, start), JSON)


def _start(asked: ReadParameters, topic: ReadableTopic) -> Start | AtEvents:
    """Say where to begin. Raises PulsarError."""
    partition = frozenset((topic.partition,))
    if not topic.info.replayable and (asked.from_ == "earliest" or asked.from_.isdecimal()):
        words = "this topic cannot be read again: from may be latest, or the next of an answer"
        raise PulsarError(PulsarCode.MALFORMED, words)
    if asked.from_ == "latest":
        return StartAt.LATEST
    if asked.from_ == "earliest":
        return AtOffset(0, partition)
    if asked.from_.isdecimal() and len(asked.from_) <= 18:
        return AtTime(int(asked.from_), partition)
    try:
        place = read_message_id(asked.from_)
    except ValueError:
        words = "from must be earliest, latest, milliseconds since 1970 or an id of a message"
        raise PulsarError(PulsarCode.MALFORMED, words) from None
    if place.partition != topic.partition:
        raise PulsarError(PulsarCode.MALFORMED, f"from is a message of partition {place.partition}")
    if place.life != topic.life:
        raise PulsarError(PulsarCode.GONE, "from is a message of an earlier topic of this name")
    return AtEvents({topic.partition: place.offset})


async def _answer(
    request: HttpRequest[ReadParameters, bytes], topic: ReadableTopic, start: Start | AtEvents
) -> AsyncGenerator[bytes, None]:
    """Make one JSON object of what is there, or comes within the timeout."""
    asked = request.parameters
    until = time.monotonic() + asked.timeout / 1000
    wire = messages_wire(topic.info, topic.life, (topic.partition,), IN_ARRAY)
    try:
        async with request.rights.read(topic.info.id, wire, start) as reader:
            if request.head.method == "HEAD":
                yield b""
                return
            messages = _Messages(reader, asked.max_messages or 100, asked.max_bytes or 1 << 20)
            if asked.include_schema and uses_registry(topic.info, "value"):
                messages.schemas = {}
            piece, separator = _head(topic, asked), b""
            found = await messages.begin(start)
            if not (found or reader.lost or messages.over):
                yield piece
                piece = b""
                found = await messages.next(max(0.0, until - time.monotonic()))
            while found:
                piece = b"".join((piece, separator, memoryview(found)[: -len(IN_ARRAY)]))
                found = b""  # the piece alone waits for the client
                yield piece
                piece, separator = b"", IN_ARRAY
                found = await messages.next(_NEXT_PAGE_SECONDS if reader.behind else 0)
            tail = _tail(topic, reader)
            if messages.schemas is not None:
                tail["schemas"] = await _versions(topic, request.rights, messages.schemas.values())
            yield b"%b],%b\n" % (piece, _encode(tail)[1:])
    except SubscribeRefused as refused:
        _refuse(refused)


async def _lines(
    request: HttpRequest[ReadParameters, bytes], topic: ReadableTopic, start: Start | AtEvents
) -> AsyncGenerator[bytes, None]:
    """Make a line of every message, as long as is wanted, and a last one that says where to go on."""
    asked = request.parameters
    until = time.monotonic() + (asked.timeout / 1000 or math.inf)
    wire = messages_wire(topic.info, topic.life, (topic.partition,), IN_LINES)
    try:
        async with request.rights.read(topic.info.id, wire, start) as reader:
            messages = _Messages(reader, asked.max_messages or _FOREVER, asked.max_bytes or _FOREVER)
            yield await messages.begin(start)
            while not messages.over and (left := until - time.monotonic()) > 0:
                found = await messages.next(min(left, _SIGN_OF_LIFE_SECONDS))
                if lost := _lost(topic, reader):  # it was in front of what was found
                    yield b"%b\n" % _encode({"lost": lost})
                if found:
                    yield found
                elif not lost and left > _SIGN_OF_LIFE_SECONDS and not messages.over:
                    yield b"\n"
            yield b"%b\n" % _encode(_tail(topic, reader))
    except SubscribeRefused as refused:
        _refuse(refused)


class _Messages:
    """Read so many messages and bytes, as text; one message always passes. schemas: those of a registry that
    their values name, by id; None: nobody wants to know."""

    schemas: dict[int, RegisteredSchema] | None = None

    def __init__(self, reader: EventReader, events: int, size: int) -> None:
        self._reader, self._events, self._bytes = reader, events, size
        self._begun = False

    @property
    def over(self) -> bool:
        """Whether nothing more comes, or is wanted."""
        return self._events <= 0 or self._bytes <= 0 or self._reader.full or self._reader.over is not None

    async def begin(self, start: Start | AtEvents) -> bytes:
        """Return what is there. Raises NotStreamed if it begins with an event that was deleted."""
        found = await self.next(_FIRST_PAGE_SECONDS if self._reader.behind else 0)
        if isinstance(start, AtEvents):
            for run in self._reader.lost:
                if any(run.get(partition, (-1,))[0] == o for partition, o in start.offsets.items()):
                    _refuse(SubscribeRefused(RefusalCode.POSITIONS, "what was asked for is gone"))
        return found

    async def next(self, within: float) -> bytes:
        """Return messages, each with its separator; none if none come within so many seconds."""
        if self._events <= 0 or self._bytes <= 0:
            return b""
        room = self._bytes if self._begun else None
        runs = await self._reader.next(self._events, min(self._bytes, PIECE_BYTES), within, room)
        found = b"".join(run.bytes for run in runs)
        self._begun = self._begun or bool(found)
        self._events -= sum(run.events for run in runs)
        self._bytes -= len(found)
        if self.schemas is not None:
            for run in runs:
                column = run.batch.columns.get(SCHEMA_COLUMNS["value"], ())
                named = (column[index] for index, _ in run.fragments) if column else ()
                self.schemas |= {s.id: s for s in named if isinstance(s, RegisteredSchema)}
        return found


def _refuse(refused: SubscribeRefused) -> NoReturn:
    code = _CODES.get(refused.code, PulsarCode.UNAVAILABLE)
    raise NotStreamed(PulsarError(code, str(refused)).response) from None


def _head(topic: ReadableTopic, asked: ReadParameters) -> bytes:
    """Begin the object. What all of the messages have as their schema stands before them; behind them, what
    they name each for itself."""
    if not asked.include_schema or uses_registry(topic.info, "value"):
        return b'{"messages":['
    return b'{"schemas":%b,"messages":[' % _encode([_schema(schema_read(topic.info))])


async def _versions(
    topic: ReadableTopic, rights: ClientRights, named: Iterable[RegisteredSchema]
) -> Sequence[SchemaRead]:
    """Say what the schemas are that messages name, and which versions, as far as the registry says so in
    time."""
    shown: list[RegisteredSchema] = []
    for schema in islice(named, MOST_SCHEMAS):
        if sum(len(each.text) for each in shown) + len(schema.text) <= MOST_SCHEMA_CHARACTERS:
            shown.append(schema)
    versions = await rights.schema_versions(topic.info.id, "value", shown, _VERSIONS_SECONDS)
    return [_schema(PulsarType("AVRO", each.text), versions.get(each.id)) for each in shown]


def _schema(kind: PulsarType, version: int | None = None) -> SchemaRead:
    return SchemaRead(kind.type, version, base64.b64encode(kind.definition.encode()).decode(), {})


def _tail(topic: ReadableTopic, reader: EventReader) -> dict[str, object]:
    """Say where to go on, what was lost, and why nothing more comes."""
    found: dict[str, object] = {"next": topic.message_id(reader.positions[topic.partition])}
    if lost := _lost(topic, reader):
        found["lost"] = lost
    if (over := reader.over) is not None and over.code not in _NO_ERROR:
        code = _CODES.get(over.code, PulsarCode.UNAVAILABLE)
        found["error"] = {"error_code": int(code), "message": over.message}
    return found


def _lost(topic: ReadableTopic, reader: EventReader) -> Sequence[Mapping[str, str]]:
    """Take what was lost of the partition: the first and the last id of each run."""
    runs = [run[topic.partition] for run in reader.lost if topic.partition in run]
    reader.lost.clear()
    return [{"first": topic.message_id(first), "last": topic.message_id(last)} for first, last in runs]
