"""Producing: a request is checked as a whole, then its records are written, and each has its result.

POST /topics/public/default/orders
{"schema_type": "string", "messages": [{"key": "k", "value": "hello", "properties": {"a": "b"}}]}
200 {"schema_version": null, "messageIds": [
  {"partition": 0, "messageId": "CLy14rPFxgQQKRgA", "error_code": null, "error": null}]}
"""

from __future__ import annotations

import random
import re
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import repeat
from typing import Any, Final

import msgspec
from msgspec import Raw

from kiwi_gw.dialect_api.http import ClientRights, HttpRequest, HttpResponse
from kiwi_gw.dialects.pulsar.encoders import Encoders, PartEncoder, encoders_of, register_schemas
from kiwi_gw.dialects.pulsar.errors import PulsarCode, PulsarError
from kiwi_gw.dialects.pulsar.message_ids import message_ids
from kiwi_gw.dialects.pulsar.messages import (
    ABSENT,
    MOST_ALL_PROPERTIES,
    SEQUENCE,
    LooseRequest,
    MessageToSend,
    MessageWritten,
    PartitionPath,
    ProduceAnswer,
    ProduceRequest,
    TopicPath,
)
from kiwi_gw.dialects.pulsar.schemas import Encode, encode_string, encode_strings
from kiwi_gw.dialects.pulsar.settings import PulsarSettings
from kiwi_gw.dialects.pulsar.topics import NotStarted, WritableTopic, when_started, writable_topic
from kiwi_gw.model import Outgoing, Published, Unpublished
from kiwi_gw.struct_errors import sentence

MOST_RECORD_BYTES: Final = 1_000_000
MOST_BYTES: Final = 16 << 20
"""Of the records of a request: what a schema makes of its messages may be many times as large as they are."""
MOST_INVALID: Final = 16
"""Messages that an error names."""

_IN_MESSAGE: Final = re.compile(r" - at `\$\.messages\[(\d{1,7})\][^`]*`\Z")
_MOST_LOOKED_AT: Final = 50_000
"""Commas of a request whose messages are looked at one by one: some milliseconds."""
_TOGETHER: Final = 128
"""Messages that are answered before others have their turn: 0.1 ms."""
_RESERVED: Final = "__pulsar."
_NULL: Final = Raw(b"null")
_OUTGOING: Final = partial(tuple.__new__, Outgoing)
"""Makes one of its columns in half the time."""
_UNKNOWN_OUTCOME: Final = "outcome unknown"

Result = Published | Unpublished

Answered = Coroutine[Any, Any, ProduceAnswer | HttpResponse]


ReadRequest = Callable[
    [bytes, WritableTopic, ClientRights], Awaitable[tuple[Sequence[MessageToSend], Encoders]]
]
"""Reads a body: what is to be written, and how it becomes bytes. Raises PulsarError."""


@dataclass(frozen=True, slots=True)
class Producing:
    """Answer requests to produce, in the form of the document."""

    settings: PulsarSettings

    def admit(
        self, path: TopicPath | PartitionPath, rights: ClientRights
    ) -> WritableTopic | HttpResponse | None:
        """Find the topic, if the client may write there."""
        found = admit(self.settings, path, rights)
        return found.response if isinstance(found, PulsarError) else found

    def to_topic(self, request: HttpRequest[TopicPath, bytes]) -> Answered:
        """Write messages to a topic."""
        return self._produce(request)

    def to_partition(self, request: HttpRequest[PartitionPath, bytes]) -> Answered:
        """Write messages to one partition of a topic."""
        return self._produce(request)

    async def _produce(
        self, request: HttpRequest[TopicPath, bytes] | HttpRequest[PartitionPath, bytes]
    ) -> ProduceAnswer | HttpResponse:
        try:
            topic, version, results = await write_messages(request, self.settings, _read)
        except PulsarError as error:
            return error.response
        said: list[MessageWritten] = []
        while len(said) < len(results):
            said += _answers(results[len(said) : len(said) + _TOGETHER], topic)
            await request.rights.turn()
        answer = ProduceAnswer(version, said)
        if {each.error_code for each in said} == {2}:
            words = "none of the messages is known to be written"
            return PulsarError(PulsarCode.UNAVAILABLE, words, msgspec.structs.asdict(answer)).response
        return answer


def admit(
    settings: PulsarSettings, path: TopicPath | PartitionPath, rights: ClientRights
) -> WritableTopic | PulsarError | None:
    """Find out whether the client may write there, before anything is read of what it brings. None: it may,
    when the source has started; `write_messages` waits for that."""
    try:
        return writable_topic(path, rights, settings)
    except NotStarted:
        return None
    except PulsarError as error:
        return error


