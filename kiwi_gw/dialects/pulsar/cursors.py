"""The cursor of a subscription: seen, acknowledged, reset; and the subscription forgotten.

POST .../subscription/s/cursor {"type": "individual", "messageIds": ["CLy14rPFxgQQABgA"]}
200 {"cursor": {"type": "shared", "consumers": [{"id": "...", "name": "...", "pending": 3}],
  "partitions": {"0": {"position": "...", "acknowledged": [], "pending": 3, "lag": 12}}}}
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeVar

from kiwi_gw.codes import RefusalCode
from kiwi_gw.dialect_api.http import ClientRights, HttpRequest, HttpResponse
from kiwi_gw.dialect_api.reading import PartitionsMoved
from kiwi_gw.dialects.pulsar.errors import PulsarCode, PulsarError, read_body
from kiwi_gw.dialects.pulsar.message_ids import MessageId, read_message_id
from kiwi_gw.dialects.pulsar.message_queues import Place
from kiwi_gw.dialects.pulsar.messages import (
    ConsumerSeen,
    CursorAnswer,
    CursorRequest,
    CursorSeen,
    ForgetParameters,
    PartitionSeen,
    SubscriptionPath,
)
from kiwi_gw.dialects.pulsar.partition_cursor import PartitionCursor
from kiwi_gw.dialects.pulsar.settings import PulsarSettings
from kiwi_gw.dialects.pulsar.subscriptions import LocalSubscriptions, Subscription
from kiwi_gw.dialects.pulsar.topics import ConsumedTopic, admit, consumed_topic
from kiwi_gw.errors import CommitRefused
from kiwi_gw.model import Action, AtTime, Positions, StartAt

_ELSEWHERE: Final = "this gateway has no consumers of the subscription: ask the one that has made yours"
_MOVED: Final = "the partitions of some messages are another gateway's now: they come again there"
_NO_SUBSCRIPTION: Final = "there is no such subscription"
_HAS_CONSUMERS: Final = "the subscription has consumers; force=true ends it"
_GONE: Final = HttpResponse(204)
_CHANGE: Final = (Action.SUBSCRIBE, Action.COMMIT)

MOST_SHOWN: Final = 100
"""Runs of acknowledged messages that are shown of a partition."""

_EVERY: Final = 64
_AT_ONCE: Final = 1_000
"""Acknowledged in one go, which takes 2 ms."""

Request = HttpRequest[SubscriptionPath, bytes]
R = TypeVar("R", Request, HttpRequest[ForgetParameters, bytes])
A = TypeVar("A")


@dataclass(frozen=True, slots=True)
class Cursors:
    """Answer requests about cursors."""

    settings: PulsarSettings
    local: LocalSubscriptions

    async def see(self, request: Request) -> CursorAnswer | HttpResponse:
        """Say how far a subscription is, and who its consumers here are."""
        return await self._answer(request, (Action.SUBSCRIBE,), self._see)

    def admit_change(self, path: SubscriptionPath, rights: ClientRights) -> HttpResponse | None:
        """Answer a client that may not change cursors there."""
        return admit(path, rights, self.settings, _CHANGE)

    async def change(self, request: Request) -> CursorAnswer | HttpResponse:
        """Acknowledge messages, have them come back, or go on from elsewhere."""
        return await self._answer(request, _CHANGE, self._change)

    async def forget(self, request: HttpRequest[ForgetParameters, bytes]) -> HttpResponse:
        """Forget a subscription; one with consumers only by force."""
        return await self._answer(request, (Action.COMMIT,), self._forget)

    # --- inside ----------------------------------------------------------------------------

    async def _forget(
        self, request: HttpRequest[ForgetParameters, bytes], topic: ConsumedTopic
    ) -> HttpResponse:
        asked = request.parameters
        found, group = self.local.find(topic, asked.subscription), topic.group(asked.subscription)
        state = await request.rights.group_state(topic.info.id, group)
        if not state.members and not state.committed:
            raise PulsarError(PulsarCode.SUBSCRIPTION, _NO_SUBSCRIPTION)
        if found is not None and found.infos and not asked.force:
            raise PulsarError(PulsarCode.HAS_CONSUMERS, _HAS_CONSUMERS)
        if found is not None:
            found.reader.close()
            await found.reader.wait_left()
        await request.rights.forget_group(topic.info.id, group)
        return _GONE

    async def _answer(
        self, request: R, actions: Sequence[Action], do: Callable[[R, ConsumedTopic], Awaitable[A]]
    ) -> A | HttpResponse:
        try:
            topic = await consumed_topic(request.parameters, request.rights, self.settings, actions)
            return await do(request, topic)
        except PulsarError as error:
            return error.response
        except CommitRefused as refused:
            return _refusal(refused).response

    async def _see(self, request: Request, topic: ConsumedTopic) -> CursorAnswer:
        name = request.parameters.subscription
        found = self.local.find(topic, name)
        state = await request.rights.group_state(topic.info.id, topic.group(name))
        if found is None and not state.members and not state.committed:
            raise PulsarError(PulsarCode.SUBSCRIPTION, _NO_SUBSCRIPTION)
        there = {p: place for p, place in state.committed.items() if p in topic.partitions}
        return _seen(topic, found, {p: PartitionCursor(*place) for p, place in there.items()})

    async def _change(self, request: Request, topic: ConsumedTopic) -> CursorAnswer:
        asked, rights = read_body(request.body, CursorRequest), request.rights
        found = self.local.find(topic, request.parameters.subscription)
        if found is None:
            state = await rights.group_state(topic.info.id, topic.group(request.parameters.subscription))
            if not state.members and not state.committed:
                raise PulsarError(PulsarCode.SUBSCRIPTION, _NO_SUBSCRIPTION)
            raise PulsarError(PulsarCode.MOVED, _ELSEWHERE)
        places = await _places(asked.messageIds, topic, rights)
        if asked.type == "negative":
            for first in range(0, len(places), _AT_ONCE):
                found.dispatcher.negative(places[first : first + _AT_ONCE])
                await rights.turn()
            found.reader.offer(len(places))
        elif asked.type == "reset":
            await self._reset(request, topic, found, asked)
        else:
            await _acknowledge(found, asked, places, rights)
        return _seen(topic, found, {})

    async def _reset(
        self, request: Request, topic: ConsumedTopic, found: Subscription, asked: CursorRequest
    ) -> None:
        """Go on from elsewhere in all partitions that are this gateway's; what is pending is dropped."""
        positions = await _reset_to(request.rights, topic, asked.to)
        dispatcher = found.dispatcher
        moved = sorted(positions.keys() - dispatcher.cursors.keys())
        there = [partition for partition in positions if partition in dispatcher.cursors]
        for partition in there:
            dispatcher.assign(partition, positions[partition])
        found.reader.rewind()
        await _commit(found, there, found.reader.given)
        if moved:
            words = "some partitions are another gateway's: ask that one, too"
            raise PulsarError(PulsarCode.MOVED, words, {"partitions": moved})


