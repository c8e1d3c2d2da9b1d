"""One client's half of the Zetta protocol: which topics it wants, and which sources are read for them.

Theory of operation. Every subscription is a topic; `MultiplexedReaders` reads the sources that it may match.
Topics outlive sources: those that named one learn that it has ended, and it is read again if it comes back.
For a client that may not read a source, it does not exist.

Commands are made one at a time, from the state of that moment. Carrying one out may bring a notice that
changes the state (a limit is reached) before the next one is made.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import chain, count
from typing import Final

from msgspec import UNSET, Raw

from kiwi_gw.codes import CloseCode, RefusalCode
from kiwi_gw.core.commands import (
    Close,
    Command,
    Continue,
    LabelLimit,
    Offload,
    Reply,
    SetTimer,
    Violation,
)
from kiwi_gw.core.notices import (
    Continued,
    Ended,
    Lagged,
    LimitReached,
    Notice,
    Offloaded,
    Opened,
    OpenFailed,
    ReconfigureRefused,
    SourceAppeared,
    TimerFired,
)
from kiwi_gw.dialect_api.frames import encodable, message_frame
from kiwi_gw.dialect_api.limits import SessionLimits
from kiwi_gw.dialect_api.throttle import Throttle, Verdict
from kiwi_gw.dialects.compiling import CompilingBudget, busy
from kiwi_gw.dialects.zetta import messages, requests
from kiwi_gw.dialects.zetta.devices import SeenDevices
from kiwi_gw.dialects.zetta.multiplexed_readers import MultiplexedReaders
from kiwi_gw.dialects.zetta.step_queue import STEPS, CommandSteps, StepQueue
from kiwi_gw.dialects.zetta.topic_filters import ParsedTopic, TopicFilter, filter_of, parse_topic
from kiwi_gw.dialects.zetta.topic_streams import TopicStream
from kiwi_gw.dialects.zetta.topic_subscription import TopicSubscription, too_many
from kiwi_gw.model import CloseReason, SourceInfo, StartAt

RATE_LIMITED: Final = "rate_limited"

LOSS_SECONDS: Final = 1.0
"""Losses of a subscription are said at most once in this time."""

RETRY_SECONDS: Final = 5.0
"""When a source that could not be read is tried again."""

_OVER = (CloseReason.ENDED, CloseReason.REMOVED, CloseReason.ALTERED, CloseReason.CHANGED)
"""Ends that are not said to a pattern: it goes on with what else it matches."""

_PASSING = (RefusalCode.FAILED, RefusalCode.TOO_MANY_WIRE_KEYS)
"""Codes of OpenFailed for what may be over by then: a source that takes long to start."""


class ZettaSession:
    """Implement `kiwi_gw.core.commands.Session`.

    stream: the topics of a source. multiple: one event for all topics without a query (`filterMultiple`).
    wall: ms since the epoch. clock: monotonic seconds.
    """

    def __init__(
        self,
        stream: Callable[[SourceInfo], TopicStream],
        limits: SessionLimits,
        wall: Callable[[], int],
        clock: Callable[[], float],
        *,
        multiple: bool = False,
        max_event_bytes: int,
    ) -> None:
        self._limits = limits
        self._wall = wall
        self._clock = clock
        self._multiple = multiple
        self._throttle = Throttle(limits.commands_per_second, limits.commands_burst, limits.flood_seconds)
        self._compiling = CompilingBudget(limits, clock)
        self._steps = StepQueue(self._compiling)
        self._numbers = count(1)
        self._queries = count(1)
        self._subscriptions: dict[int, TopicSubscription] = {}
        self._readers = MultiplexedReaders(
            self._subscriptions, stream, multiple=multiple, max_event_bytes=max_event_bytes
        )
        self._reading: dict[str, tuple[requests.TopicRequest, ParsedTopic]] = {}  # by handles of their own
        self._reminded_at: float | None = None
        self._asked_turn = False
        self._retry: dict[str, float] = {}  # ids of sources that could not be read, and when to try again

    def receive(self, message: str | bytes, now: float) -> Iterator[Command]:
        """Take one message of the client, in a text or a binary frame. It gets exactly one answer."""
        verdict = self._throttle.admit(now)
        if verdict is Verdict.FLOOD:
            yield Close(CloseCode.POLICY_VIOLATION, RATE_LIMITED, Violation.COMMANDS)
            return
        if verdict is Verdict.EXCESS:
            words = f"too many messages: at most {self._limits.commands_per_second:g} a second"
            yield self._error(requests.BAD_REQUEST, None, words, violation=Violation.COMMANDS)
            return
        request = requests.read(message)
        match request:
            case requests.TopicRequest():
                yield from self._subscribe(request)
            case requests.EndRequest(number):
                yield from self._unsubscribe(number)
            case messages.PingRequest(data):
                yield _say(messages.Pong(self._wall(), data))
            case requests.RequestError(code, words, topic):
                yield self._error(code, topic, words, violation=Violation.MESSAGE)

    def notice(self, notice: Notice) -> Iterable[Command]:
        """Return what a notice makes the session do. Notices about readers that are given up do nothing."""
        match notice:
            case Offloaded(handle=str(handle)):
                return self._answered(handle, notice)
            case SourceAppeared(info):
                return self._appeared(info)
            case LimitReached(int(handle), int(number)):
                return self._limit_reached(handle, number)
            case Lagged(handle=int(handle), dropped=dropped):
                return self._lost(handle, dropped)
            case Ended(handle=int(handle)):
                return self._ended(handle, notice)
            case Opened(source=info):
                self._works(info)
                return ()
            case OpenFailed(handle=int(handle)):
                return self._open_failed(handle, notice)
            case ReconfigureRefused(handle=int(handle)):
                return self._reconfigure_refused(handle, notice)
            case TimerFired():
                return self._timer_fired()
            case Continued(idle):
                return self._continued(idle=idle)
            case _:
                return ()

    # --- what the client says --------------------------------------------------------------

    def _subscribe(self, request: requests.TopicRequest) -> Iterator[Command]:
        wait = self._compiling.wait()
        if wait:
            yield self._error(requests.BAD_REQUEST, request.written, busy(wait), violation=Violation.COMMANDS)
            return
        try:
            with self._compiling.charged():
                text = parse_topic(request.topic, self._limits.query_bytes)
                question = text.question
                wanted = filter_of(text) if question is None else None
        except ValueError as error:
            yield self._error(requests.BAD_REQUEST, request.written, str(error))
            return
        if wanted is not None:
            yield from self._begin(request, wanted)
        elif question is not None:
            reading = f"query {next(self._queries)}"
            self._reading[reading] = request, text
            yield Offload(reading, question)

    def _answered(self, handle: str, notice: Offloaded) -> Iterator[Command]:
        """Go on with a subscription whose query was read elsewhere."""
        self._compiling.charge_offloaded(notice.seconds)
        request, text = self._reading.pop(handle)
        try:
            with self._compiling.charged():
                wanted = filter_of(text, notice.answer)
        except ValueError as error:
            yield self._error(requests.BAD_REQUEST, request.written, str(error))
        else:
            yield from self._begin(request, wanted)

    def _begin(self, request: requests.TopicRequest, wanted: TopicFilter) -> Iterator[Command]:
        refusal = too_many(wanted, self._subscriptions.values(), self._limits)
        if refusal is not None:
            yield self._error(requests.BAD_REQUEST, request.written, refusal)
            return
        number = next(self._numbers)
        limit = None if request.limit is None else LabelLimit(request.limit)
        new = TopicSubscription(number, request.written, wanted, limit)
        if request.limit == 0:
            yield from self._left(new)  # not behind other steps: a client could make any number wait
            return
        self._subscriptions[number] = new
        if wanted.devices:
            new.devices = SeenDevices(request.written, number, self._multiple, wanted)
        steps = self._readers.refresh(new), self._acknowledge(new)
        # Acknowledged once all sources are read: what is published from then on reaches the client. But known
        # devices come as soon as a source is read; before the client knows the id they could be lost.
        yield from self._in_turns(chain(*(reversed(steps) if wanted.devices else steps)))

    def _acknowledge(self, new: TopicSubscription) -> Iterator[Command]:
        if new.held is not None:
            held, new.held = new.held, None
            yield _say(messages.SubscribeAck(self._wall(), Raw(new.written), new.number))
            yield from held
            yield from self._tell_loss(new)

    def _unsubscribe(self, number: int | None) -> Iterator[Command]:
        if number is None or number not in self._subscriptions:
            yield self._error(requests.NOT_SUPPORTED, None, "no subscription has this id")
        else:
            yield from self._leave(number)

    def _leave(self, number: int) -> Iterator[Command]:
        left = self._subscriptions.pop(number, None)
        if left is None:
            return
        readers = self._readers.serving(number)
        if len(readers) < STEPS:  # all in one turn: no event comes in between
            with self._compiling.charged():
                yield from self._left(left)
                for reader in readers:
                    yield from self._readers.leave(reader)
        else:
            steps = (command for reader in readers for command in self._readers.leave(reader))
            yield from self._in_turns(chain(steps, self._left(left)))

    def _limit_reached(self, handle: int, number: int) -> Iterator[Command]:
        yield from self._leave(number)
        reader = self._readers.get(handle)
        if reader is not None and number in reader.members:
            yield from self._readers.leave(reader)  # it stands still until then, for its other topics too

    def _left(self, left: TopicSubscription) -> Iterator[Command]:
        yield from self._acknowledge(left)
        # What it still knew of a loss is said while its id means something.
        yield from self._tell_loss(left)
        yield _say(messages.UnsubscribeAck(self._wall(), left.number))

    def _in_turns(self, steps: CommandSteps) -> Iterator[Command]:
        yield from self._steps.do(steps)
        yield from self._ask_turn()

    def _ask_turn(self) -> Iterator[Command]:
        if not self._asked_turn and (wait := self._steps.waits) is not None:
            self._asked_turn = True
            yield Continue(wait)

    def _continued(self, *, idle: bool) -> Iterator[Command]:
        self._asked_turn = False
        if idle or self._steps.waits == 0:
            yield from self._steps.go_on(charged=not idle)
        yield from self._ask_turn()

    # --- what happened in the core ---------------------------------------------------------

    def _appeared(self, info: SourceInfo) -> Iterator[Command]:
        self._works(info)
        yield from self._readers.appeared(info)

    def _works(self, info: SourceInfo) -> None:
        self._retry.pop(info.id, None)
        for item in self._subscriptions.values():
            item.over.discard(info.id)

    def _lost(self, handle: int, dropped: int | None) -> Iterator[Command]:
        reader = self._readers.get(handle)
        if reader is None or dropped == 0:
            return
        for item in list(reader.members.values()):
            item.lose(dropped)
            if self._clock() - item.told_at >= LOSS_SECONDS:
                yield from self._tell_loss(item)
        if any(item.has_lost for item in reader.members.values()):
            yield from self._set_timer(LOSS_SECONDS)

    def _tell_loss(self, item: TopicSubscription) -> Iterator[Command]:
        if item.held is None and item.has_lost:
            yield from self._tell_trouble(item, item.losses(self._clock()))

    def _tell_trouble(self, item: TopicSubscription, words: str) -> Iterator[Command]:
        error = self._error(requests.SERVER_ERROR, item.written, words, item.number)
        if item.held is not None:
            item.held.append(error)
        else:
            yield error

    def _ended(self, handle: int, ended: Ended) -> Iterator[Command]:
        reader = self._readers.get(handle)
        if reader is None:
            return
        self._readers.forget(reader)
        lost = ended.dropped is None or ended.dropped > 0
        quiet = ended.reason in _OVER and not lost
        for item in list(reader.members.values()):
            if item.topic_filter.concrete or not quiet:
                item.lose(ended.dropped)
                words = ended.message
                if item.has_lost:
                    words = f"{words}; {item.losses(self._clock())}"
                item.over.add(reader.info.id)
                yield from self._tell_trouble(item, words)
        if ended.reason is CloseReason.UNAUTHORIZED:  # or it could not be given the form that it needs now
            yield from self._try_later(reader.info)

    def _open_failed(self, handle: int, failed: OpenFailed) -> Iterator[Command]:
        reader = self._readers.get(handle)
        if reader is None:
            return
        self._readers.forget(reader)
        # The newest events are not kept by key, or are not for one without the right to replay.
        if reader.snapshot and failed.code not in (RefusalCode.UNKNOWN_SOURCE, *_PASSING):
            for item in reader.members.values():
                yield from self._readers.look_for_devices(item, reader.info, StartAt.LATEST)
            return
        if failed.code == RefusalCode.UNKNOWN_SOURCE:
            return  # it is not there, or not for this client: the same answer
        passing = failed.code in _PASSING
        for item in list(reader.members.values()):
            if (passing or item.topic_filter.concrete) and reader.info.id not in item.over:
                item.over.add(reader.info.id)
                yield from self._tell_trouble(item, failed.message)
        if passing:
            yield from self._try_later(reader.info)

    def _reconfigure_refused(self, handle: int, refused: ReconfigureRefused) -> Iterator[Command]:
        reader = self._readers.get(handle)
        if reader is None:
            return
        new = [item for number, item in reader.members.items() if number not in reader.before]
        reader.members = reader.before
        for item in new:
            if reader.info.id not in item.over:
                item.over.add(reader.info.id)
                yield from self._tell_trouble(item, refused.message)
        yield from self._try_later(reader.info)

    # --- what is to be done in a while -----------------------------------------------------

    def _try_later(self, info: SourceInfo) -> Iterator[Command]:
        self._retry[info.id] = self._clock() + RETRY_SECONDS
        yield from self._set_timer(RETRY_SECONDS)

    def _set_timer(self, seconds: float) -> Iterator[Command]:
        at = self._clock() + seconds
        if self._reminded_at is None or at < self._reminded_at:
            self._reminded_at = at
            yield SetTimer(seconds)

    def _timer_fired(self) -> Iterator[Command]:
        self._reminded_at = None
        now = self._clock()
        waits = []
        for item in list(self._subscriptions.values()):
            if item.has_lost:
                if now - item.told_at >= LOSS_SECONDS:
                    yield from self._tell_loss(item)
                else:
                    waits.append(item.told_at + LOSS_SECONDS - now)
        for source_id, at in list(self._retry.items()):
            info = self._readers.source(source_id)
            if at > now:
                waits.append(at - now)
            elif info is not None:
                del self._retry[source_id]
                yield from self._in_turns(self._readers.read(info))
        if waits:
            yield from self._set_timer(max(0.001, min(waits)))

    def _error(
        self,
        code: int,
        topic: bytes | None,
        words: str,
        number: int | None = None,
        violation: Violation | None = None,
    ) -> Reply:
        error = messages.Error(
            code=code,
            timestamp=self._wall(),
            topic=UNSET if topic is None else Raw(topic),
            message=encodable(words),
            subscription_id=UNSET if number is None else number,
        )
        return _say(error, violation)


def _say(message: messages.ServerMessage, violation: Violation | None = None) -> Reply:
    return Reply(message_frame(message), violation)
