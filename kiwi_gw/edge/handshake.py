"""Whether a client that shakes hands may come in: how many there are, its origin, who it is."""

from __future__ import annotations

import time
from collections.abc import Callable, Coroutine, Sequence

from kiwi_gw.edge.admission import Place, RejectedError, rejection
from kiwi_gw.edge.answers import HttpError
from kiwi_gw.edge.callers import check_caller, check_origin
from kiwi_gw.edge.exchange import Ends
from kiwi_gw.edge.head import RequestHead
from kiwi_gw.edge.routing import WebSocketRoute
from kiwi_gw.edge.ticket_office import tickets_given
from kiwi_gw.edge.tickets import Tickets, ticket_of
from kiwi_gw.edge.transports import SocketTransport, TlsTransport
from kiwi_gw.edge.websocket import serve_websocket
from kiwi_gw.model import Identity, Refusal
from kiwi_gw.runtime.gateway import Gateway

_EXPIRED = Refusal("token_expired", "the credentials have expired", retry=True)


class Handshake:
    """Lets clients in. own_origins, tickets: as for `Listener`."""

    def __init__(
        self, gateway: Gateway, own_origins: Callable[[], Sequence[str]], tickets: Tickets | None
    ) -> None:
        self._gateway = gateway
        self._own_origins = own_origins
        self._tickets = tickets

    async def admit(
        self,
        transport: SocketTransport | TlsTransport,
        head: RequestHead,
        route: WebSocketRoute,
        ends: Ends,
        remote: str,
        place: Place,
    ) -> Coroutine[object, object, None]:
        """What serves this client, which may come in. Raises HttpError."""
        secure = isinstance(transport, TlsTransport)
        self._check_room()
        check_origin(head, self._gateway.loaded.settings.server.allowed_origins, remote, secure=secure)
        place.enter()
        text = ticket_of(head) if self._tickets is not None and tickets_given(self._gateway) else None
        if self._tickets is not None and text is not None:
            identity = self._by_ticket(self._tickets, text, place)
        else:
            identity = await self._by_credentials(head, ends, remote, place, secure=secure)
        return serve_websocket(
            self._gateway,
            transport,
            route.dialect,
            identity,
            remote,
            head.query,
            route.upgrade.response(_subprotocol(route)),
            head.surplus,
            place,
        )

    async def _by_credentials(
        self, head: RequestHead, ends: Ends, remote: str, place: Place, *, secure: bool
    ) -> Identity:
        credential = head.credential(remote, secure=secure)
        identity = await self._gateway.authenticate(credential)
        if isinstance(identity, Identity):
            here = ends.server[0] if ends.server is not None else None
            await check_caller(self._gateway, credential, identity, here, self._own_origins())
        self._check_room()  # others came in meanwhile
        return _counted(identity, place)

    def _by_ticket(self, tickets: Tickets, text: str, place: Place) -> Identity:
        """Nobody else can come in meanwhile: nothing here waits. A ticket is used up by who comes in, or may
        not; who finds no room keeps it."""
        kept = tickets.take(text)
        # It may have grown old meanwhile.
        identity = kept if isinstance(kept, Refusal) else self._gateway.reauthenticate(kept.identity)
        self._gateway.meters.auth["ticket", "refused" if isinstance(identity, Refusal) else "accepted"] += 1
        try:
            return _counted(identity, place)
        except RejectedError as error:
            if error.reason == "limit_identity" and not isinstance(kept, Refusal):
                tickets.give_back(text, kept)
            raise

    def _check_room(self) -> None:
        """Raises HttpError 503 at the limit, where memory is short and at the end. Sockets that have not said
        what they want yet do not count: they are given five seconds, and no client's place."""
        gateway = self._gateway
        most = gateway.loaded.settings.server.limits.max_connections
        if most and len(gateway.connections) >= most:
            raise HttpError(503, "too many connections; try again later")
        if gateway.refusing:
            raise RejectedError("overload", 503, "memory is short; try again later")
        if gateway.draining:
            raise RejectedError("draining", 503, "the gateway is about to stop; try again later")


def _counted(identity: Identity | Refusal, place: Place) -> Identity:
    """It, counted in its place. Raises RejectedError."""
    if isinstance(identity, Refusal):
        raise rejection(identity)
    if identity.expires_at is not None and identity.expires_at <= time.time():
        raise rejection(_EXPIRED)
    if (crowded := place.identify(identity)) is not None:
        raise RejectedError("limit_identity", 503, f"{crowded.code}: {crowded.message}")
    return identity


def _subprotocol(route: WebSocketRoute) -> str | None:
    """The one to answer with. Browsers give up if they offered some and none is chosen, so a single one
    that we do not know (a token travels as one) is sent back."""
    offered = route.upgrade.subprotocols
    known = next((name for name in route.dialect.subprotocols if name in offered), None)
    return offered[0] if known is None and len(offered) == 1 else known
