"""Taking batches from a source and sending them on.

Theory of operation. `publish` is the hot path and wakes no task. It appends the batch to the window and then,
group by group (a group has one wire key), asks for the fragments once and gives every subscription that is at
the head and can take it the whole buffer, in one send where that is not too large (`fan_out`). Who has no
credit or no writable socket, or cannot take all of it, is demoted to BEHIND and read at its own pace.

It is a generator: it yields when it has used up its slice of time, so that the caller can let others run.
Subscriptions come and go meanwhile, and are recognised by their cursor. Owners and other writers learn what
comes of it between two steps (see `effects`).
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Generator, Iterator, Sequence
from typing import Final

from kiwi_gw.core.delivery import NO_BOUNDS
from kiwi_gw.core.encoding_groups import Group
from kiwi_gw.core.frame_writer import FrameWriter
from kiwi_gw.core.hub_limits import HubState
from kiwi_gw.core.prepared import framed, runs, whole
from kiwi_gw.core.source_hub import SourceHub
from kiwi_gw.core.states import SubscriptionState
from kiwi_gw.core.subscription import Subscription
from kiwi_gw.core.window import WindowEntry
from kiwi_gw.errors import EncodingFailed
from kiwi_gw.model import Batch, Encoded, Framing, Mode, batch_pieces

_RUNNING: Final = HubState.RUNNING
_LIVE: Final = SubscriptionState.LIVE
_PUSH: Final = Mode.PUSH
"""By name in this module: to look up a member of an enum takes 1,000 instructions (CPython 3.11)."""

_COPIED: Final = 4 * 1024
"""What stands around so many bytes of fragments is put there by copying: cheaper than a call with three
buffers."""


def publish(
    hub: SourceHub, batch: Batch, slice_seconds: Callable[[float], float] = float
) -> Generator[Batch | None, None, None]:
    """Take a batch and send it to everyone who can take it, piece by piece. Yields each but the first before
    it is taken, so that it can wait for those who hold the source, and None when it has run for a slice of
    time. Nothing more of it is taken once the source does not run.

    One without events or a gap says that there are none up to where it begins: who only waited for that is
    at its end. slice_seconds: makes of the slice that is configured the one that begins now, but for queries.
    ValueError: it repeats what was taken.
    """
    if not len(batch) and batch.gap is None:
        hub.window.pass_over(batch)
        for subscription in list(hub.bounded):
            subscription.end_if_reached()
        hub.effects.hand_out()
        return
    todo = batch_pieces(batch)
    piece = next(todo, None)
    try:
        while piece is not None and hub.state is _RUNNING:
            taken, piece = piece, next(todo, None)
            yield from _publish(hub, taken, slice_seconds)
            if piece is not None:
                yield piece
    except GeneratorExit:  # the caller gave up half-way: the rest is read from the window, if it holds it
        while piece is not None and hub.state is _RUNNING and not hub.blocking.holding(piece):
            _take(hub, piece)
            _demote_unserved(hub)
            piece = next(todo, None)
        raise


def _publish(hub: SourceHub, batch: Batch, slice_seconds: Callable[[float], float]) -> Iterator[None]:
    entry = _take(hub, batch)
    hub.effects.hand_out()
    until = hub.now + slice_seconds(hub.limits.slice_seconds)
    done = False
    try:
        for group in hub.groups:
            # Queries have a share of each round: with shorter slices none would be postponed.
            pace = slice_seconds if group.costs is None else float
            for _ in _send(hub, entry, group):
                hub.effects.hand_out()
                if hub.now >= until:
                    yield
                    until = hub.now + pace(hub.limits.slice_seconds)
        done = True
    finally:
        if not done:
            _demote_unserved(hub)


def _take(hub: SourceHub, batch: Batch) -> WindowEntry:
    entry = hub.window.append(batch, hub.evicted)
    hub.events_in += entry.end - entry.base
    if hub.last_values is not None:
        hub.last_values.update(entry)
    return entry


def _send(hub: SourceHub, entry: WindowEntry, group: Group) -> Iterator[None]:
    """Give an entry to those of a group that are at the head, or have them read it from the window."""
    if not group.live:
        return
    waiting = list(group.live)
    try:
        encoded = group.encoded(entry, keep=len(group.live) < group.size, wait=True)
    except EncodingFailed as error:
        hub.group_failed(group, str(error))
        yield
        return
    if encoded is not None:
        yield from fan_out(entry, group, encoded, waiting, hub.limits.direct_bytes)
        return
    # Its query is postponed: they are woken when the fragments are there.
    for subscription in waiting:
        if subscription.seq == entry.base and subscription.state is _LIVE:
            subscription.fall_behind(entry)
    yield


def _demote_unserved(hub: SourceHub) -> None:
    """Have whoever was not served the newest entry read it from the window."""
    unserved = [item for item in hub.groups.live if not item.reader.cursor.caught_up]
    for subscription in unserved:
        subscription.demote()
    for subscription in unserved:  # each is read before the next is woken: a stack has room for some hundred
        subscription.mark_ready()
        hub.effects.hand_out()


def fan_out(
    entry: WindowEntry, group: Group, encoded: Encoded, waiting: list[Subscription], direct_bytes: int
) -> Iterator[None]:
    """Give an entry to those who wait for it. Yields every few of them.

    direct_bytes: at most so many, or one event, are offered in one send.
    """
    size = len(encoded.buffer)
    first, *others = buffer_pieces(encoded, direct_bytes)
    base, end = entry.base, entry.end
    scanned, decode_errors = end - base, encoded.decode_errors
    events = scanned if encoded.prefix_counts is None else encoded.prefix_counts[-1]
    plain = entry.batch.gap is None and not (encoded.unsendable or encoded.failing)
    direct, nothing = plain and size > 0, plain and size == 0
    live, push, no_bounds = _LIVE, _PUSH, NO_BOUNDS
    first_size = len(first)
    frames = FrameCutter(encoded, direct_bytes)
    seldom = 0 if others else 15  # a bit mask: large batches give way after each, others after 16
    served = 0
    for subscription in waiting:
        reader = subscription.reader
        cursor, delivery = reader.cursor, reader.delivery
        if cursor.seq != base or subscription.state is not live:
            continue  # it came, went or was demoted while others ran
        served += 1
        writer = subscription.writer
        if (
            direct
            and writer.writable
            and delivery.bounds is no_bounds
            and (cursor.resume_floor is None or cursor.floor_is_idle(entry))
            and not reader.lag.due
            and (delivery.mode is push or delivery.credits >= events)
        ):
            framing = delivery.framing
            if framing is None:
                offered, taken = size, writer.send(first)
                if others and taken == first_size:
                    taken += _send_all(writer, others)
            else:
                offered, taken = frames.send(writer, framing)
            if taken == offered:
                cursor.seq = end
                delivery.sent_whole(scanned, events, decode_errors, offered)
            else:
                _have_read(subscription, group, entry, encoded, taken)
        elif nothing and delivery.unbounded and cursor.resume_floor is None:
            cursor.seq = end
            delivery.sent_whole(scanned, 0, decode_errors, 0)
        else:
            _have_read(subscription, group, entry, encoded, 0)
        if not served & seldom:
            yield
    yield


def _have_read(
    subscription: Subscription, group: Group, entry: WindowEntry, encoded: Encoded, taken: int
) -> None:
    """Have what is left of an entry read from the window, when so many bytes of it were taken."""
    group.memo.keep(entry, group.wire, encoded)
    subscription.fall_behind(entry)
    if taken:
        framing = subscription.delivery.framing
        prepared = whole(entry, encoded) if framing is None else framed(entry, encoded, framing)
        subscription.writer.hold_remainder(subscription.consume(prepared, taken))
    subscription.mark_ready()


class FrameCutter:
    """Sends the fragments of one entry in the frames of each subscription. The fragments are cut once for all
    whose frames have equal bounds; what stands around them is each subscription's own.

    direct_bytes: as for `fan_out`.
    """

    __slots__ = ("_direct_bytes", "_encoded", "_inside")

    def __init__(self, encoded: Encoded, direct_bytes: int) -> None:
        self._encoded = encoded
        self._direct_bytes = direct_bytes
        self._inside: dict[tuple[int, int], list[memoryview]] = {}

    def send(self, writer: FrameWriter[Subscription], framing: Framing) -> tuple[int, int]:
        """Offer all of it. Returns how many bytes that is, and how many were taken."""
        bounds = framing.max_bytes, framing.separator
        inside = self._inside.get(bounds)
        if inside is None:
            cut = runs(self._encoded.ends, framing.max_bytes)
            buffer = memoryview(self._encoded.buffer)
            found = (buffer[start : end - framing.separator] for _, _, start, end in cut if end > start)
            inside = self._inside[bounds] = list(found)
        if len(inside) == 1 and len(inside[0]) <= _COPIED:
            frame = b"".join((framing.head(len(inside[0])), inside[0], framing.tail))
            return len(frame), writer.send(frame)
        parts: list[memoryview | bytes] = []
        for fragments in inside:
            parts += framing.head(len(fragments)), fragments, framing.tail
        size = sum(map(len, parts))
        if size <= self._direct_bytes:
            return size, writer.send_many(parts)
        return size, _send_parts(writer, parts, 3 * max(1, self._direct_bytes // framing.max_bytes))


def _send_parts(writer: FrameWriter[Subscription], parts: Sequence[memoryview | bytes], at_once: int) -> int:
    """Send so many of them at a time until something has to wait. How many bytes were taken."""
    total = 0
    for first in range(0, len(parts), at_once):
        if not writer.writable:
            break
        some = parts[first : first + at_once]
        taken = writer.send_many(some)
        total += taken
        if taken < sum(map(len, some)):
            break
    return total


def _send_all(writer: FrameWriter[Subscription], parts: list[memoryview]) -> int:
    """Send one after the other until something has to wait. How many bytes were taken."""
    total = 0
    for part in parts:
        if not writer.writable:
            break
        taken = writer.send(part)
        total += taken
        if taken < len(part):
            break
    return total


def buffer_pieces(encoded: Encoded, max_bytes: int) -> list[memoryview]:
    """Cut a buffer into what is to be offered one after the other: each at most `max_bytes`, or one event,
    and none ending inside an event."""
    buffer, ends, size = memoryview(encoded.buffer), encoded.ends, len(encoded.buffer)
    if size <= max_bytes:
        return [buffer]
    found, begin = [], 0
    while begin < size:
        index = bisect_right(ends, begin + max_bytes) - 1
        end = ends[index] if index >= 0 and ends[index] > begin else ends[bisect_right(ends, begin)]
        found.append(buffer[begin:end])
        begin = end
    return found
