"""Consumers of a subscription: made, given messages, removed.

POST /topics/public/default/orders/subscription/s {"type": "shared", "start": "earliest"}
200 {"id": "Zk3...", "base_uri": "http://gateway:8000/topics/public/default/orders/subscription/s/consumer/Zk3..."}
GET .../subscription/s/consumer/Zk3.../messages?timeout=3000&max_messages=100
200 {"messages": [{"messageId": "...", ..., "redeliveryCount": 0}]}
"""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from math import inf
from typing import Any, Final

from kiwi_gw.codes import RefusalCode
from kiwi_gw.dialect_api.http import ClientRights, HttpRequest, HttpResponse, HttpStream, NotStreamed
from kiwi_gw.dialects.pulsar.consumer_ids import ConsumerIds
from kiwi_gw.dialects.pulsar.dispatcher import Dispatcher, SubscriptionType
from kiwi_gw.dialects.pulsar.encoders import encoders_of
from kiwi_gw.dialects.pulsar.errors import JSON, PulsarCode, PulsarError, read_body
from kiwi_gw.dialects.pulsar.message_encoder import IN_ARRAY, messages_wire, redelivered
from kiwi_gw.dialects.pulsar.message_queues import Message
from kiwi_gw.dialects.pulsar.messages import (
    ConsumerPath,
    FetchParameters,
    NewConsumer,
    SubscriptionPath,
    is_absent,
)
from kiwi_gw.dialects.pulsar.reading import PIECE_BYTES
from kiwi_gw.dialects.pulsar.schemas import schema_info
from kiwi_gw.dialects.pulsar.settings import PulsarSettings
from kiwi_gw.dialects.pulsar.subscriptions import (
    MOST_CONSUMERS,
    ConsumerInfo,
    LocalSubscriptions,
    Subscription,
    ack_seconds,
    terms,
)
from kiwi_gw.dialects.pulsar.topics import ConsumedTopic, admit, check_rights, consumed_topic
from kiwi_gw.dialects.pulsar.values import AS_THE_SOURCE_SAYS, PulsarType, ReadAs
from kiwi_gw.errors import SubscribeRefused
from kiwi_gw.model import Action, Identity, StartAt
from kiwi_gw.query.avro import datum_reader

_JOIN_SECONDS: Final = 20.0
_GONE: Final = HttpResponse(204)
_CONSUMER_GONE: Final = PulsarError(PulsarCode.CONSUMER, "the consumer is gone; make one anew")
_NO_PORT: Final = PulsarError(
    PulsarCode.METHOD,
    "here are no consumers: of several workers each needs a port of its own (server.worker_port)",
    allow="OPTIONS",
)
_CREATE: Final = (Action.SUBSCRIBE, Action.REPLAY, Action.COMMIT)
_FETCH: Final = (Action.SUBSCRIBE, Action.REPLAY)
Given = list[tuple[Message, int]]
"""Messages that an answer has, each with how often it was delivered by then."""

_CODES: Final = {
    RefusalCode.GROUP_IN_USE: PulsarCode.IN_USE,
    RefusalCode.GROUP: PulsarCode.METHOD,
    RefusalCode.ORIGIN_DENIED: PulsarCode.FORBIDDEN,
}


