"""What a client may do, and the answers to the question whether it may."""

from __future__ import annotations

import enum
from dataclasses import dataclass


class Action(enum.Enum):
    """What a client may want to do with a source, or (`ADMIN`) with the gateway."""

    SUBSCRIBE = "subscribe"
    REPLAY = "replay"
    PUBLISH = "publish"
    COMMIT = "commit"
    ADMIN = "admin"


@dataclass(frozen=True, slots=True)
class Refusal:
    """Answer no. `code` is stable (`invalid_token`, `token_expired`, `forbidden`); `message` is for people
    and names nothing secret. `retry`: whether the same client may come back with new credentials."""

    code: str
    message: str
    retry: bool = False


@dataclass(frozen=True, slots=True)
class Permit:
    """Answer yes to an action that is closed unless a plugin opens it (`runtime.hooks`). A refusal
    of another plugin still forbids it."""
