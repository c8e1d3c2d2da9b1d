"""One-use tickets: how a page comes in that cannot send headers with its WebSocket handshake.

A client that has shown credentials gets one by plain HTTP and hands it in with the handshake, within seconds
and once. What a ticket stands for never leaves the gateway: the text is a random number, under whose digest
the identity is kept; to hand it in is to take that away, which only one can. It names the start of the
gateway, and what is kept goes with the process (of several workers: with the folder that they share), so none
outlives a restart.
"""

from __future__ import annotations

import hashlib
import math
import os
import pickle
import re
import secrets
import time
from collections.abc import Callable, Container
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import NamedTuple, Protocol
from urllib.parse import parse_qsl

from kiwi_gw.codes import RefusalCode
from kiwi_gw.config import LimitSettings
from kiwi_gw.edge.request_head import RequestHead
from kiwi_gw.model import Identity, Refusal

PARAMETER = "ticket"
"""Of the query of a handshake."""

SUBPROTOCOL = "kiwi-gw.ticket."
"""A subprotocol that begins so has a ticket behind it."""

_LOOK_SECONDS = 1.0
"""Between two looks at which of all tickets were used elsewhere."""

_AT_ONCE = 1_000
"""Tickets that are let go of at a time."""

_TEXT = re.compile(r"([0-9a-f]{16})\.([0-9]{1,3})\.([A-Za-z0-9_-]{32})")
_INVALID = Refusal(
    RefusalCode.INVALID_TICKET, "the ticket is not one of ours, has expired or was used", retry=True
)
_TOO_MANY = Refusal(RefusalCode.TOO_MANY_TICKETS, "too many tickets wait for being used", retry=True)


class StoredTicket(NamedTuple):
    """until: monotonic seconds, of a clock that all processes of the machine share."""

    until: float
    identity: Identity


class TicketStore(Protocol):
    """Where the identities are, by name. `take` gives each to one who asks, however many do at once."""

    def put(self, name: str, kept: StoredTicket) -> None: ...

    def take(self, name: str) -> StoredTicket | None: ...

    def drop(self, name: str) -> None: ...

    def has(self, name: str) -> bool: ...

    def names(self) -> Container[str]: ...


class MemoryTicketStore:
    """For one process."""

    def __init__(self) -> None:
        self._kept: dict[str, StoredTicket] = {}

    def put(self, name: str, kept: StoredTicket) -> None:
        self._kept[name] = kept

    def take(self, name: str) -> StoredTicket | None:
        return self._kept.pop(name, None)

    def drop(self, name: str) -> None:
        self._kept.pop(name, None)

    def has(self, name: str) -> bool:
        return name in self._kept

    def names(self) -> Container[str]:
        return self._kept


class FolderTicketStore:
    """For several workers: a file each in a folder that is theirs alone. own: what names of this one begin
    with; those that its predecessor has left are removed."""

    def __init__(self, folder: Path, own: str) -> None:
        folder.mkdir(mode=0o700, exist_ok=True)
        self._folder = folder
        for left in folder.glob(f"{own}*"):
            left.unlink(missing_ok=True)

    def put(self, name: str, kept: StoredTicket) -> None:
        # By another name first: half a file is never found.
        fresh = self._folder / f"{name}.new"
        descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        with open(descriptor, "wb") as file:
            file.write(pickle.dumps(kept))
        fresh.rename(self._folder / name)

    def take(self, name: str) -> StoredTicket | None:
        mine = self._folder / f"{name}.{secrets.token_hex(8)}"
        try:
            (self._folder / name).rename(mine)  # of several that try, one succeeds
            data = mine.read_bytes()
        except FileNotFoundError:  # another was quicker, or the worker that gave it is gone
            return None
        mine.unlink(missing_ok=True)
        kept: StoredTicket = pickle.loads(data)  # noqa: S301  only workers of ours can write here
        return kept

    def drop(self, name: str) -> None:
        (self._folder / name).unlink(missing_ok=True)

    def has(self, name: str) -> bool:
        return (self._folder / name).exists()

    def names(self) -> Container[str]:
        return frozenset(os.listdir(self._folder))