@dataclass(frozen=True, slots=True)
class Consuming:
    """Answer requests about consumers. ids: None: nobody would find this process again, and there can be
    none."""

    settings: PulsarSettings
    ids: ConsumerIds | None
    local: LocalSubscriptions = field(default_factory=LocalSubscriptions)

    def admit_new(self, path: SubscriptionPath, rights: ClientRights) -> HttpResponse | None:
        """Answer a client that may make no consumers there."""
        return admit(path, rights, self.settings, _CREATE)

    async def create(self, request: HttpRequest[SubscriptionPath, bytes]) -> Any:
        """Make a consumer of a subscription, and the subscription with it if there is none."""
        try:
            topic = await consumed_topic(request.parameters, request.rights, self.settings, _CREATE)
            if self.ids is None:
                return _NO_PORT.response
            wanted = read_body(request.body or b"{}", NewConsumer)
            return await self._create(request, topic, wanted, self.ids)
        except PulsarError as error:
            return error.response

    async def fetch(self, request: HttpRequest[FetchParameters, bytes]) -> HttpResponse | HttpStream:
        """Give a consumer messages, which are its own until they are acknowledged or come back."""
        try:
            topic = await consumed_topic(request.parameters, request.rights, self.settings, _FETCH)
            subscription = self._own(request, topic)
        except PulsarError as error:
            return error.response
        allowed = partial(_check_still, topic, request.rights)
        return HttpStream(_messages(request.parameters, subscription, allowed), JSON)

    async def remove(self, request: HttpRequest[ConsumerPath, bytes]) -> HttpResponse:
        """Remove a consumer; what it has not acknowledged comes back at once."""
        try:
            topic = await consumed_topic(
                request.parameters, request.rights, self.settings, (Action.SUBSCRIBE,)
            )
            self._own(request, topic).remove(request.parameters.consumer)
        except PulsarError as error:
            return error.response
        return _GONE

    # --- inside ----------------------------------------------------------------------------

    async def _create(
        self,
        request: HttpRequest[SubscriptionPath, bytes],
        topic: ConsumedTopic,
        wanted: NewConsumer,
        ids: ConsumerIds,
    ) -> dict[str, str]:
        name, home = request.parameters.subscription, ids.home(request.head)
        asked = await _read_as(wanted, topic, request.rights)
        while (found := self.local.find(topic, name)) is not None and found.reader.leaving:
            await found.reader.wait_left()  # a consumer of it would be gone at once
        if wanted.id is not None:
            _check_same(self._checked(found, wanted.id, request), wanted, asked)
            return _said(request, wanted.id, home)
        kind = SubscriptionType(wanted.type or (found.kind.value if found is not None else "shared"))
        subscription = found or self._begin(request, topic, kind, wanted, asked or AS_THE_SOURCE_SAYS)
        try:
            await subscription.reader.wait_ready(_JOIN_SECONDS)
        except SubscribeRefused as refused:
            subscription.reader.close()
            raise PulsarError(_CODES.get(refused.code, PulsarCode.UNAVAILABLE), str(refused)) from None  # type: ignore[call-overload]
        try:
            _check_same(subscription, wanted, asked)
            _check_welcome(request, subscription, wanted)
        except PulsarError:
            subscription.empty_since = min(subscription.empty_since, time.monotonic())  # it may have none
            raise
        consumer = ids.new()
        info = ConsumerInfo(wanted.name or consumer, request.identity, time.monotonic())
        subscription.add(consumer, info, ack_seconds(wanted.ackTimeoutMs))
        return _said(request, consumer, home)

    def _begin(
        self,
        request: HttpRequest[SubscriptionPath, bytes],
        topic: ConsumedTopic,
        kind: SubscriptionType,
        wanted: NewConsumer,
        read_as: ReadAs,
    ) -> Subscription:
        """Have this process be a member of the subscription's group."""
        name, rights = request.parameters.subscription, request.rights
        made = Subscription(topic, name, Dispatcher(kind), self.local, rights.view(topic.info.id), read_as)

        def wire(partitions: Any) -> Any:
            return messages_wire(topic.info, topic.life, partitions, IN_ARRAY, counted=True, read_as=read_as)

        start = StartAt.EARLIEST if wanted.start == "earliest" else StartAt.LATEST
        try:
            made.reader = rights.join(topic.info.id, terms(topic, name, kind, start), wire, made)
        except SubscribeRefused as refused:
            raise PulsarError(PulsarCode.UNAVAILABLE, str(refused)) from None
        self.local.add(made)
        return made

    def _own(
        self,
        request: HttpRequest[ConsumerPath, bytes] | HttpRequest[FetchParameters, bytes],
        topic: ConsumedTopic,
    ) -> Subscription:
        """Find the subscription of a consumer that is the client's. Raises PulsarError."""
        subscription = self.local.find(topic, request.parameters.subscription)
        found = self._checked(subscription, request.parameters.consumer, request)
        if request.rights.view(topic.info.id) != found.reader.view:
            raise PulsarError(PulsarCode.IN_USE, "this client sees other messages than the subscription has")
        return found

    def _checked(
        self, subscription: Subscription | None, consumer: str, request: HttpRequest[Any, bytes]
    ) -> Subscription:
        """Return the subscription if the consumer is this client's. Raises PulsarError."""
        info = None if subscription is None else subscription.infos.get(consumer)
        if info is None and self.ids is not None:
            home = self.ids.elsewhere(consumer, request.head)
            if home is not None:
                query = f"?{request.head.query}" if request.head.query else ""
                there = f"{home}{request.head.path}{query}"
                raise PulsarError(PulsarCode.ELSEWHERE, "another gateway has the consumer", location=there)
        if subscription is None or info is None or not _is_same(info.identity, request.identity):
            raise PulsarError(PulsarCode.CONSUMER, "there is no such consumer here; make one anew")
        info.used_at = time.monotonic()
        return subscription


