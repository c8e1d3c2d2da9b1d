"""Whether a client that shakes hands may come in: how many there are, its origin, who it is."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Sequence

from kiwi_gw.codes import NOTHING_SHOWN
from kiwi_gw.edge.admission import Admission, CountedConnection, RejectedError, Rejection, rejection
from kiwi_gw.edge.caller_checks import check_caller, check_host, check_origin
from kiwi_gw.edge.plain_request import ConnectionEnds
from kiwi_gw.edge.request_head import FoundHead
from kiwi_gw.edge.routing import WebSocketMatch
from kiwi_gw.edge.ticket_office import tickets_given
from kiwi_gw.edge.tickets import Tickets, ticket_of
from kiwi_gw.edge.transports import SocketTransport, TlsTransport
from kiwi_gw.edge.websocket import serve_websocket
from kiwi_gw.model import HeadCredential, Identity, Refusal
from kiwi_gw.runtime.gateway import Gateway
from kiwi_gw.runtime.keepalive import unexpired
from kiwi_gw.runtime.refusal_log import login_refused


class Handshake:
    """Lets clients in. own_origins, tickets: as for `Listener`."""

    def __init__(
        self,
        gateway: Gateway,
        admission: Admission,
        own_origins: Callable[[], Sequence[str]],
        tickets: Tickets | None,
    ) -> None:
        self._gateway = gateway
        self._admission = admission
        self._own_origins = own_origins
        self._tickets = tickets

    async def admit(
        self,
        transport: SocketTransport | TlsTransport,
        found: FoundHead,
        match: WebSocketMatch,
        ends: ConnectionEnds,
        remote: str,
        slot: CountedConnection,
    ) -> Coroutine[object, object, None]:
        """Return what serves this client, which may come in. Raises RejectedError."""
        head, secure = found.head, isinstance(transport, TlsTransport)
        self._admission.check_room()
        check_origin(head, self._gateway.loaded.settings.server.allowed_origins, remote, secure=secure)
        slot.enter()
        await self._gateway.wait_warmed_up()
        credential = head.credential(remote, secure=secure)
        text = ticket_of(head) if self._tickets is not None and tickets_given(self._gateway) else None
        if self._tickets is not None and text is not None:
            identity: Identity | None = self._by_ticket(self._tickets, text, credential, slot)
        else:
            may_log_in = match.served.route.login_seconds is not None
            identity = await self._by_credentials(credential, ends, slot, may_log_in=may_log_in)
        response = match.upgrade.response(_subprotocol(match))
        return serve_websocket(
            self._gateway, transport, match, credential, identity, response, found.surplus, slot
        )

    async def _by_credentials(
        self, credential: HeadCredential, ends: ConnectionEnds, slot: CountedConnection, *, may_log_in: bool
    ) -> Identity | None:
        """Let a client in by its head. None: that has shown nothing, which will do if it may log in later; it
        is nobody until then, also where others without credentials are somebody."""
        identity = await self._gateway.authenticate(credential)
        if isinstance(identity, Identity):
            await check_caller(self._gateway, credential, identity, ends.here, self._own_origins())
        self._admission.check_room()  # others came in meanwhile
        if may_log_in and _has_shown_nothing(identity):
            # That it is not a page under another name is known only here.
            check_host(credential, ends.here, self._own_origins(), credential.remote)
            return None
        return _counted(identity, slot)

    def _by_ticket(
        self, tickets: Tickets, text: str, head: HeadCredential, slot: CountedConnection
    ) -> Identity:
        """Let a client in by its ticket; no other comes in meanwhile, as nothing here waits. A ticket is used
        up by who comes in, or may not; who finds no room keeps it."""
        kept = tickets.take(text)
        # It may have grown old meanwhile.
        identity = kept if isinstance(kept, Refusal) else self._gateway.hooks.reauthenticate(kept.identity)
        self._gateway.meters.auth["ticket", "refused" if isinstance(identity, Refusal) else "accepted"] += 1
        if isinstance(identity, Refusal):
            login_refused(head, identity, None if isinstance(kept, Refusal) else kept.identity.name)
        try:
            return _counted(identity, slot)
        except RejectedError as error:
            if error.reason is Rejection.IDENTITY and not isinstance(kept, Refusal):
                tickets.give_back(text, kept)
            raise


def _has_shown_nothing(answer: Identity | Refusal) -> bool:
    return answer.code in NOTHING_SHOWN if isinstance(answer, Refusal) else answer.anonymous


def _counted(identity: Identity | Refusal, slot: CountedConnection) -> Identity:
    """Count it in its slot. Raises RejectedError."""
    identity = unexpired(identity)  # a ticket may outlive its credentials
    if isinstance(identity, Refusal):
        raise rejection(identity)
    if (crowded := slot.identify(identity)) is not None:
        raise RejectedError(Rejection.IDENTITY, 503, f"{crowded.code}: {crowded.message}")
    return identity


def _subprotocol(match: WebSocketMatch) -> str | None:
    """Choose the one to answer with. Browsers give up if they offered some and none is chosen, so a single
    one that we do not know (a token travels as one) is sent back."""
    offered = match.upgrade.subprotocols
    known = next((name for name in match.served.route.subprotocols if name in offered), None)
    return offered[0] if known is None and len(offered) == 1 else known
