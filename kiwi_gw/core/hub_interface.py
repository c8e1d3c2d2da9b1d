"""What subscriptions, and what opens them and reads history for them, need of their hub; and what a
subscription needs of a reader of history that it reads from.

Both are generic over the subscription, so that they lie below it; `source_hub` and `history` implement them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Protocol, TypeVar

from kiwi_gw.core.accounts import Payer
from kiwi_gw.core.commands import LabelLimit
from kiwi_gw.core.effects import Effects
from kiwi_gw.core.encoding import EncodingGroup, EncodingMemo, KeyedFormat
from kiwi_gw.core.hub_limits import HubLimits
from kiwi_gw.core.last_values import LastValues
from kiwi_gw.core.states import SubscriptionInput, SubscriptionState
from kiwi_gw.core.window import Window, WindowEntry
from kiwi_gw.model import CloseReason, EventTransform, Lineage, OverflowPolicy, Positions, SourceInfo

S = TypeVar("S")
S_contra = TypeVar("S_contra", contravariant=True)


class Hub(Protocol[S]):
    """One source, as its subscriptions and their readers see it. on_freed: called when one may hold the
    source no longer."""

    info: SourceInfo
    limits: HubLimits
    effects: Effects
    window: Window
    expected: Positions
    memo: EncodingMemo
    last_values: LastValues | None
    dropped: Counter[OverflowPolicy]
    on_freed: Callable[[], None]
    lag_notices: int
    events_replayed: int

    @property
    def now(self) -> float: ...

    @property
    def over(self) -> bool: ...

    @property
    def lineage(self) -> Lineage | None:
        """Knows of which history positions are, where the source says so."""

    def dump(self, positions: Positions) -> dict[str, object]: ...

    def group_failed(self, group: EncodingGroup[S], message: str) -> None: ...

    def reconfigure(
        self,
        subscription: S,
        keyed: KeyedFormat,
        limits: Mapping[Hashable, LabelLimit],
        payer: Payer | None = None,
        *,
        fewer: bool = False,
    ) -> None: ...

    def transform(
        self, subscription: S, transforms: Sequence[EventTransform], payer: Payer | None = None
    ) -> None: ...

    def moved(self, subscription: S, old: SubscriptionState, new: SubscriptionState) -> None:
        """Keep in step with one that has changed its state."""

    def end(self, subscription: S, reason: CloseReason, message: str, trigger: SubscriptionInput) -> None:
        """Close it, and tell its owner why."""

    def drained(self, subscription: S) -> None:
        """Close one that was sent the rest of a source that is over or gone."""

    def end_if_over(self, subscription: S) -> None:
        """Note that one reads the window from now on: of a source that is over that is the rest."""

    def ask_for_history(self, subscription: S) -> None:
        """Find a place in history for one below the window that can be sent to."""

    def waits_for_history(self, subscription: S) -> bool: ...

    def waiting_for_history(self) -> list[S]:
        """Find those that are below the window and have no place in history."""

    def evicted(self, entry: WindowEntry) -> None:
        """Forget an entry that has left the source's window, or that of a reader of history."""

    def withdraw(self, subscription: S, message: str, reason: CloseReason = CloseReason.UNAUTHORIZED) -> None:
        """Close one whose client may have nothing more of this source."""


class MemberReader(Protocol[S_contra]):
    """A reader of history, as its members see it. on_changed: its driver may have something to do."""

    window: Window
    on_changed: Callable[[], None]

    def member_left(self, subscription: S_contra) -> None:
        """Forget a member that has joined the window, lost its place or ended."""

    def finished(self, subscription: S_contra) -> None:
        """Have a member that has had all that was read join the window, or wait for more."""
