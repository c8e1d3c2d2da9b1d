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
from collections.abc import Generator, Iterator
from typing import Final

from kiwi_gw.core.delivery import NO_BOUNDS
from kiwi_gw.core.encoding_groups import Group
from kiwi_gw.core.frame_writer import FrameWriter
from kiwi_gw.core.hub_limits import HubState
from kiwi_gw.core.prepared import whole
from kiwi_gw.core.source_hub import SourceHub
from kiwi_gw.core.states import SubscriptionState
from kiwi_gw.core.subscription import Subscription
from kiwi_gw.core.window import WindowEntry
from kiwi_gw.errors import EncodingFailed
from kiwi_gw.model import Batch, Encoded, Mode, batch_pieces

_RUNNING: Final = HubState.RUNNING
_LIVE: Final = SubscriptionState.LIVE
_PUSH: Final = Mode.PUSH
"""By name in this module: to look up a member of an enum takes 1,000 instructions (CPython 3.11)."""


def publish(hub: SourceHub, batch: Batch) -> Generator[None, None, None]:
    """Take a batch and send it to everyone who can take it, piece by piece. Yields between them, and when
    it has run for a slice of time. Nothing more of it is taken once the source does not run.

    ValueError: it repeats what was taken.
    """
    todo = batch_pieces(batch)
    piece = next(todo, None)
    try:
        while piece is not None and hub.state is _RUNNING:
            taken, piece = piece, next(todo, None)
            yield from _publish(hub, taken)
            if piece is not None:
                yield
    except GeneratorExit:  # the caller gave up half-way: the rest is read from the window
        while piece is not None and hub.state is _RUNNING:
            _take(hub, piece)
            _demote_unserved(hub)
            piece = next(todo, None)
        raise


def _publish(hub: SourceHub, batch: Batch) -> Iterator[None]:
    entry = _take(hub, batch)
    hub.effects.hand_out()
    until = hub.now + hub.limits.slice_seconds
    done = False
    try:
        for group in hub.groups:
            for _ in _send(hub, entry, group):
                hub.effects.hand_out()
                if hub.now >= until:
                    yield
                    until = hub.now + hub.limits.slice_seconds
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
    plain = entry.batch.gap is None and not encoded.unsendable
    direct, nothing = plain and size > 0, plain and size == 0
    live, push, no_bounds = _LIVE, _PUSH, NO_BOUNDS
    first_size = len(first)
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
            taken = writer.send(first)
            if taken == size or (
                taken == first_size and (taken := taken + _send_all(writer, others)) == size
            ):
                cursor.seq = end
                delivery.sent_whole(scanned, events, decode_errors, size)
            else:
                group.memo.keep(entry, group.wire, encoded)
                subscription.fall_behind(entry)
                if taken:
                    writer.hold_remainder(subscription.consume(whole(entry, encoded, events), taken))
                subscription.mark_ready()
        elif nothing and delivery.unbounded and cursor.resume_floor is None:
            cursor.seq = end
            delivery.sent_whole(scanned, 0, decode_errors, 0)
        else:
            group.memo.keep(entry, group.wire, encoded)
            subscription.fall_behind(entry)
            subscription.mark_ready()
        if not served & seldom:
            yield
    yield


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
