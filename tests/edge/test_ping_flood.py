"""Pings are answered, pongs and fragments taken, but not without end."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from kiwi_gw.core.round_budget import RoundBudget
from kiwi_gw.edge import websocket
from kiwi_gw.edge.frame_reader import FrameReader
from kiwi_gw.runtime.command_scheduler import TimeAllowance
from kiwi_gw.runtime.meters import Meters

PING, PONG = b"\x89\x80\0\0\0\0", b"\x8a\x80\0\0\0\0"
FIRST, MIDDLE, LAST = b"\x01\x80\0\0\0\0", b"\x00\x80\0\0\0\0", b"\x80\x80\0\0\0\0"


class Clock:
    now = 1_000.0

    def monotonic(self) -> float:
        return self.now


class Hung:
    """A connection with its frame writer, which only notes how it was closed."""

    closed: tuple[int, str] | None = None
    delivery_seconds = 0.0
    heard_at = 0.0
    dialect = "kiwi"

    def __init__(self) -> None:
        self.meters = Meters(1)

    def ponged(self, now: float) -> None:
        pass

    def pong(self, frame: bytes) -> None:
        assert frame == b"\x8a\x00"

    def receive(self, message: str | bytes, now: float) -> None:
        pass

    def send_close(self, code: int, reason: str) -> None:
        self.closed = (code, reason)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(websocket, "time", clock)
    return clock


def inbound(writer: Hung) -> Callable[[bytes], object]:
    allowance = TimeAllowance(RoundBudget())
    reading = websocket.ClientInput(writer, writer, FrameReader(1000), writer.meters, allowance)  # type: ignore[arg-type]
    return lambda data: list(reading.take(data))


@pytest.mark.parametrize("frame", [PING, PONG])
def test_forty_control_frames_a_second_are_a_client_s_own_business(clock: Clock, frame: bytes) -> None:
    writer = Hung()
    hear = inbound(writer)
    for _ in range(40 * 60):
        clock.now += 1 / 40
        hear(frame)
    assert writer.closed is None


@pytest.mark.parametrize("frame", [PING, PONG])
def test_a_burst_of_control_frames_is_no_flood(clock: Clock, frame: bytes) -> None:
    writer = Hung()
    inbound(writer)(frame * 5_000)
    assert writer.closed is None


def test_a_message_in_1024_fragments_every_two_seconds_is_no_flood(clock: Clock) -> None:
    writer = Hung()
    hear = inbound(writer)
    for _ in range(60):
        clock.now += 2
        hear(FIRST + MIDDLE * 1_022 + LAST)
    assert writer.closed is None


FLOODS = {
    "pings": (PING * 10, "rate_limited: too many pings or pongs"),
    "pongs": (PONG * 10, "rate_limited: too many pings or pongs"),
    "pings and pongs": ((PING + PONG) * 5, "rate_limited: too many pings or pongs"),
    "fragments": (FIRST + MIDDLE * 100 + LAST, "rate_limited: too many fragments"),
}


@pytest.mark.parametrize(("frames", "reason"), FLOODS.values(), ids=FLOODS.keys())
def test_a_flood_ends_the_connection_after_three_seconds(clock: Clock, frames: bytes, reason: str) -> None:
    writer = Hung()
    hear = inbound(writer)
    began = clock.now
    while writer.closed is None and clock.now < began + 10:
        clock.now += 0.01
        hear(frames)
    assert writer.closed == (1008, reason)
    assert set(writer.meters.rate_limited) == {"fragments" if "fragments" in reason else "controls"}
    assert not writer.meters.protocol_errors, "each of them was sound"
    assert 3 <= clock.now - began < 4


def test_an_excess_is_noted_so_that_the_reader_can_pause(clock: Clock) -> None:
    writer = Hung()
    allowance = TimeAllowance(RoundBudget())
    reading = websocket.ClientInput(writer, writer, FrameReader(1000), writer.meters, allowance)  # type: ignore[arg-type]
    list(reading.take(PING * 50))
    assert not reading.excessive
    list(reading.take(PING * 5_000))
    assert reading.excessive
