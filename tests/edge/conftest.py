"""What the tests of a running gateway share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from structlog.testing import capture_logs
from structlog.typing import EventDict

from kiwi_gw.edge import websocket
from kiwi_gw.runtime import gateway, keepalive
from tests.edge.wall import Arrivals, Wall


@pytest.fixture
def log_lines() -> Iterator[list[EventDict]]:
    """What is logged while the test runs."""
    with capture_logs() as lines:
        yield lines


@pytest.fixture
def no_tracebacks(log_lines: list[EventDict]) -> Iterator[None]:
    """The test fails if a traceback, an error or a warning was logged."""
    yield
    assert [line for line in log_lines if line.get("exc_info")] == []
    assert [line for line in log_lines if line["log_level"] not in ("debug", "info")] == []


@pytest.fixture
def wall(monkeypatch: pytest.MonkeyPatch) -> Wall:
    """Give gateways a time of day that only the test moves: credentials expire by it."""
    wall = Wall()
    for module in (gateway, keepalive):
        monkeypatch.setattr(module, "time", wall)
    return wall


@pytest.fixture
def arrivals(monkeypatch: pytest.MonkeyPatch) -> Arrivals:
    """Give the messages of WebSockets times that only the test moves: rates are counted by them."""
    arrivals = Arrivals()
    monkeypatch.setattr(websocket, "time", arrivals)
    return arrivals
