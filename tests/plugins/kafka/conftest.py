from __future__ import annotations

from collections.abc import Iterator

import pytest
from trio.testing import MockClock

from kiwi_kafka.client import broker_fetcher
from tests.plugins.kafka.fakes import FakeCluster
from tests.plugins.kafka.registry_server import RegistryServer, registry_server


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> MockClock:
    """Time passes when nothing has happened for so long: answers come through sockets. Work takes none."""
    monkeypatch.setattr(broker_fetcher, "thread_time", lambda: 0.0)
    return MockClock(autojump_threshold=0.005)


@pytest.fixture
def cluster() -> FakeCluster:
    made = FakeCluster()
    made.create("t", 2)
    return made


@pytest.fixture
def server() -> Iterator[RegistryServer]:
    with registry_server() as server:
        yield server