async def write_messages(
    request: HttpRequest[Any, bytes], settings: PulsarSettings, read: ReadRequest
) -> tuple[WritableTopic, int | None, Sequence[Result]]:
    """Write what a request brings. Returns where, the version of the values' schema, and what became of its
    messages. Raises PulsarError if anything of it cannot be used: nothing is written then."""
    path, rights = request.parameters, request.rights
    within = settings.produce_timeout_ms / 1000
    until = time.monotonic() + within
    topic: WritableTopic = request.admitted or await when_started(
        lambda: writable_topic(path, rights, settings), rights, within
    )
    messages, encoders = await read(request.body, topic, rights)
    records = await _outgoing(messages, encoders, topic, rights)
    records, version = await register_schemas(records, encoders, topic.info, rights)
    return topic, version, await topic.writer.produce(records, max(0.0, until - time.monotonic()))


async def _read(
    body: bytes, topic: WritableTopic, rights: ClientRights
) -> tuple[Sequence[MessageToSend], Encoders]:
    asked = read_request(body)
    return asked.messages, await encoders_of(asked, topic.info, rights)


def read_request(body: bytes) -> ProduceRequest:
    """Read a request to produce. Raises PulsarError, which names messages that are not as they must be."""
    try:
        body.decode()  # what is kept as it came is not looked at otherwise
        return msgspec.json.decode(body, type=ProduceRequest)
    except msgspec.ValidationError as error:
        first = _IN_MESSAGE.search(str(error))
        if first is None:
            raise PulsarError(PulsarCode.MESSAGES, sentence(error, ProduceRequest)) from None
        bare = msgspec.ValidationError(str(error)[: first.start()])
        named = _invalid_messages(body) or [(int(first[1]), sentence(bare, MessageToSend))]
        raise _invalid(named) from None
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        raise PulsarError(PulsarCode.MALFORMED, "the body is not JSON") from None


def _invalid(invalid: Sequence[tuple[int, str]]) -> PulsarError:
    """Say which messages cannot be used, by their index, and why: the first of them."""
    named = [{"index": index, "error": words} for index, words in invalid[:MOST_INVALID]]
    index, words = invalid[0]
    said = f"nothing was written: message {index}: {words}"
    return PulsarError(PulsarCode.MESSAGES, said, {"invalid": named})


def _invalid_messages(body: bytes) -> Sequence[tuple[int, str]]:
    """Look at the messages one by one; at none where there may be so many that it takes long."""
    if body.count(b",") > _MOST_LOOKED_AT:
        return ()
    try:
        loose = msgspec.json.decode(body, type=LooseRequest)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return ()
    found = []
    for index, message in enumerate(loose.messages):
        try:
            msgspec.json.decode(message, type=MessageToSend)
        except msgspec.ValidationError as error:
            found.append((index, sentence(error, MessageToSend)))
            if len(found) == MOST_INVALID:
                break
        except (msgspec.DecodeError, UnicodeError, RecursionError):
            found.append((index, "it is not JSON"))
    return found


async def _outgoing(
    messages: Sequence[MessageToSend],
    encoders: Encoders,
    topic: WritableTopic,
    rights: ClientRights,
) -> Sequence[Outgoing]:
    """Make records of messages. Raises PulsarError if any cannot be used."""
    if sum([len(message.properties or ()) for message in messages]) > MOST_ALL_PROPERTIES:
        words = f"the messages of a request may have {MOST_ALL_PROPERTIES:,} properties together"
        raise PulsarError(PulsarCode.MESSAGES, words)
    made, every = MadeRecords(encoders, topic), encoders.every
    for first in range(0, len(messages), _TOGETHER):
        await rights.turn()
        together = messages[first : first + _TOGETHER]
        values, keys = made.strings(together)
        if values is not None and keys is not None and made.take_plain(together, keys, values):
            continue
        for at, message in enumerate(together):
            made.take(first + at, message, at, keys, values)
            if at % every == 0:
                await rights.turn()
    if made.invalid:
        raise _invalid(made.invalid)
    return made.records


Texts = Sequence[bytes | None]


