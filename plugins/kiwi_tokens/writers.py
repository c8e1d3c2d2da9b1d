"""Who may write to which source, in words, for `kiwi-gw check`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from kiwi_gw.api import Action, Diagnostic, Section
from kiwi_tokens.rights import RolePermissions
from kiwi_tokens.settings import TokensSettings

_SHOWN: Final = 10
"""Names in one line."""


def writers(settings: TokensSettings, sources: Mapping[str, Section]) -> Sequence[Diagnostic]:
    """Say of every source that lets clients write (`publish: true`) who has the right to; a warning where
    nobody has."""
    permissions = RolePermissions(settings.roles)
    found: list[Diagnostic] = []
    for source_id, source in sources.items():
        if not getattr(source, "publish", False):
            continue
        roles = [role for role in settings.roles if permissions.allow((role,), Action.PUBLISH, source_id)]
        subject, where = f"source {source_id}", ("sources", source_id, "publish")
        if not roles:
            words = "clients may write to it, but no role has the right to: `actions: [publish]`"
            found.append(Diagnostic("warning", subject, words, where))
            continue
        owners = [(each.name, each.roles) for each in settings.users]
        owners += [(each.name, each.roles) for each in settings.static]
        names = [name for name, own in owners if not set(roles).isdisjoint(own)]
        anonymous = settings.anonymous
        if anonymous is not None and not set(roles).isdisjoint(anonymous.roles):
            names.insert(0, "anyone without credentials")
        if not names and settings.jwt is None:
            words = f"clients may write to it, but nobody has the role {_listed(roles)}"
            found.append(Diagnostic("warning", subject, words, where))
            continue
        who = f": {_listed(names)}" if names else ""
        others = ", and whose JWT says so" if settings.jwt is not None else ""
        found.append(Diagnostic("ok", subject, f"may be written to by {_listed(roles)}{who}{others}", where))
    return found


def _listed(names: Sequence[str]) -> str:
    more = len(names) - _SHOWN
    return ", ".join(names[:_SHOWN]) + (f" and {more} more" if more > 0 else "")
