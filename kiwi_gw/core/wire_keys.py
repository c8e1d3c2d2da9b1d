"""How many wire keys of a source clients may have chosen, all together and each.

A wire key that every client gets which asks for nothing special does not count. Others are made of what
clients write: each identity and each connection has a share of them, so that none takes the place of all.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable

from kiwi_gw.codes import RefusalCode
from kiwi_gw.core.accounts import Payer
from kiwi_gw.errors import SubscribeRefused


class ChosenKeys:
    """Those of one source. Bounds: of all, of one identity, of one connection; 0 is none. A group is
    one wire key, with what is made for it."""

    def __init__(self, most: int, identity: int, connection: int) -> None:
        self._most = most
        self._shares = identity, connection
        self._all: Counter[Hashable] = Counter()
        self._of: dict[Hashable, Counter[Hashable]] = {}

    def __len__(self) -> int:
        return len(self._all)

    def check(
        self,
        group: Hashable | None,
        payer: Payer | None,
        leaving: Hashable | None,
        *,
        fewer: bool = False,
    ) -> None:
        """See whether one more subscription may have this wire key (None: a new one) instead of another.

        fewer: it asks for less than before, and so only its own shares bound it: others can have used up
        what is there for all. Raises SubscribeRefused.
        """
        if not fewer and _more(self._all, group, leaving) > self._most:
            raise _refused(f"this source already has {self._most} different wire keys that clients chose")
        for who, most, words in zip(_of(payer), self._shares, ("a client", "a connection"), strict=False):
            if most and _more(self._of.get(who, Counter()), group, leaving) > most:
                raise _refused(f"{words} can have at most {most} different wire keys of a source")

    def add(self, group: Hashable, payer: Payer | None) -> None:
        """Count one subscription more with this wire key."""
        self._all[group] += 1
        for who in _of(payer):
            self._of.setdefault(who, Counter())[group] += 1

    def remove(self, group: Hashable, payer: Payer | None) -> None:
        """Count one less."""
        _less(self._all, group)
        for who in _of(payer):
            mine = self._of[who]
            _less(mine, group)
            if not mine:
                del self._of[who]


def _of(payer: Payer | None) -> tuple[Hashable, ...]:
    return () if payer is None else (("identity", payer.identity), ("connection", payer.connection))


def _more(counted: Counter[Hashable], group: Hashable | None, leaving: Hashable | None) -> int:
    """Count those that there are when one was joined and another left."""
    gone = leaving is not None and counted[leaving] == 1
    return len(counted) + (group is None or group not in counted) - gone


def _less(counted: Counter[Hashable], group: Hashable) -> None:
    counted[group] -= 1
    if not counted[group]:
        del counted[group]


def _refused(words: str) -> SubscribeRefused:
    return SubscribeRefused(RefusalCode.TOO_MANY_WIRE_KEYS, words)
