"""Why a client may not read a source: the answers of plugins, in the words that clients get."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

from kiwi_gw.codes import RefusalCode
from kiwi_gw.core.source_hub import SourceHub
from kiwi_gw.errors import SubscribeRefused
from kiwi_gw.model import Action, Identity, QueriedTable, Refusal, SourceInfo
from kiwi_gw.runtime.hooks import Hooks
from kiwi_gw.runtime.refusal_log import source_refused

NO_SOURCE = Refusal(RefusalCode.UNKNOWN_SOURCE, "no source has this id")

_NEEDS_REPLAY = f'to begin in the past needs the right "{Action.REPLAY.value}"'


def unknown_source() -> SubscribeRefused:
    """Return the answer for a source that does not exist, or not for this client."""
    return SubscribeRefused(NO_SOURCE.code, NO_SOURCE.message)


def refusal_of(hooks: Hooks, identity: Identity, action: Action, info: SourceInfo) -> Refusal | None:
    """Say why it may not do that with a source; None: it may."""
    switched_on = info.publish if action is Action.PUBLISH else action is Action.COMMIT and info.commit
    return hooks.authorize(identity, action, info, switched_on=switched_on)


def refusal_of_past(hooks: Hooks, identity: Identity, info: SourceInfo, *, resumes: bool) -> Refusal | None:
    """Say why it may not begin in the past; None: it may. A client that may have what comes needs to be
    told which right it lacks. resumes: where a group has committed."""
    if resumes:
        return refusal_of(hooks, identity, Action.COMMIT, info)
    refusal = hooks.authorize(identity, Action.REPLAY, info)
    if refusal is None or refusal.code != RefusalCode.FORBIDDEN:
        return refusal
    return replace(refusal, message=f"{refusal.message}: {_NEEDS_REPLAY}")


def refusal_of_tables(
    hooks: Hooks,
    identity: Identity,
    tables: Iterable[QueriedTable],
    find: Callable[[str], SourceHub | None],
    *,
    opening: bool,
) -> Refusal | None:
    """Say why these sources may not be read for it by something that reads past the gateway; None: they may.
    find: a source by its id. opening: it is not told yet that they exist."""
    for table in tables:
        hub = find(table.source_id)
        if hub is None:
            return NO_SOURCE
        info = hub.info
        refusal = hooks.authorize(identity, Action.SUBSCRIBE, info)
        if refusal is not None:
            source_refused(identity, Action.SUBSCRIBE, info, refusal)
            return NO_SOURCE if opening else refusal  # names cannot be guessed
        refusal = refusal_of_past(hooks, identity, info, resumes=False)
        if refusal is not None:
            source_refused(identity, Action.REPLAY, info, refusal)
            return refusal
        transforms = hooks.transforms(identity, info)
        if isinstance(transforms, Refusal):
            return transforms
        if transforms:
            words = (
                f"this client sees only a part of {info.id}, or other values, so no query may read all of it"
            )
            return Refusal(RefusalCode.FORBIDDEN, words)
    return None