def _check_still(topic: ConsumedTopic, rights: ClientRights) -> None:
    """Raise PulsarError if the client may have no more messages."""
    if (refusal := rights.unwelcome()) is not None:
        raise PulsarError(PulsarCode.UNAUTHENTICATED, refusal.message)
    check_rights(topic.info, rights, _FETCH)


def _said(request: HttpRequest[SubscriptionPath, bytes], consumer: str, home: str) -> dict[str, str]:
    return {"id": consumer, "base_uri": f"{home}{request.head.path}/consumer/{consumer}"}


def _is_same(one: Identity, other: Identity) -> bool:
    return (one.name, one.anonymous) == (other.name, other.anonymous)


def _check_same(subscription: Subscription, wanted: NewConsumer, asked: ReadAs | None) -> None:
    """Raise PulsarError if a consumer wants the subscription to be another one than it is."""
    if wanted.type not in (None, subscription.kind.value):
        words = f"the subscription is {subscription.kind.value}, not {wanted.type}"
        raise PulsarError(PulsarCode.IN_USE, words)
    if asked not in (None, subscription.read_as):
        raise PulsarError(PulsarCode.IN_USE, "the messages of the subscription are read by another schema")


def _check_welcome(
    request: HttpRequest[SubscriptionPath, bytes], subscription: Subscription, wanted: NewConsumer
) -> None:
    """Raise PulsarError if there cannot be this consumer."""
    kind = subscription.kind
    if subscription.reader.view != request.rights.view(subscription.topic.info.id):
        raise PulsarError(PulsarCode.IN_USE, "the subscription is one of clients who see other messages")
    if kind is SubscriptionType.EXCLUSIVE and (subscription.infos or subscription.members > 1):
        if not subscription.infos:
            subscription.reader.close()
        raise PulsarError(PulsarCode.IN_USE, "the subscription is exclusive, and has a consumer")
    if wanted.name is not None and any(info.name == wanted.name for info in subscription.infos.values()):
        raise PulsarError(PulsarCode.CONSUMER_EXISTS, "the subscription has a consumer of that name")
    if len(subscription.infos) >= MOST_CONSUMERS:
        raise PulsarError(PulsarCode.LIMIT, f"a subscription has {MOST_CONSUMERS:,} consumers at most here")


