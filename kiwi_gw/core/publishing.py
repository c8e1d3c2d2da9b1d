"""Taking batches from a source and sending them on.

Theory of operation. `publish` is the hot path and wakes no task. It appends the batch and then, group by
group (a group has one wire key), asks for the fragments once and gives every subscription that is at the head
and can take it the whole buffer (see `fanout`). It is a generator: it yields when it has used up its slice of
time, so that the caller can let others run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Protocol

from kiwi_gw.core.effects import Effects
from kiwi_gw.core.encoding import EncodingMemo
from kiwi_gw.core.encoding_groups import EncodingGroups, Group
from kiwi_gw.core.fanout import fan_out
from kiwi_gw.core.hub_limits import HubLimits
from kiwi_gw.core.last_values import LastValues
from kiwi_gw.core.positions import pieces
from kiwi_gw.core.states import SubscriptionState
from kiwi_gw.core.window import Window, WindowEntry
from kiwi_gw.errors import EncodingFailed
from kiwi_gw.model import Batch


class PublishingHub(Protocol):
    """The source that publishes, and who subscribes to it."""

    limits: HubLimits
    window: Window
    effects: Effects
    memo: EncodingMemo
    groups: EncodingGroups
    last_values: LastValues | None

    @property
    def now(self) -> float: ...

    def evicted(self, entry: WindowEntry) -> None: ...

    def group_failed(self, group: Group, message: str) -> None: ...


class Publishing:
    """See the top of this file. events: how many there were."""

    def __init__(self, hub: PublishingHub) -> None:
        self.events = 0
        self._hub = hub

    def publish(self, batch: Batch, running: Callable[[], bool]) -> Iterator[None]:
        """Take a batch and send it to everyone who can take it, piece by piece. Yields between them, and when
        it has run for a slice of time. Nothing more of it is taken once the source is not `running`.

        ValueError: it repeats what was taken.
        """
        todo = pieces(batch)
        piece = next(todo, None)
        try:
            while piece is not None and running():
                taken, piece = piece, next(todo, None)
                yield from self._publish(taken)
                if piece is not None:
                    yield
        except GeneratorExit:  # the caller gave up half-way: the rest is read from the window
            while piece is not None and running():
                self._take(piece)
                self._demote_unserved()
                piece = next(todo, None)
            raise

    def _publish(self, batch: Batch) -> Iterator[None]:
        entry = self._take(batch)
        self._hub.effects.hand_out()
        until = self._hub.now + self._hub.limits.slice_seconds
        done = False
        try:
            for group in self._hub.groups:
                for _ in self._send(entry, group):
                    self._hub.effects.hand_out()
                    if self._hub.now >= until:
                        yield
                        until = self._hub.now + self._hub.limits.slice_seconds
            done = True
        finally:
            if not done:
                self._demote_unserved()

    def _send(self, entry: WindowEntry, group: Group) -> Iterator[None]:
        """Give an entry to those of a group that are at the head, or have them read it from the window."""
        if not group.live:
            return
        waiting = list(group.live)
        waiting.reverse()
        try:
            encoded = self._hub.groups.encoded(group, entry, keep=len(group.live) < group.size, wait=True)
        except EncodingFailed as error:
            self._hub.group_failed(group, str(error))
            yield
            return
        if encoded is not None:
            yield from fan_out(entry, group, encoded, waiting, self._hub.limits.direct_bytes, self._hub.memo)
            return
        # Its query is postponed: they are woken when the fragments are there.
        for subscription in waiting:
            if subscription.seq == entry.base and subscription.state is SubscriptionState.LIVE:
                subscription.fall_behind(entry)
        yield

    def _take(self, batch: Batch) -> WindowEntry:
        entry = self._hub.window.append(batch, self._hub.evicted)
        self.events += len(batch)
        if self._hub.last_values is not None:
            self._hub.last_values.update(entry)
        return entry

    def _demote_unserved(self) -> None:
        """Have whoever was not served the newest entry read it from the window."""
        for subscription in self._hub.groups.live:
            if not subscription.reader.cursor.caught_up:
                subscription.demote()
                subscription.mark_ready()
        self._hub.effects.hand_out()
