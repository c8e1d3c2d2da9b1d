"""Web pages that have no business here, turned away and put down in the log: of a foreign origin, or under a
name that is not ours (DNS rebinding)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from typing import Protocol

import structlog

from kiwi_gw.codes import RefusalCode
from kiwi_gw.edge.admission import Admission, RejectedError, Rejection, rejection
from kiwi_gw.edge.origin import host_allowed, remedy, why_refused
from kiwi_gw.edge.plain_request import PlainRequest
from kiwi_gw.edge.request_head import RequestHead
from kiwi_gw.model import Credential, HeadCredential, Identity, Password, Refusal
from kiwi_gw.runtime.gateway import Gateway

log = structlog.get_logger(__name__)

_SHOWN = 200  # characters of what a client sent, in a line of the log


_NO_ONE = Refusal(RefusalCode.NO_TOKEN, "credentials are needed: a ticket says who a client is")


class _Request(Protocol):
    @property
    def path(self) -> str: ...

    def header(self, name: str) -> str | None: ...


def check_origin(head: RequestHead, allowed: Sequence[str], remote: str, *, secure: bool) -> None:
    """Raise RejectedError 403 for a page whose origin is neither ours nor allowed."""
    why = why_refused(head, allowed, secure)
    if why is None:
        return
    origin = (head.header("origin") or "")[:_SHOWN]
    log.warning(
        "origin refused",
        origin=origin,
        why=why,
        remedy=remedy(head)[:_SHOWN],
        path=head.path[:_SHOWN],
        remote=remote,
    )
    raise RejectedError(
        Rejection.ORIGIN, 403, f"this Origin is not allowed here: {why} (server.allowed_origins)"
    )


def check_host(head: _Request, here: str | None, origins: Sequence[str], remote: str) -> None:
    """Raise RejectedError 403 for who calls us by a name that a page may have pointed at us. here: our end
    of the connection, as `host_allowed` wants it."""
    host = head.header("host")
    if host_allowed(host, here, origins):
        return
    log.warning("host refused", host=(host or "")[:_SHOWN], path=head.path[:_SHOWN], remote=remote)
    raise RejectedError(
        Rejection.HOST,
        403,
        "forbidden: on loopback the Host must be an address, localhost, or that of an origin in "
        "server.allowed_origins",
    )


async def check_caller(
    gateway: Gateway, head: HeadCredential, identity: Identity, here: str | None, origins: Sequence[str]
) -> None:
    """As `check_host`, for a client that was let in without credentials: a page has none to show.

    Whether it was is known of anonymous ones; of others, where the name is not ours, the plugins are asked
    again, about a request with nothing in it. identity: what they said of this one.
    """
    if host_allowed(head.header("host"), here, origins):
        return
    if not identity.anonymous:
        seconds = gateway.loaded.settings.server.auth_timeout_ms / 1000
        bare = replace(head, query="", headers=tuple(pair for pair in head.headers if pair[0] == "host"))
        anyone = await gateway.hooks.authenticate(bare, seconds)
        if isinstance(anyone, Refusal) or anyone.anonymous or anyone.name != identity.name:
            return
    check_host(head, here, origins, head.remote)


async def identify(
    gateway: Gateway,
    admission: Admission,
    request: PlainRequest,
    find: Callable[[], Awaitable[Credential | Refusal]] | None = None,
    *,
    anonymous: bool = True,
) -> Identity:
    """Find out who sent a plain request, as for a handshake: until it is known, it counts as a new connection
    of its address. find: where its credentials are; None: in its head. anonymous: whether clients without
    credentials are welcome. Raises RejectedError."""
    head, slot = request.credential, admission.new_slot(request.ends.client)
    slot.enter()
    try:
        shown = head if find is None else await find()
        if isinstance(shown, Password) and not shown.remote:
            shown = replace(shown, remote=head.remote)
        identity = shown if isinstance(shown, Refusal) else await gateway.authenticate(shown)
        if isinstance(identity, Refusal):
            raise rejection(identity)
        if identity.anonymous and not anonymous:
            raise rejection(_NO_ONE)
        if gateway.hooks.authenticates:  # else every request was looked at when it came
            origins = gateway.loaded.settings.server.allowed_origins
            await check_caller(gateway, head, identity, request.ends.here, origins)
    finally:
        slot.leave()
    return identity
