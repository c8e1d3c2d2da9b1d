"""Who may come in, and what each may then ask for: `server.limits`, the same for all protocols.

Connections are counted in all, per address and per identity; new ones have a rate. What is counted are
WebSocket connections, from their handshake to their end, of this process. Every one has a
`AdmissionSlot`, which its socket's task gives back, whatever becomes of it; so there are at most as many
entries in here as there are connections, and none when all have left. What a session may ask for (rates,
subscriptions, queries, sizes) goes to it as `SessionLimits`.
"""

from __future__ import annotations

import enum
import time
from collections import Counter
from collections.abc import Callable, Collection, Hashable
from typing import Protocol, TypeVar

from kiwi_gw.codes import RefusalCode
from kiwi_gw.config import LimitSettings
from kiwi_gw.core.accounts import COMPILING_SAVED_SECONDS, AccountCache, ClientAccount, SharedAccount
from kiwi_gw.dialect_api.limits import SessionLimits
from kiwi_gw.dialect_api.throttle import Throttle, Verdict
from kiwi_gw.edge.http_errors import HttpError
from kiwi_gw.model import Identity, Refusal
from kiwi_gw.runtime.client_identity import client_at, name_of, who_pays

K = TypeVar("K")

_CHALLENGE = (("WWW-Authenticate", "Bearer"),)

_STATUS: dict[str, int] = {
    RefusalCode.FORBIDDEN: 403,
    RefusalCode.INTERNAL_ERROR: 500,
    RefusalCode.AUTH_TIMEOUT: 503,
    RefusalCode.KEYS_UNAVAILABLE: 503,
    RefusalCode.NOT_CONFIGURED: 503,
    RefusalCode.BUSY: 503,
    RefusalCode.TOO_MANY_FAILURES: 429,
}
"""HTTP status of a refusal before the upgrade; all others are 401."""

_SOON = (("Retry-After", "1"),)
_CROWDED = Refusal(
    RefusalCode.TOO_MANY_CONNECTIONS, "this identity has as many connections as it may", retry=True
)


class Rejection(enum.StrEnum):
    """Why a connection was refused before it was one, as `connections_rejected_total` has it."""

    BAD_REQUEST = "bad_request"
    TIMEOUT = "timeout"
    LEFT = "left"  # before it asked for anything
    ORIGIN = "origin"
    HOST = "host"
    AUTH = "auth"
    DRAINING = "draining"
    OVERLOAD = "overload"
    RATE = "rate"
    TOTAL = "limit_total"
    ADDRESS = "limit_ip"
    IDENTITY = "limit_identity"
    DESCRIPTORS = "limit_descriptors"


class RejectedError(HttpError):
    """An answer whose status does not say why it is given. refusal: of the credentials, where they were."""

    def __init__(
        self,
        reason: Rejection,
        status: int,
        message: str,
        headers: tuple[tuple[str, str], ...] = (),
        refusal: Refusal | None = None,
    ) -> None:
        self.reason = reason
        self.refusal = refusal
        super().__init__(status, message, headers)


def rejection(refusal: Refusal) -> RejectedError:
    """Make the answer to credentials that were refused."""
    status = _STATUS.get(refusal.code, 401)
    headers = _CHALLENGE if status == 401 else ()
    return RejectedError(Rejection.AUTH, status, f"{refusal.code}: {refusal.message}", headers, refusal)


class AdmissionContext(Protocol):
    """What is asked of the gateway for every connection, for a reload may change it."""

    @property
    def limits(self) -> LimitSettings: ...

    @property
    def connections(self) -> Collection[object]: ...

    @property
    def refusing(self) -> bool:
        """Whether memory is short."""

    @property
    def draining(self) -> bool: ...

    @property
    def compiling(self) -> SharedAccount:
        """What all clients may use of the loop to have queries read."""


