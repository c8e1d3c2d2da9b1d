"""Sending one batch to everyone who is at the head and can take it.

Theory of operation. Who has credit and a writable frame writer gets the whole buffer, in one send where it is
not too large. Who cannot take all of it is demoted to BEHIND and read at its own pace. Others may run where
this yields: subscriptions come and go meanwhile, and are recognised by their cursor. Owners and other writers
learn what comes of it from the caller, between two steps (see `effects`).
"""

from __future__ import annotations

from collections.abc import Iterator

from kiwi_gw.core.delivery import NO_BOUNDS
from kiwi_gw.core.encoding import EncodingMemo
from kiwi_gw.core.encoding_group import EncodingGroup
from kiwi_gw.core.frame_writer import FrameWriter
from kiwi_gw.core.prepared import pieces, whole
from kiwi_gw.core.states import SubscriptionState
from kiwi_gw.core.subscription import Subscription
from kiwi_gw.core.window import WindowEntry
from kiwi_gw.model import Encoded, Mode


def fan_out(
    entry: WindowEntry,
    group: EncodingGroup[Subscription],
    encoded: Encoded,
    waiting: list[Subscription],
    direct_bytes: int,
    memo: EncodingMemo,
) -> Iterator[None]:
    """Give an entry to those who wait for it, the last of the list first. Yields every few of them.

    direct_bytes: at most so many, or one event, are offered in one send.
    """
    size = len(encoded.buffer)
    first, *others = pieces(encoded, direct_bytes)
    events = len(entry.batch) if encoded.prefix_counts is None else encoded.prefix_counts[-1]
    plain = entry.batch.gap is None and not encoded.unsendable
    direct, nothing = plain and size > 0, plain and size == 0
    base, push, no_bounds = entry.base, Mode.PUSH, NO_BOUNDS
    first_size = len(first)
    seldom = 0 if others else 15  # a bit mask: large batches give way after each, others after 16
    served = 0
    while waiting:
        subscription = waiting.pop()
        reader = subscription.reader
        cursor, delivery = reader.cursor, reader.delivery
        if cursor.seq != base or subscription.state is not SubscriptionState.LIVE:
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
                cursor.seq = entry.end
                delivery.sent_whole(entry, encoded, events)
            else:
                memo.keep(entry, group.wire, encoded)
                subscription.fall_behind(entry)
                if taken:
                    writer.hold_remainder(subscription.consume(whole(entry, encoded, events), taken))
                subscription.mark_ready()
        elif nothing and delivery.unbounded and cursor.resume_floor is None:
            cursor.seq = entry.end
            delivery.sent_whole(entry, encoded, 0)
        else:
            memo.keep(entry, group.wire, encoded)
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
