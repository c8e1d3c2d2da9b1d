"""The states of a subscription and what moves it between them, as one table.

OPENING is waiting for its source; LIVE has had everything there is; BEHIND reads the window;
HISTORY_WAITING and HISTORY are below the window and read the source's own history; ENDING has the rest
of a source that is over or gone still to be sent; CLOSED is final.

A pair that is not in the table is not legal: it raises.
"""

from __future__ import annotations

import enum


class SubscriptionState(enum.Enum):
    __hash__ = object.__hash__  # by identity: Enum's own is Python code, which hashes the name every time

    OPENING = "opening"
    LIVE = "live"
    BEHIND = "behind"
    HISTORY_WAITING = "history_waiting"
    HISTORY = "history"
    ENDING = "ending"
    CLOSED = "closed"


IN_HISTORY = frozenset({SubscriptionState.HISTORY_WAITING, SubscriptionState.HISTORY})
"""Below the source's window."""

READING = frozenset({SubscriptionState.BEHIND, SubscriptionState.ENDING, SubscriptionState.HISTORY})
"""What is next is read at the client's pace, from whichever window holds it."""

NOT_LIVE = READING | IN_HISTORY
"""Open, and has not had everything."""


class SubscriptionInput(enum.Enum):
    __hash__ = object.__hash__

    OPENED = "opened"  # the source runs; the subscription begins at its head
    OPEN_FAILED = "open_failed"  # the source did not start in time, or cannot serve the start
    FULL = "full"  # events arrived that could not all be sent (no room, no credit)
    EVICTED = "evicted"  # its next event is no longer, or was never, in the window
    READER_ASSIGNED = "reader_assigned"  # it may read history now
    JOINED = "joined"  # it reached what stands above it: history -> window -> head
    ENDED = "ended"  # the finite source is over
    REMOVED = "removed"  # removed or altered in the configuration, or changed at its origin
    FAILED = "failed"  # the source failed for good, or the client lost its right to it
    EVENT_FAILED = "event_failed"  # its next event cannot be encoded, and its source says `close`
    UNSUBSCRIBE = "unsubscribe"
    LIMIT_REACHED = "limit_reached"
    UNTIL_REACHED = "until_reached"
    POLICY_CLOSE = "policy_close"  # over capacity with policy `close`, or its time to drain is over
    DISCONNECT = "disconnect"


_S, _I = SubscriptionState, SubscriptionInput

_STAYS: dict[SubscriptionState, tuple[SubscriptionInput, ...]] = {
    _S.HISTORY_WAITING: (_I.ENDED,),
    _S.HISTORY: (_I.ENDED,),
    _S.ENDING: (_I.REMOVED,),
}

_MOVES: dict[SubscriptionState, dict[SubscriptionInput, SubscriptionState]] = {
    _S.OPENING: {
        _I.OPENED: _S.LIVE,
        _I.JOINED: _S.BEHIND,
        _I.EVICTED: _S.HISTORY_WAITING,
        _I.OPEN_FAILED: _S.CLOSED,
        _I.ENDED: _S.CLOSED,
        _I.REMOVED: _S.CLOSED,
        _I.FAILED: _S.CLOSED,
        _I.UNSUBSCRIBE: _S.CLOSED,
        _I.DISCONNECT: _S.CLOSED,
    },
    _S.LIVE: {
        _I.FULL: _S.BEHIND,
        _I.ENDED: _S.CLOSED,
        _I.REMOVED: _S.CLOSED,
        _I.FAILED: _S.CLOSED,
        _I.UNSUBSCRIBE: _S.CLOSED,
        _I.LIMIT_REACHED: _S.CLOSED,
        _I.UNTIL_REACHED: _S.CLOSED,
        _I.DISCONNECT: _S.CLOSED,
    },
    _S.BEHIND: {
        _I.JOINED: _S.LIVE,
        _I.EVICTED: _S.HISTORY_WAITING,
        _I.ENDED: _S.ENDING,
        _I.REMOVED: _S.ENDING,
        _I.FAILED: _S.CLOSED,
        _I.EVENT_FAILED: _S.CLOSED,
        _I.UNSUBSCRIBE: _S.CLOSED,
        _I.LIMIT_REACHED: _S.CLOSED,
        _I.UNTIL_REACHED: _S.CLOSED,
        _I.POLICY_CLOSE: _S.CLOSED,
        _I.DISCONNECT: _S.CLOSED,
    },
    _S.HISTORY_WAITING: {
        _I.READER_ASSIGNED: _S.HISTORY,
        _I.JOINED: _S.BEHIND,
        _I.REMOVED: _S.CLOSED,
        _I.FAILED: _S.CLOSED,
        _I.UNSUBSCRIBE: _S.CLOSED,
        _I.LIMIT_REACHED: _S.CLOSED,
        _I.UNTIL_REACHED: _S.CLOSED,
        _I.POLICY_CLOSE: _S.CLOSED,
        _I.DISCONNECT: _S.CLOSED,
    },
    _S.HISTORY: {
        _I.FULL: _S.HISTORY_WAITING,
        _I.JOINED: _S.BEHIND,
        _I.REMOVED: _S.CLOSED,
        _I.FAILED: _S.CLOSED,
        _I.EVENT_FAILED: _S.CLOSED,
        _I.UNSUBSCRIBE: _S.CLOSED,
        _I.LIMIT_REACHED: _S.CLOSED,
        _I.UNTIL_REACHED: _S.CLOSED,
        _I.POLICY_CLOSE: _S.CLOSED,
        _I.DISCONNECT: _S.CLOSED,
    },
    _S.ENDING: {
        _I.JOINED: _S.CLOSED,
        _I.FAILED: _S.CLOSED,
        _I.EVENT_FAILED: _S.CLOSED,
        _I.UNSUBSCRIBE: _S.CLOSED,
        _I.LIMIT_REACHED: _S.CLOSED,
        _I.UNTIL_REACHED: _S.CLOSED,
        _I.POLICY_CLOSE: _S.CLOSED,
        _I.DISCONNECT: _S.CLOSED,
    },
    _S.CLOSED: {},
}

TABLE: dict[tuple[SubscriptionState, SubscriptionInput], SubscriptionState] = {
    **{(state, trigger): state for state, triggers in _STAYS.items() for trigger in triggers},
    **{(state, trigger): to for state, moves in _MOVES.items() for trigger, to in moves.items()},
}


class IllegalTransitionError(RuntimeError):
    """A subscription was moved by what cannot happen in its state."""


def after(state: SubscriptionState, trigger: SubscriptionInput) -> SubscriptionState:
    """Return the state after `trigger`. Raises IllegalTransitionError where that cannot happen."""
    new = TABLE.get((state, trigger))
    if new is None:
        raise IllegalTransitionError(f"{trigger.value} in state {state.value}")
    return new
