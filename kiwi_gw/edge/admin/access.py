"""Who may look: the `authenticate` and `authorize` hooks, asked for every request.

Where no plugin authenticates clients, all on this machine may look, and others see metrics and
health, unless `server.admin_unauthenticated` lets them do everything. Pages in a browser on this machine are
kept away by the listener, or where plugins authenticate, here: `caller_checks.check_host`.
"""

from __future__ import annotations

from dataclasses import dataclass

from kiwi_gw.codes import UNDECIDED, RefusalCode
from kiwi_gw.edge.caller_checks import check_caller
from kiwi_gw.edge.http_errors import HttpError
from kiwi_gw.edge.plain_request import PlainRequest
from kiwi_gw.model import Action, Identity, Refusal, SourceInfo
from kiwi_gw.runtime.gateway import Gateway

_CHALLENGE = (("WWW-Authenticate", "Bearer"),)


@dataclass(frozen=True, slots=True)
class AdminRights:
    """What a client may see. everything: all of the gateway; sources: the ids of single sources."""

    everything: bool
    sources: frozenset[str] = frozenset()

    def see(self, source_id: str) -> bool:
        return self.everything or source_id in self.sources


class AdminAccess:
    """Decides about requests. Raises HttpError: 401, 403, 503.

    local: whether only this machine can reach the address.
    """

    def __init__(self, gateway: Gateway, *, local: bool) -> None:
        self._gateway = gateway
        self._local = local

    async def rights(self, request: PlainRequest) -> AdminRights:
        """Find what the sender of this request may see; at least one source."""
        identity = await self._identity(request)
        if self._may(identity, None):
            return AdminRights(everything=True)
        sources = frozenset(info.id for info in self._gateway.sources() if self._may(identity, info))
        if not sources:
            raise HttpError(403, "forbidden: this needs the right to `admin`")
        return AdminRights(everything=False, sources=sources)

    async def metrics(self, request: PlainRequest) -> None:
        """Let pass who may see all of the gateway, and all where no client is asked who it is."""
        identity = await self._identity(request)
        refusal = self._gateway.hooks.authorize(identity, Action.ADMIN, None, switched_on=True)
        if refusal is not None:
            raise HttpError(403, "forbidden: this needs the right to `admin` of the whole gateway")

    async def everything(self, request: PlainRequest) -> None:
        """Let only those pass who may see all of the gateway."""
        if not (await self.rights(request)).everything:
            raise HttpError(403, "forbidden: this needs the right to `admin` of the whole gateway")

    async def allows(self, request: PlainRequest) -> bool:
        """Whether `everything` would let it pass."""
        try:
            await self.everything(request)
        except HttpError:
            return False
        return True

    # --- inside ----------------------------------------------------------------------------

    def _may(self, identity: Identity, source: SourceInfo | None) -> bool:
        """Whether it may see and change what concerns this source; None: everything."""
        switched_on = self._local or self._gateway.loaded.settings.server.admin_unauthenticated
        hooks = self._gateway.hooks
        return hooks.authorize(identity, Action.ADMIN, source, switched_on=switched_on) is None

    async def _identity(self, request: PlainRequest) -> Identity:
        credential = request.credential
        answer = await self._gateway.authenticate(credential)
        if isinstance(answer, Refusal):
            status = 503 if answer.code in UNDECIDED else 403 if answer.code == RefusalCode.FORBIDDEN else 401
            headers = _CHALLENGE if status == 401 else ()
            raise HttpError(status, f"{answer.code}: {answer.message}", headers)
        await check_caller(self._gateway, credential, answer, request.ends.here, ())
        return answer
