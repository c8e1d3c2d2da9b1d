"""Say which members of a command there are not. That is short, whatever the client sends: replies wait in
memory for slow readers."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches
from typing import Final, Literal

from kiwi_gw.dialects.kiwi.messages import ClientMessage, Request, Subscribe, Unsubscribe

UnknownMembers = Literal["refuse", "ignore"]

COMMANDS: Final[dict[str, type[ClientMessage]]] = {
    "SUBSCRIBE": Subscribe,
    "UNSUBSCRIBE": Unsubscribe,
    "REQUEST": Request,
}
"""By type."""

_NAMED: Final = 3
_SHOWN: Final = 32
"""Characters of a name that a client made up."""
_APART: Final = 4
"""Characters by which a name may be longer or shorter than one that was meant: others are not compared."""


def unknown(command: str, members: Iterable[str]) -> str | None:
    """Say what is wrong with the names of a command's members, in a sentence. None: nothing.

    `SUBSCRIBE has no member "mod" (did you mean "mode"?)`
    """
    known = ("type", *COMMANDS[command].__struct_encode_fields__)
    strange = [name for name in members if name not in known]
    if not strange:
        return None
    named = [_named(name, known) for name in strange[:_NAMED]]
    more = len(strange) - len(named)
    rest = f", nor {more} more that it was given" if more else ""
    return f"{command} has no member {', '.join(named)}{rest}; it has {', '.join(known)}"


def shown(name: str) -> str:
    """Cut what a client sent to what fits into a sentence."""
    return name if len(name) <= _SHOWN else f"{name[:_SHOWN]}..."


def _named(name: str, known: tuple[str, ...]) -> str:
    alike = {each.lower(): each for each in known if abs(len(each) - len(name)) <= _APART}
    near = get_close_matches(name.lower(), list(alike), 1)
    return f'"{shown(name)}"' + (f' (did you mean "{alike[near[0]]}"?)' if near else "")
