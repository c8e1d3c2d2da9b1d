"""What a driver process can be, and what makes it something else: one table."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import Final


class State(enum.Enum):
    """STARTING: its process runs, its session is being made. READY: it has one, and no query. RUNNING: it
    has queries. BACKOFF: it is gone, and will be started again. FAILED: it will not."""

    STARTING = "starting"
    READY = "ready"
    RUNNING = "running"
    BACKOFF = "backoff"
    FAILED = "failed"


class Input(enum.Enum):
    """OPENED: the session is there. BUSY: a first query was asked for. IDLE: the last one is over. DIED: the
    process ended, or had to be ended. RETRY: the pause is over. GAVE_UP: another try would not help."""

    OPENED = "opened"
    BUSY = "busy"
    IDLE = "idle"
    DIED = "died"
    RETRY = "retry"
    GAVE_UP = "gave up"


TABLE: Final[Mapping[tuple[State, Input], State]] = {
    (State.STARTING, Input.OPENED): State.READY,
    (State.STARTING, Input.DIED): State.BACKOFF,
    (State.READY, Input.BUSY): State.RUNNING,
    (State.READY, Input.DIED): State.BACKOFF,
    (State.RUNNING, Input.IDLE): State.READY,
    (State.RUNNING, Input.DIED): State.BACKOFF,
    (State.BACKOFF, Input.RETRY): State.STARTING,
    (State.BACKOFF, Input.GAVE_UP): State.FAILED,
}
"""Every pair that can come about. FAILED has no way out: a changed section `spark` makes a new driver."""

WORKS: Final = frozenset({State.READY, State.RUNNING})
"""States in which queries can be started."""


def move(state: State, item: Input) -> State:
    """The next state. RuntimeError for a pair that cannot come about: a mistake in the supervisor."""
    following = TABLE.get((state, item))
    if following is None:
        raise RuntimeError(f"a driver that is {state.value} cannot take {item.value!r}")
    return following
