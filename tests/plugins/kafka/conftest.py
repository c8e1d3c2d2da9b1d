from __future__ import annotations

import pytest
from trio.testing import MockClock


@pytest.fixture
def clock() -> MockClock:
    """Time passes when nothing has happened for so long: answers come through sockets."""
    return MockClock(autojump_threshold=0.005)