async def _read_as(wanted: NewConsumer, topic: ConsumedTopic, rights: ClientRights) -> ReadAs | None:
    """Return what a consumer says that messages are; None: it says nothing. Raises PulsarError, as for
    producing."""
    if wanted.say_nothing:
        return None
    await encoders_of(wanted, topic.info, rights)  # whether all that can be used
    value = key = None
    if wanted.schema_version is None and not is_absent(wanted.value_schema):
        value = PulsarType.of(schema_info(wanted.value_schema, PulsarCode.VALUE_SCHEMA))
    elif wanted.schema_version is None and wanted.schema_type is not None:
        value = PulsarType(wanted.schema_type.upper())
    if not is_absent(wanted.key_schema):
        key = PulsarType.of(schema_info(wanted.key_schema, PulsarCode.KEY_SCHEMA))
    for kind, code in ((value, PulsarCode.VALUE_SCHEMA), (key, PulsarCode.KEY_SCHEMA)):
        if kind is not None and kind.type == "AVRO":
            try:
                datum_reader(kind.definition, guarded=True)
            except ValueError as error:
                raise PulsarError(code, f"the schema cannot be used: {error}") from None
    return ReadAs(value, key)


async def _messages(
    asked: FetchParameters, subscription: Subscription, allowed: Callable[[], None]
) -> AsyncGenerator[bytes, None]:
    """Give messages, and have them come back if the answer is not taken whole. allowed: raises PulsarError if
    the client may have no more of them."""
    until = time.monotonic() + asked.timeout / 1000
    left, left_bytes = asked.max_messages or 100, asked.max_bytes or 1 << 20
    given: Given = []
    with _busy(asked.consumer, subscription, given) as done:
        piece, separator = b'{"messages":[', b""
        while left > 0 and left_bytes > 0:
            room, until = (left_bytes, 0.0) if given else (inf, until)
            found = await _next(asked.consumer, subscription, left, room, until, allowed)
            if not found:
                break
            given += [(message, message.deliveries) for message in found]
            payloads = [redelivered(message.payload, message.deliveries - 1) for message in found]
            yield b"".join((piece, separator, b",".join(payloads)))
            piece, separator = b"", b","
            left -= len(found)
            left_bytes -= sum(map(len, payloads))
        yield piece + b"]}\n"
        done()


async def _next(
    consumer: str,
    subscription: Subscription,
    most: int,
    room: float,
    until: float,
    allowed: Callable[[], None],
) -> list[Message]:
    """Take messages that wait, one at least if it is not larger than the room that there is; wait for some
    until then. Rights may be withdrawn meanwhile, or since the piece before."""
    most_bytes = int(min(room, PIECE_BYTES))
    dispatcher, reader = subscription.dispatcher, subscription.reader
    waited = not until
    while consumer in dispatcher.consumers:
        now = time.monotonic()
        if late := dispatcher.expire(now):
            reader.offer(late)  # others may have what this one does not take
        found = list(dispatcher.fetch(consumer, most, most_bytes, now, room))
        if found and waited:
            try:
                allowed()
            except PulsarError as error:
                dispatcher.give_back(consumer, found)
                reader.offer(len(found))
                if not until:
                    return []  # there is something already, from when it was allowed
                raise NotStreamed(error.response) from None
        if found or now >= until:
            return found
        served = dispatcher.is_served(consumer)
        await reader.wait(min(until, dispatcher.due) - now, consumer if served else None)
        waited = True
    ended = subscription.ended
    if not until or (ended is not None and ended.code == RefusalCode.UNAVAILABLE):
        return []  # there is something already, or the gateway stops
    raise NotStreamed(_CONSUMER_GONE.response)


@contextmanager
def _busy(consumer: str, subscription: Subscription, given: Given) -> Iterator[Callable[[], None]]:
    """Have a consumer not be idle. What is yielded says that everything that was given has arrived."""
    info = subscription.infos.get(consumer)
    if info is None:
        raise NotStreamed(_CONSUMER_GONE.response)
    info.busy += 1
    arrived = False

    def done() -> None:
        nonlocal arrived
        arrived = True

    try:
        yield done
    finally:
        info.busy -= 1
        info.used_at = time.monotonic()
        if not arrived and given:
            # What came back meanwhile, and was delivered again, is another answer's.
            still = [message for message, deliveries in given if message.deliveries == deliveries]
            subscription.dispatcher.give_back(consumer, still)
            subscription.reader.offer(len(still))
