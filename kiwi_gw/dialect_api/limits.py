"""What one client of a protocol may ask for."""

from __future__ import annotations

from dataclasses import dataclass, field

from kiwi_gw.core.accounts import ClientAccount, SharedAccount
from kiwi_gw.query.limits import MAX_TEXT


@dataclass(frozen=True, slots=True)
class SessionLimits:
    """What one client may ask for. Rates are per second; bursts are what a full bucket holds. 0
    subscriptions, 0 different queries, rates of 0 and a share of 0 are no limit.

    compiling: what all clients may use for reading and compiling queries. compiling_share: what flows into
    the client's own, of the time of the loop. compiling_own: the client's own, if it has left one behind.
    """

    subscriptions: int = 128
    commands_per_second: float = 100
    commands_burst: int = 200
    requests_per_second: float = 2_000
    requests_burst: int = 2_000
    flood_seconds: float = 3
    queries: int = 32
    query_bytes: int = MAX_TEXT
    compiling_share: float = 0
    compiling_own: ClientAccount | None = field(default=None, compare=False)
    compiling: SharedAccount = field(default_factory=lambda: SharedAccount(0), compare=False)
