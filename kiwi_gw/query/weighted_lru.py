"""A cache of what was made of the texts that were used last."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

T = TypeVar("T")


class WeightedLru(Generic[T]):
    """Keep values of no more weight than `most` together, and always the last. The one that was not needed
    for longest goes first.

    Weight counts and not number, for clients choose the texts. A dear query is a thousand objects, and all of
    Python stands still while its garbage collector walks over the kept ones.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._entries: OrderedDict[Hashable, tuple[T, int]] = OrderedDict()
        self._weight = 0

    def known(self, key: Hashable) -> T | None:
        """Return what is kept under the key."""
        found = self._entries.get(key)
        if found is None:
            return None
        self._entries.move_to_end(key)
        return found[0]

    def get(self, key: Hashable, weight: int, make: Callable[[], T]) -> T:
        """Return what is kept under the key, or make it. Nothing is kept if that raises."""
        found = self._entries.get(key)
        if found is not None:
            self._entries.move_to_end(key)
            return found[0]
        made = make()
        self.keep(key, weight, made)
        return made

    def keep(self, key: Hashable, weight: int, made: T) -> None:
        """Keep it under the key, which must be new."""
        self._entries[key] = made, weight
        self._weight += weight
        while self._weight > self._most and len(self._entries) > 1:
            _, (_, gone) = self._entries.popitem(last=False)
            self._weight -= gone

    def clear(self) -> None:
        self._entries.clear()
        self._weight = 0
