"""Which role may do what with which source."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from kiwi_gw.api import Action
from kiwi_tokens.settings import EVERYTHING, RoleSettings


class RolePermissions:
    """Hold the `roles` of the configuration. What no role of a client allows is not allowed."""

    def __init__(self, roles: Mapping[str, RoleSettings]) -> None:
        self._roles = {
            name: _Role(
                frozenset(role.actions),
                EVERYTHING in role.sources,
                tuple(re.compile(fnmatch.translate(pattern)) for pattern in role.sources),
            )
            for name, role in roles.items()
        }

    def allow(self, roles: Iterable[str], action: Action, source_id: str | None) -> bool:
        """Return whether one of these roles alone allows it. Roles that are not defined allow nothing.

        source_id: None for the gateway as a whole: no pattern matches it, but `*` stands for it.
        """
        for role in roles:
            found = self._roles.get(role)
            if found is not None and action in found.actions and found.covers(source_id):
                return True
        return False


@dataclass(frozen=True, slots=True)
class _Role:
    actions: frozenset[Action]
    everything: bool
    patterns: tuple[re.Pattern[str], ...]

    def covers(self, source_id: str | None) -> bool:
        if source_id is None:
            return self.everything
        return any(pattern.match(source_id) for pattern in self.patterns)