class Tickets:
    """Gives tickets out and takes them in. start: an id of this start of the gateway, 16 hexadecimal digits.
    slot: which worker this is. limits: asked every time. clock: monotonic seconds."""

    def __init__(
        self,
        limits: Callable[[], LimitSettings],
        start: str,
        slot: int = 0,
        store: TicketStore | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._limits = limits
        self._start = start
        self._slot = slot
        self._store = store or MemoryTicketStore()
        self._clock = clock
        self._look_at = -math.inf
        self._waiting: dict[str, tuple[float, str]] = {}  # end and identity of those given out, oldest first
        self._of: dict[str, set[str]] = {}

    def issue(self, identity: Identity) -> str | Refusal:
        """Return the text of a new ticket; a Refusal if too many of this identity, or in all, were not
        used."""
        limits, now = self._limits(), self._clock()
        self.forget_expired()
        own = self._of.get(identity.name, set())
        if len(own) >= limits.max_tickets_per_identity:
            for name in [name for name in own if not self._store.has(name)]:
                self._forget(name)  # another worker took it in
        if len(self._waiting) >= limits.max_tickets and now >= self._look_at:
            self._look_at = now + _LOOK_SECONDS
            there = self._store.names()
            for name in [name for name in self._waiting if name not in there]:
                self._forget(name)
        own = self._of.get(identity.name, set())
        if len(own) >= limits.max_tickets_per_identity or len(self._waiting) >= limits.max_tickets:
            return _TOO_MANY
        secret = secrets.token_urlsafe(24)
        name = _name(self._slot, secret)
        identity = replace(identity, issued_token=None)  # it is nobody's to keep
        kept = StoredTicket(now + limits.ticket_ttl_ms / 1000, identity)
        self._store.put(name, kept)
        self._remember(name, kept)
        return f"{self._start}.{self._slot}.{secret}"

    def take(self, text: str) -> StoredTicket | Refusal:
        """Take what a ticket stands for, once; more than once only to who gives it back."""
        name = self._name_of(text)
        if name is None:
            return _INVALID
        kept = self._store.take(name)
        self._forget(name)
        return kept if kept is not None and self._clock() < kept.until else _INVALID

    def give_back(self, text: str, kept: StoredTicket) -> None:
        """Put it back, as it was not used after all. From now on it counts as one of ours."""
        name = self._name_of(text)
        if name is not None:
            self._store.put(name, kept)
            self._remember(name, kept)

    def _name_of(self, text: str) -> str | None:
        match = _TEXT.fullmatch(text)
        return None if match is None or match[1] != self._start else _name(int(match[2]), match[3])

    def _remember(self, name: str, kept: StoredTicket) -> None:
        self._waiting[name] = (kept.until, kept.identity.name)
        self._of.setdefault(kept.identity.name, set()).add(name)

    def forget_expired(self) -> None:
        """Let go of those whose time is over, whatever the order in which it ends: of so many at once."""
        now = self._clock()
        over = (name for name, (until, _) in self._waiting.items() if until <= now)
        for name in list(islice(over, _AT_ONCE)):
            self._store.drop(name)
            self._forget(name)

    def _forget(self, name: str) -> None:
        _, identity = self._waiting.pop(name, (0.0, ""))
        own = self._of.get(identity)
        if own is not None:
            own.discard(name)
            if not own:
                del self._of[identity]


def _name(slot: int, secret: str) -> str:
    return f"{slot}-{hashlib.sha256(secret.encode()).hexdigest()}"


def ticket_of(head: RequestHead) -> str | None:
    """Find the ticket of a handshake, from its query or a subprotocol; None without one. Two that differ are
    none that is valid."""
    found: set[str] = set()
    if PARAMETER in head.query:
        try:
            pairs = parse_qsl(head.query, keep_blank_values=True, max_num_fields=100)
        except ValueError:
            return ""
        found.update(value for name, value in pairs if name == PARAMETER)
    names = head.listed("sec-websocket-protocol")
    found.update(name.removeprefix(SUBPROTOCOL) for name in names if name.startswith(SUBPROTOCOL))
    if len(found) > 1:
        return ""
    return found.pop() if found else None
