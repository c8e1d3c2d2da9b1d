"""What is remembered of a client to tell slow ones from dead ones (`keepalive`)."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(slots=True)
class Liveness:
    """Times are in monotonic seconds.

    taken_at: when the client last took something else than a ping. pinged_at: when the first ping was sent
    since it last gave a sign of life, and pinged_bytes: what had been sent by then. unanswered_at: since when
    its machine answers nothing, None if it answers, and answered_bytes: what had been sent when it last had.
    awaits_pong_of: when the ping was sent that is to be answered next, None if there is none.
    expiry_announced: when the credentials expire (wall clock) of whose end the client was last warned.
    silence_seconds: for how long nothing must have been sent so that its session is told; None: it is not.
    said_bytes, said_at: what was sent but pings and pongs, and when that was seen to have grown.
    """

    taken_at: float
    pinged_at: float = 0.0
    pinged_bytes: int = 0
    unanswered_at: float | None = None
    answered_bytes: int = 0
    awaits_pong_of: float | None = None
    expiry_announced: float | None = None
    silence_seconds: float | None = None
    said_bytes: int = 0
    said_at: float = field(init=False)

    def __post_init__(self) -> None:
        self.said_at = self.taken_at