async def _acknowledge(
    found: Subscription, asked: CursorRequest, places: Sequence[Place], rights: ClientRights
) -> None:
    """Acknowledge messages, and wait until Kafka has that. Raises PulsarError, CommitRefused."""
    dispatcher, whole = found.dispatcher, asked.type == "cumulative"
    if whole and dispatcher.kind.shares:
        words = f"a subscription that is {dispatcher.kind.value} takes no cumulative acknowledgement"
        raise PulsarError(PulsarCode.NOT_IN_KAFKA, words)
    acknowledge = dispatcher.acknowledge_up_to if whole else dispatcher.acknowledge
    moved: set[Place] = set()
    partitions: set[int] = set()
    given, unread = found.reader.given, 0
    step = len(places) if whole else _AT_ONCE
    for first in range(0, len(places), step or 1):
        done = acknowledge(places[first : first + step])
        moved.update(done.moved)
        partitions |= done.changed
        unread += len(done.unread)
        await rights.turn()
    found.reader.offer(len(places))  # there is room again, and keys that were another's are free
    partitions |= {partition for partition, _ in places} & found.uncommitted
    if partitions:
        try:
            await _commit(found, partitions, given)
        except PartitionsMoved as gone:
            moved |= {place for place in places if place[0] in gone.partitions}
    if moved:
        ids = dict(zip(places, asked.messageIds, strict=True))
        taken = [text for place, text in ids.items() if place not in moved]
        more = {"acknowledged": taken, "moved": [text for place, text in ids.items() if place in moved]}
        raise PulsarError(PulsarCode.MOVED, _MOVED, more)
    if unread:
        words = f"{unread} of the messages were not delivered yet; the others are acknowledged"
        raise PulsarError(PulsarCode.MALFORMED, words)


