"""What a connection works with: the sending half of its socket, the gateway, and where it is counted."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from typing import Protocol

from kiwi_gw.core import frame_writer
from kiwi_gw.core.accounts import ClientAccount
from kiwi_gw.core.commands import Commit, LogIn
from kiwi_gw.core.source_hub import SourceHub
from kiwi_gw.core.subscription import Subscription
from kiwi_gw.model import Identity, Refusal, SourceInfo
from kiwi_gw.runtime.engine_queries import EngineQueries
from kiwi_gw.runtime.hooks import Hooks
from kiwi_gw.runtime.meters import Meters
from kiwi_gw.runtime.offloads import Offloads
from kiwi_gw.runtime.produce_queue import ProduceQueue


class ConnectionWriter(frame_writer.FrameWriter[Subscription], Protocol):
    """The sending half, as a connection sees it. It also serves subscriptions."""

    close_code: int | None

    @property
    def taken_at(self) -> float:
        """When the client last took something (monotonic seconds)."""

    @property
    def sent_bytes(self) -> int: ...

    @property
    def unsaid_bytes(self) -> int:
        """Of pings and pongs, which say nothing."""

    @property
    def full(self) -> bool:
        """Something waits until the client takes more."""

    def unanswered(self) -> float | None:
        """Return the seconds since the client's machine last answered, if it was sent something that it has
        not answered yet; None if it was not, or where that cannot be known."""

    def control(self, frame: bytes) -> None: ...

    def send_close(self, code: int, reason: str) -> None: ...

    def cork(self) -> None: ...

    def uncork(self) -> None: ...


class GatewayContext(Protocol):
    """What a connection needs of the gateway."""

    @property
    def meters(self) -> Meters: ...

    @property
    def clock(self) -> Callable[[], float]:
        """Monotonic seconds, as messages come by."""

    @property
    def hooks(self) -> Hooks:
        """What plugins say of clients."""

    @property
    def refusing(self) -> bool:
        """Whether memory is so short that no new client is let in."""

    def hub(self, source_id: str) -> SourceHub | None: ...

    def sources(self) -> Iterable[SourceInfo]: ...

    def account(self, who: Hashable) -> ClientAccount:
        """Give a connection of this client an account for the time that its queries take."""

    def account_left(self, who: Hashable, account: ClientAccount) -> None:
        """Take it back: the connection is gone that had it."""

    def call_later(self, request: LogIn, done: Callable[[Identity | Refusal], None]) -> None:
        """Do the request, and call `done` once, within the deadline of the request."""

    @property
    def write_seconds(self) -> float:
        """How long a record, or a commit, may take until it is answered."""

    def produce_queue(self, source_id: str) -> ProduceQueue:
        """Return where records for this source go. KeyError: there is none of that id."""

    def commit_later(self, command: Commit, within: float, done: Callable[[Refusal | None], None]) -> None:
        """Have the source keep positions, and call `done` once, within so many seconds."""

    @property
    def engine_queries(self) -> EngineQueries: ...

    @property
    def offloads(self) -> Offloads: ...

    def later(self, seconds: float, then: Callable[[], None]) -> None:
        """Call `then` in so many seconds, whether the connection is still there or not."""

    def continue_later(self, seconds: float, then: Callable[[bool], None]) -> None:
        """Do as `continuations.Continuations.add`."""


class AdmissionSlot(Protocol):
    """Where a connection is counted among those of its identity and its address."""

    @property
    def client(self) -> Hashable:
        """Return it as `client_identity.client_at` does."""

    def identify(self, identity: Identity) -> Refusal | None:
        """Count it as this one's from now on; a Refusal if that one has too many connections."""