class MadeRecords:
    """Make records of the messages of a request. invalid: messages that cannot be used, by their index, and
    why. Raises PulsarError when it is no use to go on."""

    def __init__(self, encoders: Encoders, topic: WritableTopic) -> None:
        self.records: list[Outgoing] = []
        self.invalid: list[tuple[int, str]] = []
        self._size = 0
        self._encoders, self._topic = encoders, topic
        self._turns = random.getrandbits(32)  # any will do to begin with
        self._now = time.time_ns() // 1_000_000

    def strings(self, messages: Sequence[MessageToSend]) -> tuple[Texts | None, Texts | None]:
        """Make bytes of values and of keys that are strings, sooner than one by one. None: they are something
        else, or some cannot be used."""
        values = encode_strings([m.value for m in messages], self._encoders.value.encode)
        if self._encoders.key is not None:
            return values, None
        return values, encode_strings([m.key or _NULL for m in messages], encode_string)

    def take_plain(self, messages: Sequence[MessageToSend], keys: Texts, values: Texts) -> bool:
        """Take messages that have a key, a value and a time and no more, sooner than one by one. Returns
        whether they are such, and can be used."""
        if any(
            [  # noqa: C419  (sooner than a generator)
                m.properties
                or m.partition is not None
                or m.sequenceId is not None
                or m.deliverAt is not None
                or m.deliverAfterMs is not None
                or m.disableReplication
                or m.replicationClusters
                for m in messages
            ]
        ):
            return False
        size = sum(map(len, filter(None, values))) + sum(map(len, filter(None, keys)))
        if size > MOST_RECORD_BYTES:
            return False
        self._grow(size)
        times = [m.eventTime for m in messages]
        by_keys = self._topic.partition is None and all(keys)
        chosen = repeat(None) if by_keys else map(self._choose, keys)
        columns = zip(keys, values, repeat(()), times, chosen, strict=False)
        self.records += map(_OUTGOING, columns)
        return True

    def take(
        self, index: int, message: MessageToSend, at: int, keys: Texts | None, values: Texts | None
    ) -> None:
        """Take a message with whatever it has. index: in the request. at: in what `strings` has made."""
        if message.disableReplication or message.replicationClusters or _is_late(message, self._now):
            raise _impossible(message, self._now)
        try:
            key = _key(message.key, self._encoders.key) if keys is None else keys[at]
            value = _value(message.value, self._encoders.value.encode) if values is None else values[at]
            wanted, topic = message.partition, self._topic
            chosen = self._choose(key) if wanted is None else _partition(wanted, topic)
            bare = not message.properties and message.sequenceId is None
            headers = () if bare else _headers(message.properties or {}, message.sequenceId)
            record = Outgoing(key, value, headers, message.eventTime, chosen)
            size = record.size
            if size > MOST_RECORD_BYTES:
                raise ValueError(f"it has {size:,} bytes, and may have {MOST_RECORD_BYTES:,}")  # noqa: TRY301
        except ValueError as error:
            self.invalid.append((index, str(error)))
            if len(self.invalid) == MOST_INVALID:
                raise _invalid(self.invalid) from None
        else:
            self.records.append(record)
            self._grow(size)

    def _choose(self, key: bytes | None) -> int | None:
        """Choose where a record is written that does not say so; None: by its key."""
        topic = self._topic
        if key is not None or topic.partition is not None:
            return topic.partition
        self._turns += 1
        return topic.partitions[self._turns % len(topic.partitions)]

    def _grow(self, size: int) -> None:
        self._size += size
        if self._size > MOST_BYTES:
            words = f"the records of a request may have {MOST_BYTES:,} bytes together; nothing was written"
            raise PulsarError(PulsarCode.MESSAGES, words)


def _is_late(message: MessageToSend, now: int) -> bool:
    """Return whether a message is to be delivered later. now: ms since the epoch."""
    return (message.deliverAt or 0) > now or (message.deliverAfterMs or 0) > 0


def _impossible(message: MessageToSend, now: int) -> PulsarError:
    """Say what Kafka cannot do."""
    late = _is_late(message, now)
    what = "deliver a message later" if late else "choose to which clusters a message is replicated"
    return PulsarError(PulsarCode.NOT_IN_KAFKA, f"Kafka cannot {what}; nothing was written")


def _headers(properties: dict[str, str], sequence: int | None) -> Sequence[tuple[str, bytes]]:
    """Make headers of a message's properties, and of its sequence id. Raises ValueError."""
    headers = []
    for name, text in properties.items():
        if name.startswith(_RESERVED):
            raise ValueError(f"properties must not begin with {_RESERVED}")
        try:
            name.encode()
            headers.append((name, text.encode()))
        except UnicodeEncodeError:
            raise ValueError("properties must be text: a surrogate stands alone in one") from None
    if sequence is not None:
        headers.append((SEQUENCE, str(sequence).encode()))
    return headers


def _key(given: Raw, encoder: PartEncoder | None) -> bytes | None:
    text = bytes(given)
    if text in ABSENT:
        return None
    try:
        return (encode_string if encoder is None else encoder.encode)(text)
    except ValueError as error:
        raise ValueError(f"key {error}") from None


def _value(given: Raw, encode: Encode) -> bytes | None:
    try:
        return encode(bytes(given))
    except ValueError as error:
        raise ValueError(f"value {error}") from None


def _partition(wanted: int, topic: WritableTopic) -> int:
    """Choose the partition. Raises ValueError."""
    if wanted not in topic.partitions:
        raise ValueError(f"there is no partition {wanted}")
    if topic.partition is not None and wanted != topic.partition:
        raise ValueError(f"partition {wanted} is another one than that of the path")
    return wanted


def _answers(results: Sequence[Result], topic: WritableTopic) -> list[MessageWritten]:
    offsets: defaultdict[int, list[int]] = defaultdict(list)
    published = [result for result in results if isinstance(result, Published)]
    for partition, offset in published:
        offsets[partition].append(offset)
    ids = {partition: iter(message_ids(topic.life, partition)(offsets[partition])) for partition in offsets}
    if len(published) == len(results):
        return [MessageWritten(partition, next(ids[partition]), None, None) for partition, _ in published]
    return [
        MessageWritten(result.partition, next(ids[result.partition]), None, None)
        if isinstance(result, Published)
        else _unwritten(result)
        for result in results
    ]


def _unwritten(result: Unpublished) -> MessageWritten:
    words = result.message if result.known else _UNKNOWN_OUTCOME
    return MessageWritten(None, None, 2 if result.retriable else 1, words)
