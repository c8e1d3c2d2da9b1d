"""Pings are answered, but not without end."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from kiwi_gw.edge import websocket
from kiwi_gw.edge.frames_in import FrameReader

PING = b"\x89\x80\0\0\0\0"


class Clock:
    now = 1_000.0

    def monotonic(self) -> float:
        return self.now


class Hung:
    """A connection with its outlet, which only notes how it was closed."""

    closed: tuple[int, str] | None = None
    heard_at = 0.0

    def pong(self, frame: bytes) -> None:
        assert frame == b"\x8a\x00"

    def hang_up(self, code: int, reason: str) -> None:
        self.closed = (code, reason)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(websocket, "time", clock)
    return clock


def inbound(outlet: Hung) -> Callable[[bytes], object]:
    reading = websocket.Reading(outlet, outlet, FrameReader(1000))  # type: ignore[arg-type]
    return lambda data: list(reading.take(data))


def test_forty_pings_a_second_are_a_client_s_own_business(clock: Clock) -> None:
    outlet = Hung()
    hear = inbound(outlet)
    for _ in range(40 * 60):
        clock.now += 1 / 40
        hear(PING)
    assert outlet.closed is None


def test_a_burst_of_pings_is_no_flood(clock: Clock) -> None:
    outlet = Hung()
    inbound(outlet)(PING * 5_000)
    assert outlet.closed is None


def test_a_flood_of_pings_ends_the_connection_after_three_seconds(clock: Clock) -> None:
    outlet = Hung()
    hear = inbound(outlet)
    began = clock.now

    def flood() -> None:
        while outlet.closed is None and clock.now < began + 10:
            clock.now += 0.01
            hear(PING * 10)

    flood()
    assert outlet.closed == (1008, "rate_limited: too many pings")
    assert 3 <= clock.now - began < 4
