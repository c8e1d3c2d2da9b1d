"""Which role may do what with which source."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Iterable, Mapping

from kiwi_gw.api import Action
from kiwi_tokens.settings import RoleSettings


class Rights:
    """The `roles` of the configuration. What no role of a client allows is not allowed."""

    def __init__(self, roles: Mapping[str, RoleSettings]) -> None:
        self._roles = {
            name: (
                frozenset(role.actions),
                tuple(re.compile(fnmatch.translate(pattern)) for pattern in role.sources),
            )
            for name, role in roles.items()
        }

    def allow(self, roles: Iterable[str], action: Action, source_id: str) -> bool:
        """Whether one of these roles alone allows it. Roles that nobody defined allow nothing."""
        for role in roles:
            actions, patterns = self._roles.get(role, (frozenset(), ()))
            if action in actions and any(pattern.match(source_id) for pattern in patterns):
                return True
        return False
