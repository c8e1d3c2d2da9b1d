from __future__ import annotations

import pytest
from trio.testing import MockClock

from kiwi_kafka.client import broker_fetcher


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> MockClock:
    """Time passes when nothing has happened for so long: answers come through sockets. Work takes none."""
    monkeypatch.setattr(broker_fetcher, "thread_time", lambda: 0.0)
    return MockClock(autojump_threshold=0.005)
