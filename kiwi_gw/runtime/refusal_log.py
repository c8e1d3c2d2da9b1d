"""What the log says of clients that are refused: who and why, never by which secret."""

from __future__ import annotations

import structlog

from kiwi_gw.codes import NOTHING_SHOWN
from kiwi_gw.model import Action, Credential, HeadCredential, Identity, Password, Refusal, SourceInfo

log = structlog.get_logger(__name__)

_SHOWN = 200  # characters of what a client sent, in a line of the log


def login_refused(credential: Credential, refusal: Refusal, name: str | None = None) -> None:
    """Say that these credentials were refused: a warning, which the log limits where it is repeated. Clients
    that have shown none are no news: many protocols let them log in later. name: whose they were, if that is
    known beside them."""
    write = log.debug if refusal.code in NOTHING_SHOWN else log.warning
    where: dict[str, object] = {}
    match credential:
        case HeadCredential(path=path, remote=remote):
            where = {"path": path[:_SHOWN], "remote": remote}
        case Password(user=user, remote=remote):
            where, name = {"remote": remote}, name or user
    if name:
        where["name"] = name[:_SHOWN]
    write("login refused", code=refusal.code, why=refusal.message, **where)


def source_refused(identity: Identity, action: Action, source: SourceInfo, refusal: Refusal) -> None:
    """Say that a client may not do that with a source. For debugging only: clients ask as often as they like,
    and are told themselves."""
    log.debug(
        "source refused",
        name=identity.name[:_SHOWN],
        action=action.value,
        source=source.id,
        code=refusal.code,
        why=refusal.message,
    )
