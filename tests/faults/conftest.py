"""A broker behind a proxy for all tests of faults, and the table of what came of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from tests.faults.brokers import FaultyBroker
from tests.faults.experiment import Outcome, Result, summary

_outcomes = pytest.StashKey[list[Outcome]]()


@pytest.fixture(scope="session")
def faulty_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FaultyBroker]:
    broker = FaultyBroker(tmp_path_factory.mktemp("faulty-broker"))
    broker.open()
    yield broker
    broker.close()


@pytest.fixture
def passed(request: pytest.FixtureRequest) -> Callable[[Outcome], None]:
    """Note an outcome, for the table at the end of the run, and assert that it is a good one."""

    def note(outcome: Outcome) -> None:
        request.config.stash.setdefault(_outcomes, []).append(outcome)
        assert outcome.result is Result.PASSED, f"{outcome.kind}: {outcome.result}: {outcome.reasons}"
        assert not outcome.held_up, f"{outcome.kind}: {outcome.blocker} held the loop for {outcome.blocked} s"

    return note


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    outcomes = config.stash.get(_outcomes, [])
    if outcomes:
        terminalreporter.section("faults: what came of them, in seconds")
    for outcome in outcomes:
        figures = summary([outcome])
        shown = {name: figures[name] for name in ("noticed_s", "served_worst_s", "worst_lag_s", "blocked_ms")}
        terminalreporter.write_line(
            f"{outcome.row} {outcome.kind}: {outcome.result}, {shown}, others late by "
            f"{outcome.others_late * 1000:.0f} ms (before: {outcome.others_steady * 1000:.0f}), "
            f"{outcome.events} events"
        )
