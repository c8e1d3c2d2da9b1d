"""Who may look: the `authenticate` and `authorize` hooks, asked for every request.

Where no plugin authenticates clients, whoever reaches the admin address may look. It is loopback by default,
and there a browser is the danger: a page whose own host name is made to resolve to 127.0.0.1 may read and
send whatever it likes, and only the `Host` header tells.
"""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass

from kiwi_gw.edge.answers import HttpError
from kiwi_gw.edge.asgi import Scope
from kiwi_gw.model import Action, Head, Identity, Refusal
from kiwi_gw.runtime.gateway import Gateway
from kiwi_gw.runtime.meters import UNDECIDED

_CHALLENGE = (("WWW-Authenticate", "Bearer"),)


@dataclass(frozen=True, slots=True)
class Rights:
    """What a client may see. everything: all of the gateway; sources: the ids of single sources."""

    everything: bool
    sources: frozenset[str] = frozenset()

    def see(self, source_id: str) -> bool:
        return self.everything or source_id in self.sources


class Access:
    """Decides about requests. Raises HttpError: 401, 403, 503."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway

    @property
    def open(self) -> bool:
        """Whether no plugin authenticates clients."""
        return not self._gateway.loaded.plugins.hook.authenticate.get_hookimpls()

    async def rights(self, scope: Scope) -> Rights:
        """What whoever sent this request may see; at least one source."""
        if self.open:
            _check_host(scope)
        identity = await self._identity(scope)
        if self._may_everything(identity):
            return Rights(everything=True)
        sources = frozenset(
            info.id
            for info in self._gateway.sources()
            if self._gateway.authorize(identity, Action.ADMIN, info) is None
        )
        if not sources:
            raise HttpError(403, "forbidden: this needs the right to `admin`")
        return Rights(everything=False, sources=sources)

    async def everything(self, scope: Scope) -> None:
        """Let nobody pass but those who may see all of the gateway."""
        if not (await self.rights(scope)).everything:
            raise HttpError(403, "forbidden: this needs the right to `admin` of the whole gateway")

    async def allows(self, scope: Scope) -> bool:
        """Whether `everything` would let it pass."""
        try:
            await self.everything(scope)
        except HttpError:
            return False
        return True

    # --- inside ----------------------------------------------------------------------------

    def _may_everything(self, identity: Identity) -> bool:
        return self._gateway.hooks.authorize(identity, Action.ADMIN, None) is None

    async def _identity(self, scope: Scope) -> Identity:
        answer = await self._gateway.authenticate(_credential(scope))
        if isinstance(answer, Refusal):
            status = 503 if answer.code in UNDECIDED else 403 if answer.code == "forbidden" else 401
            headers = _CHALLENGE if status == 401 else ()
            raise HttpError(status, f"{answer.code}: {answer.message}", headers)
        return answer


def _credential(scope: Scope) -> Head:
    client = scope["client"]
    return Head(
        scope["method"],
        scope["raw_path"].decode("latin-1"),
        scope["query_string"].decode("latin-1"),
        tuple((name.decode("latin-1"), value.decode("latin-1")) for name, value in scope["headers"]),
        f"{client[0]}:{client[1]}" if client is not None else "unix",
        scope["scheme"] == "https",
    )


def _check_host(scope: Scope) -> None:
    """On loopback, only names that can mean nothing but this machine."""
    server = scope["server"]
    if server is None or not _is_loopback(server[0]):
        return
    host = next((value for name, value in scope["headers"] if name == b"host"), b"").decode("latin-1")
    name = host.rpartition("]")[0].lstrip("[") or host.partition(":")[0]
    if name.lower() != "localhost" and not _is_address(name):
        raise HttpError(403, "forbidden: on loopback the Host must be an address or localhost")


def _is_loopback(host: str) -> bool:
    return ipaddress.ip_address(host.partition("%")[0]).is_loopback


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True
