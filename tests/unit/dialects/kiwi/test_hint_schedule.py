"""When a subscription that has passed nothing is looked at, by a clock of the test's own."""

from __future__ import annotations

from collections.abc import Iterable

from kiwi_gw.core.commands import Command, Inspect, SetTimer
from kiwi_gw.dialects.kiwi.hint_schedule import HintSchedule


class Timed:
    """Hints whose timer is the test's. looked_at: which of them when."""

    def __init__(self) -> None:
        self.now, self.at = 100.0, float("inf")
        self.hints = HintSchedule(lambda: self.now)
        self.looked_at: list[tuple[str, float]] = []

    def does(self, commands: Iterable[Command], forget: bool = True) -> None:
        for command in commands:
            if isinstance(command, SetTimer):
                assert self.at == float("inf"), "one timer"
                self.at = self.now + command.seconds
            elif isinstance(command, Inspect):
                self.looked_at.append((str(command.handle), round(self.now - 100, 1)))
                if forget:
                    self.hints.forget(str(command.handle))

    def runs(self, until: float, forget: bool = True) -> None:
        while self.at <= 100 + until:
            self.now, self.at = self.at, float("inf")
            self.does(self.hints.timer_fired(), forget)
        self.now = 100 + until


def test_each_subscription_is_looked_at_ten_seconds_after_it_began() -> None:
    timed = Timed()
    for at, name in ((0.0, "a"), (3.0, "b"), (9.9, "c")):
        timed.runs(at)
        timed.does(timed.hints.watch(name))
    timed.runs(60)
    assert timed.looked_at == [("a", 10.0), ("b", 13.0), ("c", 19.9)]
    timed.does(timed.hints.watch("d"))
    timed.runs(100)
    assert timed.looked_at[3:] == [("d", 70.0)]


def test_one_that_comes_anew_begins_anew_and_one_that_is_over_is_not_looked_at() -> None:
    timed = Timed()
    timed.does([*timed.hints.watch("a"), *timed.hints.watch("b")])
    timed.runs(4)
    timed.hints.forget("a")
    timed.hints.forget("b")
    timed.does(timed.hints.watch("a"))
    timed.runs(60)
    assert timed.looked_at == [("a", 14.0)]


def test_many_are_looked_at_one_after_the_other_and_again_where_there_was_no_event() -> None:
    timed = Timed()
    for name in "abc":
        timed.does(timed.hints.watch(name))
    timed.runs(20.05, forget=False)
    assert timed.looked_at == [("a", 10.0), ("b", 10.1), ("c", 10.2), ("a", 20.0)]
