"""DESIGN, "Slow is not dead", sentence by sentence."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import pytest
from structlog.typing import EventDict

from kiwi_gw.config import LimitSettings
from kiwi_gw.core.commands import WatchSilence
from kiwi_gw.core.notices import CredentialsExpiring, Notice, Silent
from kiwi_gw.model import ANONYMOUS, Identity
from kiwi_gw.runtime.connection import Connection
from kiwi_gw.runtime.keepalive import Keepalive
from tests.unit.runtime.fakes import FakeSession, Socket

PING = b"\x89\x00"


class Wire:
    """A connection and its keepalive, a second at a time."""

    def __init__(self, identity: Identity = ANONYMOUS, **limits: int) -> None:
        self.socket = Socket()
        self.session = FakeSession()
        self.cut = False
        self.now = 1000.0
        self.socket.taken_at = self.now
        self.keepalive = Keepalive(LimitSettings(**limits))
        self.connection = Connection(
            1,
            None,  # type: ignore[arg-type]  # it opens nothing
            self.session,
            self.socket,
            identity,
            "fake",
            "here",
            self.now,
            self._cut,
        )

    def _cut(self) -> None:
        self.cut = True

    def take(self, data: bytes = b"x") -> None:
        """The client takes bytes."""
        self.socket.wire += data
        self.socket.taken_at = self.now

    def hear(self) -> None:
        """The client sends something (a pong, for example)."""
        self.connection.heard_at = self.now

    def run(self, seconds: float, each: Callable[[], None] = lambda: None, wall: float = 0.0) -> list[float]:
        """The moments at which pings went out."""
        pings = []
        for _ in range(round(seconds)):
            self.now += 1
            each()
            before = self.socket.sent_bytes
            list(self.keepalive.look([self.connection], self.now, wall))
            if self.socket.sent_bytes > before:
                assert self.socket.wire.endswith(PING)
                self.socket.taken_at = self.now
                pings.append(self.now - 1000)
        return pings

    def told(self) -> list[Notice]:
        return self.session.notices

    def closed(self) -> tuple[int | None, str]:
        return self.socket.close_code, self.socket.close_reason

    @property
    def counts(self) -> tuple[int, int, int]:
        return self.keepalive.unresponsive, self.keepalive.stalled, self.keepalive.vanished


def test_an_idle_connection_gets_a_ping_every_interval_and_lives_while_it_answers() -> None:
    wire = Wire()

    def answer() -> None:
        if wire.socket.wire.endswith(PING) and wire.now - wire.socket.taken_at == 1:
            wire.hear()

    pings = wire.run(600, answer)
    assert pings == list(range(20, 601, 20))
    assert wire.closed() == (None, "")


def test_an_idle_one_that_stays_silent_is_aborted_after_dead_after() -> None:
    wire = Wire()
    assert wire.run(59) == [20, 40]
    assert wire.closed() == (None, "")
    wire.run(1)
    assert wire.closed() == (4408, "unresponsive")
    assert wire.cut
    assert wire.counts == (1, 0, 0)
    wire.run(100)
    assert wire.counts == (1, 0, 0)  # once


@pytest.mark.parametrize("answers", [True, False])
def test_who_spoke_while_the_gateway_stood_still_is_heard_first(answers: bool) -> None:
    wire = Wire()
    assert wire.run(20) == [20]  # a ping
    wire.now += 300
    for late in (300, 2):  # once only: a gateway that is always late looks, too
        assert wire.closed() == (None, "")
        list(wire.keepalive.look((wire.connection,), wire.now, 0, late))
        if answers:
            wire.hear()
    assert wire.closed() == ((None, "") if answers else (4408, "unresponsive"))


def test_silence_counts_from_the_last_sign_of_life() -> None:
    wire = Wire()
    wire.run(30)
    wire.hear()
    assert wire.run(59) == [40, 60, 80]
    assert wire.closed() == (None, "")
    wire.run(1)
    assert wire.closed() == (4408, "unresponsive")


def test_a_pong_at_the_last_moment_is_enough() -> None:
    wire = Wire()
    wire.run(59)
    wire.hear()
    wire.run(59)
    assert wire.closed() == (None, "")


def test_whoever_takes_events_is_alive_and_gets_no_ping() -> None:
    wire = Wire()
    assert wire.run(600, lambda: wire.take() if wire.now % 10 == 0 else None) == []
    assert wire.closed() == (None, "")


def test_our_own_pings_are_no_sign_of_life_but_an_event_between_them_is() -> None:
    wire = Wire()
    wire.run(45)  # pings at 20 and 40
    wire.take()
    assert wire.run(59) == [65, 85]
    assert wire.closed() == (None, "")
    wire.run(1)
    assert wire.closed() == (4408, "unresponsive")


def test_a_client_that_talks_and_is_sent_nothing_is_alive() -> None:
    wire = Wire()
    wire.run(600, wire.hear)
    assert wire.closed() == (None, "")


def test_a_full_socket_gets_no_ping_and_is_never_cut_by_default() -> None:
    wire = Wire()
    wire.socket.stuck = True
    assert wire.run(3600) == []
    assert wire.closed() == (None, "")


def test_a_full_socket_is_cut_after_the_stall_timeout_without_one_byte_taken() -> None:
    wire = Wire(stall_timeout_ms=30_000)
    wire.socket.stuck = True
    wire.run(29)
    wire.take()
    wire.run(29)
    assert wire.closed() == (None, "")
    wire.run(1)
    assert wire.closed() == (4408, "stalled")
    assert wire.cut
    assert wire.counts == (0, 1, 0)


def test_a_socket_that_was_full_and_drains_is_alive_from_then_on() -> None:
    wire = Wire()
    wire.socket.stuck = True
    wire.run(300)
    wire.socket.stuck = False
    wire.take()
    assert wire.run(59) == [320, 340]
    assert wire.closed() == (None, "")


def test_what_closes_already_is_left_alone() -> None:
    wire = Wire()
    wire.connection.send_close(1001, "draining")
    assert wire.run(600) == []
    assert wire.closed() == (1001, "draining")
    assert not wire.cut
    assert wire.counts == (0, 0, 0)


def test_limits_can_be_replaced() -> None:
    wire = Wire()
    wire.run(10)
    wire.keepalive.limits = LimitSettings(ping_interval_ms=5_000, dead_after_ms=12_000)
    assert wire.run(2) == [11]
    assert wire.closed() == (4408, "unresponsive")


# --- vanished machines -------------------------------------------------------------------------


def streaming(wire: Wire) -> None:
    """Our kernel takes events, whatever becomes of them; for so long the machine has answered nothing."""
    wire.take()
    if wire.socket.silence is not None:
        wire.socket.silence += 1


def test_a_machine_that_vanishes_while_events_flow_is_found() -> None:
    wire = Wire()
    wire.run(100, lambda: streaming(wire))
    wire.socket.silence = 0.0
    wire.run(27, lambda: streaming(wire))
    assert wire.closed() == (None, "")
    wire.run(1, lambda: streaming(wire))
    assert wire.closed() == (4408, "unresponsive")
    assert wire.cut
    assert wire.counts == (0, 0, 1)


@pytest.mark.parametrize("limit_ms", [200, 1_000, 2_000])
def test_nobody_is_cut_at_the_first_look_that_misses_an_answer(limit_ms: int) -> None:
    wire = Wire(vanished_after_ms=limit_ms, ping_interval_ms=50_000_000, dead_after_ms=60_000_000)
    for silence in (0.9, 1.9, 3600.0):
        wire.run(2)
        wire.take()
        wire.socket.silence = silence
        wire.run(1)
        assert wire.closed() == (None, "")
        wire.socket.silence = None


def test_answers_that_are_underway_at_every_look_are_no_silence() -> None:
    wire = Wire()

    def busy() -> None:
        wire.take()
        wire.socket.silence = 0.05

    wire.run(600, busy)
    assert wire.closed() == (None, "")


def test_after_an_idle_time_the_silence_counts_from_when_something_was_sent() -> None:
    wire = Wire(ping_interval_ms=50_000_000, dead_after_ms=60_000_000)
    wire.run(3600)
    wire.take()
    wire.socket.silence = 3600.0  # the last answer is old, and the first packet is just underway
    wire.run(20)
    assert wire.closed() == (None, "")
    wire.socket.silence = 2.0  # it came late
    wire.run(28)
    assert wire.closed() == (None, "")


def test_a_client_that_only_does_not_read_answers_every_probe() -> None:
    wire = Wire()
    wire.socket.stuck = True

    def probe() -> None:  # out and not answered yet, at one look in twenty
        wire.socket.silence = 120.0 if wire.now % 20 == 0 else None

    wire.run(3600, probe)
    assert wire.closed() == (None, "")


def test_a_full_socket_whose_machine_vanishes_is_found() -> None:
    wire = Wire()
    wire.socket.stuck = True
    wire.run(300)
    wire.socket.silence = 64.0
    wire.run(31)
    assert wire.closed() == (4408, "unresponsive")
    assert wire.counts == (0, 0, 1)


def test_whoever_spoke_lately_is_not_asked_about_but_their_silence_counts_from_then() -> None:
    wire = Wire()

    def talking() -> None:
        streaming(wire)
        wire.hear()

    wire.run(100, talking)
    assert wire.socket.asked == 0
    wire.socket.silence = 0.0
    wire.run(32, lambda: streaming(wire))
    assert wire.closed() == (4408, "unresponsive")


def test_nobody_is_asked_about_again_who_has_answered_everything() -> None:
    wire = Wire(ping_interval_ms=50_000_000, dead_after_ms=60_000_000)
    wire.take()
    wire.run(600)
    assert wire.socket.asked == 1


def test_it_can_be_switched_off() -> None:
    wire = Wire(vanished_after_ms=0)
    wire.socket.silence = 1.0
    wire.run(600, lambda: streaming(wire))
    assert wire.closed() == (None, "")
    assert wire.socket.asked == 0


# --- identities, rounds ------------------------------------------------------------------------


def test_credentials_that_expire_end_the_connection_by_wall_clock() -> None:
    wire = Wire(Identity("ann", expires_at=5_000.0))
    wire.run(10, wall=4_999.9)
    assert wire.closed() == (None, "")
    wire.run(1, wall=5_000.0)
    assert wire.closed() == (4402, "token_expired")
    assert not wire.cut  # it may answer the close frame
    assert wire.counts == (0, 0, 0)


def test_it_is_said_once_60_s_before_the_credentials_expire() -> None:
    wire = Wire(Identity("ann", expires_at=5_000.0))
    wire.run(10, wall=4_939.9)
    assert wire.told() == []
    for second in range(60):
        wire.run(1, wire.hear, wall=4_940.5 + second)
    assert wire.told() == [CredentialsExpiring(59_500)]
    # Judged anew, with the same end; then with another one.
    wire.connection.access.identity = Identity("ann", frozenset({"more"}), expires_at=5_000.0)
    wire.run(1, wall=4_999.9)
    assert len(wire.told()) == 1
    wire.connection.access.identity = Identity("ann", expires_at=5_010.0)
    wire.run(2, wall=5_000.0)
    assert wire.told()[1:] == [CredentialsExpiring(10_000)]


def test_how_long_before_is_a_setting_and_0_is_never() -> None:
    wire = Wire(Identity("ann", expires_at=5_000.0), expiry_notice_ms=2_000)
    wire.run(5, wall=4_997.9)
    assert wire.told() == []
    wire.run(5, wall=4_998.5)
    assert wire.told() == [CredentialsExpiring(1_500)]
    never = Wire(Identity("ann", expires_at=5_000.0), expiry_notice_ms=0)
    never.run(5, wall=4_999.99)
    assert never.told() == []


def test_many_connections_are_looked_at_in_parts_and_each_once_a_second() -> None:
    wires = [Wire() for _ in range(1_000)]
    keepalive = Keepalive(LimitSettings(ping_interval_ms=1, dead_after_ms=60_000))
    pings, at_once = [], 0
    for step in range(1, 21):
        before = sum(wire.socket.sent_bytes for wire in wires)
        for wire in wires:
            wire.socket.taken_at = 0.0
        looking = keepalive.look([wire.connection for wire in wires], 1000 + step / 10, 0.0)
        turns = [before, *(sum(wire.socket.sent_bytes for wire in wires) for _ in looking)]
        turns.append(sum(wire.socket.sent_bytes for wire in wires))
        at_once = max(at_once, *(after - before for before, after in pairwise(turns)))
        pings.append((turns[-1] - before) // 2)
    assert sum(pings) == 2_000
    assert max(pings) <= 125
    assert at_once == 16 * 2  # then others have their turn
    assert {wire.socket.sent_bytes for wire in wires} == {4}


def test_the_log_says_why(logged: Callable[[str], list[EventDict]]) -> None:
    wire = Wire()
    wire.run(60)
    (line,) = logged("connection is given up")
    assert line["conn_id"] == 1
    assert "answers no ping" in line["why"]


@pytest.mark.parametrize("code", [1000, 4402])
def test_a_second_reason_does_not_replace_the_first(code: int) -> None:
    wire = Wire()
    wire.connection.send_close(code, "first")
    wire.connection.abort(4408, "second")
    assert wire.closed() == (code, "first")
    assert wire.cut


def test_a_session_is_told_once_more_than_so_many_seconds_were_silent_on_our_side() -> None:
    wire = Wire(ping_interval_ms=100_000, dead_after_ms=200_000)
    wire.session.commands = (WatchSilence(10),)
    wire.connection.receive("", wire.now)
    wire.run(9)
    assert Silent() not in wire.told()
    wire.run(1)
    assert wire.told().count(Silent()) == 1
    wire.take()
    wire.run(9)
    assert wire.told().count(Silent()) == 1
    wire.socket.stuck = True  # something waits for it: that is no silence
    wire.run(30)
    assert wire.told().count(Silent()) == 1
    wire.socket.stuck = False
    wire.run(1)
    assert wire.told().count(Silent()) == 2
