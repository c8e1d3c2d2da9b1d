"""Who may come in, by how many others have: connections per address and per identity, and new ones a second.

What is counted are WebSocket connections, from their handshake to their end, of this process. Every one has a
`Place`, which whoever serves the socket gives back, whatever becomes of it; so there are at most as many
entries in here as there are connections, and none when all have left.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Hashable
from typing import TypeVar

from kiwi_gw.config import Limits
from kiwi_gw.dialects.throttle import Throttle, Verdict
from kiwi_gw.edge.answers import HttpError
from kiwi_gw.model import Identity, Refusal
from kiwi_gw.runtime.clients import client_at, name_of

K = TypeVar("K")

_CHALLENGE = (("WWW-Authenticate", "Bearer"),)

_STATUS = {
    "forbidden": 403,
    "internal_error": 500,
    "auth_timeout": 503,
    "keys_unavailable": 503,
    "not_configured": 503,
}
"""HTTP status of a refusal before the upgrade; all others are 401."""

_SOON = (("Retry-After", "1"),)
_CROWDED = Refusal("too_many_connections", "this identity has as many connections as it may", retry=True)


class RejectedError(HttpError):
    """An answer whose status does not say why it is given. reason: as `connections_rejected_total` has it."""

    def __init__(
        self, reason: str, status: int, message: str, headers: tuple[tuple[str, str], ...] = ()
    ) -> None:
        self.reason = reason
        super().__init__(status, message, headers)


def rejection(refusal: Refusal) -> RejectedError:
    """What is answered to credentials that were refused."""
    status = _STATUS.get(refusal.code, 401)
    headers = _CHALLENGE if status == 401 else ()
    return RejectedError("auth", status, f"{refusal.code}: {refusal.message}", headers)


class Admission:
    """limits: asked for every connection, for a reload may change them. clock: monotonic seconds.

    addresses, identities: how many connections each has that has any.
    """

    def __init__(self, limits: Callable[[], Limits], clock: Callable[[], float] = time.monotonic) -> None:
        self._limits = limits
        self._clock = clock
        self._rate = (0, 1)
        self._throttle = Throttle(*self._rate, flood_seconds=0)
        self.addresses: Counter[Hashable] = Counter()
        self.identities: Counter[str] = Counter()

    def place(self, address: object) -> Place:
        """For a socket that comes from there (as the socket itself says it). It counts nothing yet."""
        return Place(self, client_at(address))

    # --- what places do --------------------------------------------------------------------

    def enter(self, client: Hashable) -> None:
        """Count one more. Raises RejectedError 503."""
        limits = self._limits()
        most = limits.max_connections_per_address
        if most and client is not None and self.addresses[client] >= most:
            raise RejectedError("limit_ip", 503, "too many connections from this address; try again later")
        rate = (limits.connections_per_second, limits.connections_burst)
        if rate != self._rate:
            self._rate = rate
            self._throttle = Throttle(*rate, flood_seconds=0)
        if self._throttle.admit(self._clock()) is not Verdict.PASS:
            raise RejectedError("rate", 503, "too many new connections; try again in a moment", _SOON)
        if client is not None:
            self.addresses[client] += 1

    def crowded(self, name: str) -> bool:
        """Whether this identity has as many as it may."""
        most = self._limits().max_connections_per_identity
        return bool(most) and self.identities[name] >= most


class Place:
    """One connection among those that are counted. Implements `runtime.connection.Place`.

    client: whose it is, as `client_at` has it.
    """

    __slots__ = ("_admission", "_entered", "_name", "client")

    def __init__(self, admission: Admission, client: Hashable) -> None:
        self._admission = admission
        self.client = client
        self._entered = False
        self._name: str | None = None

    def enter(self) -> None:
        """It shakes hands. Raises RejectedError 503 if there are too many of them."""
        self._admission.enter(self.client)
        self._entered = True

    def identify(self, identity: Identity) -> Refusal | None:
        """It is this one from now on; a Refusal if that one has too many: then it stays who it was."""
        name = name_of(identity)
        if name == self._name:
            return None
        if name is not None:
            if self._admission.crowded(name):
                return _CROWDED
            self._admission.identities[name] += 1
        self._forget_name()
        self._name = name
        return None

    def leave(self) -> None:
        """It is gone. Nothing happens the second time."""
        self._forget_name()
        if self._entered:
            self._entered = False
            if self.client is not None:
                _take_off(self._admission.addresses, self.client)

    def _forget_name(self) -> None:
        if self._name is not None:
            _take_off(self._admission.identities, self._name)
            self._name = None


def _take_off(counts: Counter[K], key: K) -> None:
    counts[key] -= 1
    if not counts[key]:
        del counts[key]
