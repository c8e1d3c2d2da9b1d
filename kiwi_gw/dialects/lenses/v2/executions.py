"""How many statements are executed at a time: of each client, and of all."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable

from kiwi_gw.model import Identity


class Executions:
    """Count them. most: of all; most_each: of one client."""

    def __init__(self, most: int, most_each: int) -> None:
        self._most = most
        self._most_each = most_each
        self._by_client: Counter[Hashable] = Counter()

    @property
    def count(self) -> int:
        """How many are executed."""
        return self._by_client.total()

    def begin(self, client: Hashable) -> str | None:
        """Count one of a client. Returns what is in its way, in words, and counts nothing then."""
        if self._by_client[client] >= self._most_each:
            return f"at most {self._most_each} queries of one client are executed at a time"
        if self.count >= self._most:
            return f"at most {self._most} queries are executed at a time; try again"
        self._by_client[client] += 1
        return None

    def over(self, client: Hashable) -> None:
        """Count one off."""
        self._by_client[client] -= 1
        if not self._by_client[client]:
            del self._by_client[client]


def client_of(identity: Identity, remote: str) -> Hashable:
    """Say who a client is: by its name, or where that is anyone's by its address. remote: with its port."""
    return ("at", remote.rpartition(":")[0]) if identity.anonymous else ("name", identity.name)
