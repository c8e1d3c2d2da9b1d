"""The wire keys of one source that are in use, and who is in which group."""

from __future__ import annotations

from collections.abc import Hashable, Iterator

from kiwi_gw.core.accounts import Payer
from kiwi_gw.core.encoding import EncodingGroup, EncodingMemo, KeyedFormat
from kiwi_gw.core.evaluation import Failed
from kiwi_gw.core.states import SubscriptionState
from kiwi_gw.core.subscription import Subscription
from kiwi_gw.core.wire_keys import ChosenKeys

Group = EncodingGroup[Subscription]


class EncodingGroups:
    """The groups of one source. failed: called, between operations, with one whose query has failed."""

    def __init__(self, source_id: str, memo: EncodingMemo, chosen: ChosenKeys, failed: Failed) -> None:
        self.chosen = chosen
        self._memo = memo
        self._evaluations = memo.evaluations
        self._source_id = source_id
        self._failed = failed
        self._groups: dict[Hashable, Group] = {}

    def __len__(self) -> int:
        return len(self._groups)

    def __iter__(self) -> Iterator[Group]:
        """Those without a query first: they do not wait until those of others are evaluated."""
        return iter(sorted(self._groups.values(), key=_evaluated))

    @property
    def live(self) -> list[Subscription]:
        """Subscriptions at the head, of all groups."""
        return [item for group in self._groups.values() for item in group.live]

    def get(
        self,
        keyed: KeyedFormat,
        payer: Payer | None,
        leaving: Group | None = None,
        *,
        counted: bool = True,
        fewer: bool = False,
    ) -> Group:
        """Find or make the group of a wire key. leaving: the one that is left when this one is joined.
        counted: whether it may be one too many; fewer: as in `ChosenKeys.check`.

        Raises SubscribeRefused.
        """
        group = self._groups.get(keyed.key)
        if counted and keyed.chosen and (group is None or group is not leaving):
            self.chosen.check(group, payer, leaving, fewer=fewer)
        if group is None:
            costs = None
            if keyed.takes_turns and self._evaluations is not None:
                costs = self._evaluations.costs(self._source_id, keyed.key)
            group = self._groups[keyed.key] = EncodingGroup(keyed, self._memo, self._failed, costs)
        return group

    def join(self, group: Group, payer: Payer | None) -> None:
        group.size += 1
        if group.costs is not None:
            group.costs.add_payer(payer)
        if group.wire.chosen:
            self.chosen.add(group, payer)

    def leave(self, group: Group, payer: Payer | None) -> None:
        group.size -= 1
        if group.costs is not None:
            group.costs.remove_payer(payer)
        if group.wire.chosen:
            self.chosen.remove(group, payer)
        if group.size == 0:
            self._groups.pop(group.wire.key, None)
            if self._evaluations is not None:
                self._evaluations.emptied(self._source_id, group)

    def move(
        self,
        subscription: Subscription,
        keyed: KeyedFormat,
        payer: Payer | None = None,
        *,
        all_at_once: bool = False,
        fewer: bool = False,
    ) -> None:
        """Give a subscription another wire key. payer: of that, None: as before. all_at_once: all others are
        about to get another one, too. fewer: it asks for less than before.

        Raises SubscribeRefused, and then it has the old one, as if nothing had been asked.
        """
        old, paid = subscription.group, subscription.payer
        payer = payer or paid
        group = self.get(keyed, payer, old, counted=not all_at_once, fewer=fewer)
        if old is group and payer == paid:
            return
        if subscription.state is SubscriptionState.LIVE and not subscription.reader.cursor.caught_up:
            subscription.demote()  # fan-out is on its way, and would look for it in the old group
        live = subscription in old.live
        self.join(group, payer)
        self.leave(old, paid)
        subscription.group, subscription.payer = group, payer
        if live and old is not group:
            del old.live[subscription]
            group.live[subscription] = None


def _evaluated(group: Group) -> bool:
    return group.costs is not None