class Admission:
    """addresses, identities: how many connections each has that has any. clock: monotonic seconds.

    compiling_kept: what clients that have left had saved or owed of the time for reading their queries.
    """

    def __init__(self, context: AdmissionContext, clock: Callable[[], float] = time.monotonic) -> None:
        self._context = context
        self._clock = clock
        self._rate = (0, 1)
        self._throttle = Throttle(*self._rate, flood_seconds=0)
        self.addresses: Counter[Hashable] = Counter()
        self.identities: Counter[str] = Counter()
        self.compiling_kept: AccountCache[ClientAccount] = AccountCache()

    def new_slot(self, address: object) -> CountedConnection:
        """Make one for a socket that comes from there (as it says itself). It counts nothing yet."""
        return CountedConnection(self, client_at(address))

    def check_room(self) -> None:
        """Raise RejectedError 503 at the limit, where memory is short and at the end. Sockets that have not
        said what they want yet do not count: they are given five seconds, and no client's place."""
        most = self._context.limits.max_connections
        if most and len(self._context.connections) >= most:
            raise RejectedError(Rejection.TOTAL, 503, "too many connections; try again later")
        if self._context.refusing:
            raise RejectedError(Rejection.OVERLOAD, 503, "memory is short; try again later")
        if self._context.draining:
            raise RejectedError(Rejection.DRAINING, 503, "the gateway is about to stop; try again later")

    # --- what slots do ---------------------------------------------------------------------

    def enter(self, client: Hashable) -> None:
        """Count one more. Raises RejectedError 503."""
        limits = self._context.limits
        most = limits.max_connections_per_address
        there = self.addresses.get(client, 0)
        if most and client is not None and there >= most:
            words = "too many connections from this address; try again later"
            raise RejectedError(Rejection.ADDRESS, 503, words)
        rate = (limits.connections_per_second, limits.connections_burst)
        if rate != self._rate:
            self._rate = rate
            self._throttle = Throttle(*rate, flood_seconds=0)
        if self._throttle.admit(self._clock()) is not Verdict.PASS:
            raise RejectedError(Rejection.RATE, 503, "too many new connections; try again in a moment", _SOON)
        if client is not None:
            self.addresses[client] = there + 1

    def crowded(self, name: str) -> bool:
        """Whether this identity has as many as it may."""
        most = self._context.limits.max_connections_per_identity
        return bool(most) and self.identities[name] >= most

    def allow(self, who: Hashable) -> SessionLimits:
        """Say what one session may ask for. who: whose shares it uses."""
        limits = self._context.limits
        share = limits.connection_compiling_percent / 100
        own = self.compiling_kept.take(who, self._clock())
        return SessionLimits(
            subscriptions=limits.max_subscriptions,
            commands_per_second=limits.commands_per_second,
            commands_burst=limits.commands_burst,
            requests_per_second=limits.requests_per_second,
            requests_burst=limits.requests_burst,
            flood_seconds=limits.flood_ms / 1000,
            queries=limits.max_queries,
            query_bytes=limits.query_bytes,
            compiling_share=share,
            compiling_own=own or ClientAccount(share, COMPILING_SAVED_SECONDS),
            compiling=self._context.compiling,
        )

    def keep(self, who: Hashable, compiling: ClientAccount) -> None:
        """Keep what a session that is over has saved or owes, for the next one of this client."""
        self.compiling_kept.keep(who, compiling, self._clock())


class CountedConnection:
    """One connection among those that are counted. Implements `runtime.ports.AdmissionSlot`.

    client: whose it is, as `client_at` has it.
    """

    __slots__ = ("_admission", "_entered", "_kept", "_name", "client")

    def __init__(self, admission: Admission, client: Hashable) -> None:
        self._admission = admission
        self.client = client
        self._entered = False
        self._name: str | None = None
        self._kept: tuple[Hashable, ClientAccount] | None = None

    def enter(self) -> None:
        """Count it: it shakes hands. Raises RejectedError 503 if there are too many of them."""
        self._admission.enter(self.client)
        self._entered = True

    def identify(self, identity: Identity) -> Refusal | None:
        """Count it as this one's from now on; a Refusal if that one has too many: then it stays as it was."""
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

    def allow(self, identity: Identity, connection: int) -> SessionLimits:
        """Say what its session may ask for. connection: its number."""
        who = who_pays(identity, self.client, connection)
        limits = self._admission.allow(who)
        if limits.compiling_own is not None:
            self._kept = who, limits.compiling_own
        return limits

    def leave(self) -> None:
        """Give it back. Nothing happens the second time."""
        self._forget_name()
        if self._kept is not None:
            self._admission.keep(*self._kept)
            self._kept = None
        if self._entered:
            self._entered = False
            if self.client is not None:
                _take_off(self._admission.addresses, self.client)

    def _forget_name(self) -> None:
        if self._name is not None:
            _take_off(self._admission.identities, self._name)
            self._name = None


def _take_off(counts: Counter[K], key: K) -> None:
    left = counts[key] - 1
    if left:
        counts[key] = left
    else:
        del counts[key]
