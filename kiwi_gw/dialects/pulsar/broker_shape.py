"""Producing in the form of Pulsar's brokers (pull request 8125): a payload is text, for a schema.

POST /topics/persistent/public/default/orders
{"valueSchema": "{\"type\": \"STRING\"}", "messages": [{"key": "k", "payload": "hello"}]}
200 {"messagePublishResults": [{"messageId": "77:41:0", "errorCode": 0, "schemaVersion": 0}],
     "schemaVersion": 0}
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import msgspec
from msgspec import Raw

from kiwi_gw.dialect_api.http import ClientRights, HttpRequest, HttpResponse
from kiwi_gw.dialects.pulsar.encoders import (
    EVERY,
    Encoders,
    PartEncoder,
    part_encoder_of_schema,
    part_encoder_of_version,
)
from kiwi_gw.dialects.pulsar.errors import PulsarCode, PulsarError, read_body
from kiwi_gw.dialects.pulsar.message_ids import MessageId
from kiwi_gw.dialects.pulsar.messages import (
    NOTHING,
    BrokerAnswer,
    BrokerMessage,
    BrokerRequest,
    MessageToSend,
    PartitionPath,
    PublishResult,
    TopicPath,
)
from kiwi_gw.dialects.pulsar.producing import Result, admit, write_messages
from kiwi_gw.dialects.pulsar.schemas import encode_string, schema_info
from kiwi_gw.dialects.pulsar.settings import PulsarSettings
from kiwi_gw.dialects.pulsar.topics import WritableTopic
from kiwi_gw.model import Published

_TEXTS: Final = ("string", "bytes", "none")


@dataclass(frozen=True, slots=True)
class BrokerProducing:
    """Answer requests to produce, in the form of Pulsar's brokers."""

    settings: PulsarSettings

    def admit(
        self, path: TopicPath | PartitionPath, rights: ClientRights
    ) -> WritableTopic | HttpResponse | None:
        """Find the topic, if the client may write there."""
        found = admit(self.settings, path, rights)
        return found.broker_response if isinstance(found, PulsarError) else found

    async def to_topic(self, request: HttpRequest[TopicPath, bytes]) -> BrokerAnswer | HttpResponse:
        """Write messages to a topic, in the form of Pulsar's brokers."""
        return await self._produce(request)

    async def to_partition(self, request: HttpRequest[PartitionPath, bytes]) -> BrokerAnswer | HttpResponse:
        """Write messages to one partition of a topic, in the form of Pulsar's brokers."""
        return await self._produce(request)

    async def _produce(
        self, request: HttpRequest[TopicPath, bytes] | HttpRequest[PartitionPath, bytes]
    ) -> BrokerAnswer | HttpResponse:
        try:
            topic, version, results = await write_messages(request, self.settings, _read)
        except PulsarError as error:
            return error.broker_response
        said = []
        for index, result in enumerate(results):
            said.append(_result(result, topic, version or 0))
            if index % EVERY == 0:
                await request.rights.turn()
        return BrokerAnswer(said, version or 0)


async def _read(
    body: bytes, topic: WritableTopic, rights: ClientRights
) -> tuple[Sequence[MessageToSend], Encoders]:
    """Read a request. Raises PulsarError."""
    asked = read_body(body, BrokerRequest, PulsarCode.MESSAGES)
    if asked.keySchema:
        raise PulsarError(PulsarCode.KEY_SCHEMA, "keys are text here; keySchema is not taken")
    encoder, as_text = PartEncoder(encode_string), True
    if asked.schemaVersion is not None and asked.schemaVersion >= 0:
        encoder, as_text = await part_encoder_of_version(asked.schemaVersion, topic.info, rights), False
    elif asked.valueSchema:
        info = schema_info(Raw(asked.valueSchema.encode()), PulsarCode.VALUE_SCHEMA)
        chosen = part_encoder_of_schema(info, "value", topic.info)
        as_text = info.type.lower() in _TEXTS
        encoder = encoder if as_text else chosen
    return [_message(message, as_text=as_text) for message in asked.messages], Encoders(encoder)


def _message(message: BrokerMessage, *, as_text: bool) -> MessageToSend:
    """Return what the message is in the form of the document. as_text: its payload is not JSON. Raises
    PulsarError."""
    payload = message.payload
    if payload is None:
        value = Raw(b"null")
    elif as_text:
        value = Raw(msgspec.json.encode(payload))
    else:
        try:
            value = msgspec.json.decode(payload, type=Raw)
        except (msgspec.DecodeError, RecursionError):
            raise PulsarError(PulsarCode.MESSAGES, "a payload is not what its schema wants") from None
    return MessageToSend(
        value,
        NOTHING if message.key is None else Raw(msgspec.json.encode(message.key)),
        None,
        message.properties,
        _event_time(message),
        message.sequenceId,
        message.replicationClusters,
        message.disableReplication,
        message.deliverAt,
        message.deliverAfterMs,
    )


def _event_time(message: BrokerMessage) -> int | None:
    """Return when it happened. Raises PulsarError."""
    when = message.eventTime
    if not isinstance(when, str):
        return when
    if when.isascii() and when.isdigit() and len(when) <= 18:
        return int(when)
    raise PulsarError(PulsarCode.MESSAGES, "eventTime must be milliseconds since 1970")


def _result(result: Result, topic: WritableTopic, version: int) -> PublishResult:
    if isinstance(result, Published):
        place = MessageId(topic.life, result.offset, result.partition)
        return PublishResult(0, place.in_words, None, version)
    return PublishResult(2, errorMsg=result.message)
