"""Who may do what: the answers of plugins and the switches of the configuration, weighed by one table.

A refusal always forbids. What it takes beside that differs by action:

| action | where a plugin authenticates clients | where none does |
|---|---|---|
| subscribe, replay | nothing | nothing |
| publish, commit | a permit, and the switch of the source | the switch of the source |
| admin | a permit | a local admin address, or its switch |
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from kiwi_gw.codes import RefusalCode
from kiwi_gw.model import Action, Permit, Refusal


class ConfigSwitch(enum.Enum):
    """When the configuration must have opened something."""

    NEVER = "never"
    UNAUTHENTICATED = "unauthenticated"  # where no plugin says who the clients are
    ALWAYS = "always"


@dataclass(frozen=True, slots=True)
class PermissionRule:
    """permit: whether a plugin must say yes, where one authenticates clients."""

    permit: bool
    switch: ConfigSwitch


RULES: Mapping[Action, PermissionRule] = {
    Action.SUBSCRIBE: PermissionRule(permit=False, switch=ConfigSwitch.NEVER),
    Action.REPLAY: PermissionRule(permit=False, switch=ConfigSwitch.NEVER),
    Action.PUBLISH: PermissionRule(permit=True, switch=ConfigSwitch.ALWAYS),
    Action.COMMIT: PermissionRule(permit=True, switch=ConfigSwitch.ALWAYS),
    Action.ADMIN: PermissionRule(permit=True, switch=ConfigSwitch.UNAUTHENTICATED),
}

_SWITCHED_OFF = Refusal(RefusalCode.FORBIDDEN, "the configuration does not open this")
_NOT_PERMITTED = Refusal(RefusalCode.FORBIDDEN, "nobody has permitted this")


def decide(
    action: Action, answers: Iterable[Permit | Refusal], *, authenticates: bool, switched_on: bool
) -> Refusal | None:
    """Why it may not be done; None: it may.

    answers: of all plugins that have an opinion. authenticates: whether any plugin asks clients who they
    are. switched_on: whether the configuration opens it, where that counts.
    """
    rule = RULES[action]
    permitted = False
    for answer in answers:
        if isinstance(answer, Refusal):
            return answer
        permitted = True
    if rule.permit and authenticates and not permitted:
        return _NOT_PERMITTED
    if rule.switch is ConfigSwitch.ALWAYS or (
        rule.switch is ConfigSwitch.UNAUTHENTICATED and not authenticates
    ):
        return None if switched_on else _SWITCHED_OFF
    return None
