"""Sending one batch to everyone who is at the head and can take it.

Theory of operation. Whoever has credit and a clear outlet gets the whole buffer, in one send where it is
not too large. Whoever cannot take all of it is demoted to BEHIND and read at its own pace. Others may run
where this yields: subscriptions come and go meanwhile, and are recognised by their cursor.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from kiwi_gw.core.encoding import EncodingMemo, Wire
from kiwi_gw.core.evaluation import Costs
from kiwi_gw.core.offers import pieces, whole
from kiwi_gw.core.outlet import Outlet
from kiwi_gw.core.states import State
from kiwi_gw.core.window import Entry
from kiwi_gw.model import Encoded, Mode

if TYPE_CHECKING:
    from kiwi_gw.core.subscription import Subscription


class Group:
    """The subscriptions of one source with one wire key; `live` are those at the head, in order. costs: of
    its query, where it has one and that is charged."""

    __slots__ = ("costs", "live", "size", "wire")

    def __init__(self, item: Wire, costs: Costs | None = None) -> None:
        self.wire = item
        self.costs = costs
        self.live: dict[Subscription, None] = {}
        self.size = 0


def fan_out(
    entry: Entry,
    group: Group,
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
    events = len(entry.batch) if encoded.tally is None else encoded.tally[-1]
    direct = size > 0 and entry.batch.gap is None and not encoded.unsendable
    base, push = entry.base, Mode.PUSH
    first_size = len(first)
    seldom = 0 if others else 15  # a bit mask: large batches give way after each, others after 16
    served = 0
    while waiting:
        subscription = waiting.pop()
        if subscription.cursor != base or subscription.state is not State.LIVE:
            continue  # it came, went or was demoted while others ran
        served += 1
        outlet = subscription.outlet
        if (
            direct
            and outlet.clear
            and (subscription.plain or subscription.untouched(entry))
            and not subscription.lag_due
            and (subscription.mode is push or subscription.credits >= events)
        ):
            taken = outlet.send(first)
            if taken == size or (
                taken == first_size and (taken := taken + _send_all(outlet, others)) == size
            ):
                subscription.sent(encoded, events, entry)
            else:
                memo.keep(entry, group.wire, encoded)
                subscription.fall_behind(entry)
                if taken:
                    outlet.keep(subscription.settle(whole(entry, encoded, events), taken))
                outlet.wake(subscription)
        elif size == 0 and entry.batch.gap is None and not encoded.unsendable and subscription.simple:
            subscription.sent(encoded, 0, entry)
        else:
            memo.keep(entry, group.wire, encoded)
            subscription.fall_behind(entry)
            outlet.wake(subscription)
        if not served & seldom:
            yield
    yield


def _send_all(outlet: Outlet, parts: list[memoryview]) -> int:
    """Send one after the other until something has to wait. How many bytes were taken."""
    total = 0
    for part in parts:
        if not outlet.clear:
            break
        taken = outlet.send(part)
        total += taken
        if taken < len(part):
            break
    return total
