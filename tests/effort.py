"""How many examples hypothesis tries: as many as a test asks for, or fewer where time is short."""

from __future__ import annotations

from hypothesis import HealthCheck, settings
from hypothesis.stateful import RuleBasedStateMachine, run_state_machine_as_test

CHECK = "check"
"""The profile of `make check`: a tenth of the examples, the same ones every time."""

LONG = "long"
"""The profile of `make bench`: many times the examples, others every time."""

MILLION = "million"
"""The profile for one test at a time: a million of what is tried three thousand times as a rule."""

_USUAL = 100
_TIMES = 35
_MILLION_TIMES = 334


def register() -> None:
    """Make the profiles known: `pytest --hypothesis-profile check` uses one. Without any there is none of
    Hypothesis' deadlines either: an example takes as long as the machine lets it."""
    settings.register_profile("usual", deadline=None)
    settings.load_profile("usual")
    settings.register_profile(CHECK, max_examples=_USUAL // 10, derandomize=True, deadline=None)
    settings.register_profile(LONG, max_examples=_USUAL * _TIMES, deadline=None)
    settings.register_profile(MILLION, max_examples=_USUAL * _MILLION_TIMES, deadline=None)


def examples(full: int) -> int:
    """So many, in the proportion of the profile that is in use."""
    profile = settings.default
    assert profile is not None
    return max(1, full * profile.max_examples // _USUAL)


def play(machine: type[RuleBasedStateMachine], full: int, steps: int) -> None:
    """Try a machine so many times, with at most so many steps each."""
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=examples(full),
            stateful_step_count=steps,
            report_multiple_bugs=False,
            suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
        ),
    )