async def _commit(found: Subscription, partitions: Collection[int], given: Mapping[int, int]) -> None:
    """Commit as `GroupReader.commit`; what is refused for now is tried again though nobody asks."""
    try:
        await found.reader.commit(partitions, given)
    except PartitionsMoved:
        raise
    except CommitRefused:
        found.uncommitted.update(partitions)
        raise


def _seen(
    topic: ConsumedTopic, found: Subscription | None, others: Mapping[int, PartitionCursor]
) -> CursorAnswer:
    """Show cursors. others: those that are known of other gateways' partitions."""
    cursors, kind, pending = dict(others), None, dict[int, int]()
    if found is not None:
        cursors |= found.dispatcher.cursors
        kind = found.kind.value
        pending = {p: found.dispatcher.pending_of(p) for p in found.dispatcher.cursors}
    partitions = {}
    for p, cursor in sorted(cursors.items()):
        ranges = cursor.ranges
        end = topic.partitions.get(p, cursor.position)  # of one that has just been added it may not be known
        left = end - cursor.position - sum(last - first + 1 for first, last in ranges)
        shown = [
            (topic.message_id(p, first), topic.message_id(p, last)) for first, last in ranges[:MOST_SHOWN]
        ]
        place = topic.message_id(p, cursor.position)
        partitions[f"{p}"] = PartitionSeen(place, shown, pending.get(p, 0), max(left, 0))
    return CursorAnswer(CursorSeen(kind, _consumers(found), partitions))


async def _reset_to(rights: ClientRights, topic: ConsumedTopic, to: object) -> Positions:
    """Say where to go on, by partition. Raises PulsarError, CommitRefused."""
    source_id = topic.info.id
    if to in ("earliest", "latest"):
        return await rights.places(source_id, StartAt(to))
    if isinstance(to, int):
        return await rights.places(source_id, AtTime(to))
    if isinstance(to, list) and to:
        places = await _places(to, topic, rights)
        wanted = dict(sorted(places, reverse=True))  # of several in a partition from the first one on
        ends = await rights.places(source_id, StartAt.LATEST)
        if any(offset > ends.get(partition, offset) for partition, offset in wanted.items()):
            raise PulsarError(PulsarCode.GONE, "a message is not there: its partition ends before it")
        return wanted
    words = "to must be earliest, latest, milliseconds since 1970 or an array of ids of messages"
    raise PulsarError(PulsarCode.MALFORMED, words)


def _consumers(found: Subscription | None) -> list[ConsumerSeen]:
    if found is None:
        return []
    consumers = found.dispatcher.consumers
    return [ConsumerSeen(key, info.name, len(consumers[key].pending)) for key, info in found.infos.items()]


async def _places(texts: Sequence[str], topic: ConsumedTopic, rights: ClientRights) -> list[Place]:
    """Read ids of messages of this topic. Raises PulsarError."""
    places: list[Place] = []
    for index, text in enumerate(texts):
        places.append(_place(text, topic))
        if index % _EVERY == 0:
            await rights.turn()
    return places


def _place(text: str, topic: ConsumedTopic) -> Place:
    """Read an id of a message of this topic. Raises PulsarError."""
    try:
        place: MessageId = read_message_id(text)
    except ValueError:
        raise PulsarError(PulsarCode.MALFORMED, "a messageId is none") from None
    if place.life != topic.life:
        raise PulsarError(PulsarCode.GONE, "a message is of an earlier topic of this name")
    if place.partition not in topic.partitions:
        raise PulsarError(PulsarCode.MALFORMED, f"there is no partition {place.partition}")
    return place.partition, place.offset


_REFUSALS: Final[Mapping[str, PulsarCode]] = {
    RefusalCode.MOVED: PulsarCode.MOVED,
    RefusalCode.GROUP_IN_USE: PulsarCode.HAS_CONSUMERS,
    RefusalCode.GROUP: PulsarCode.SUBSCRIPTION,
    RefusalCode.ORIGIN_DENIED: PulsarCode.FORBIDDEN,
}


def _refusal(refused: CommitRefused) -> PulsarError:
    return PulsarError(_REFUSALS.get(refused.code, PulsarCode.UNAVAILABLE), str(refused))
