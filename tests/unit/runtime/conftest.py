"""What the tests of the runtime share."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from structlog.testing import capture_logs
from structlog.typing import EventDict


@pytest.fixture(autouse=True)
def log_lines() -> Iterator[list[EventDict]]:
    """What is logged while the test runs."""
    with capture_logs() as lines:
        yield lines


@pytest.fixture
def logged(log_lines: list[EventDict]) -> Callable[[str], list[EventDict]]:
    """The log lines with this event."""
    return lambda event: [line for line in log_lines if line["event"] == event]
