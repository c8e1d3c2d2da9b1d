"""What a wire protocol is to the gateway: frames in, commands out; notices in, commands out. No I/O.

A dialect declares its paths and makes one `Session` per connection. The session holds whatever the
protocol needs to remember (which sources are subscribed, correlation ids, topic patterns); it is called
with what the client sent and with what happened to its subscriptions, and answers with commands
(`kiwi_gw.core.commands`), which the connection carries out at once and in order.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

from kiwi_gw.core.accounts import OwnAccount, Pool
from kiwi_gw.core.commands import Session
from kiwi_gw.model import Identity
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
    compiling_own: OwnAccount | None = field(default=None, compare=False)
    compiling: Pool = field(default_factory=lambda: Pool(0), compare=False)


class Dialect(Protocol):
    """One wire protocol over WebSocket.

    name: in metrics and logs. paths: exact request paths. subprotocols: accepted names, first is best.
    max_message_bytes: larger messages close the connection with 1009.
    """

    @property
    def name(self) -> str: ...

    @property
    def paths(self) -> tuple[str, ...]: ...

    @property
    def subprotocols(self) -> tuple[str, ...]: ...

    @property
    def max_message_bytes(self) -> int: ...

    def session(self, head_query: str, identity: Identity, limits: SessionLimits) -> Session: ...
