"""A real Kafka for the integration tests: one for the whole run, and one alone for a test that kills it."""

from __future__ import annotations

import itertools
import re
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import pytest

from kiwi_demo.broker import Broker
from tests.integration.held_broker import HeldBroker
from tests.integration.shared_broker import shared
from tests.topics import Topics

_count = itertools.count()


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """The broker that all tests share. Do not stop or kill it: take `own_broker` for that."""
    folder = tmp_path_factory.mktemp("broker")
    if (running := shared(folder)) is not None:
        yield running
        return
    held = HeldBroker(folder)
    held.start()
    yield held.broker
    held.stop()


@pytest.fixture
async def own_broker(tmp_path: Path) -> AsyncIterator[Broker]:
    """A started broker for one test, to be killed, restarted, frozen."""
    async with Broker(tmp_path / "broker", java_options=("-XX:TieredStopAtLevel=1",)) as broker:
        yield broker


@pytest.fixture
def topics(broker: Broker) -> Topics:
    """Makes and fills topics on the shared broker."""
    return Topics(broker.bootstrap)


@pytest.fixture
def new_topic(request: pytest.FixtureRequest) -> Callable[[], str]:
    """A function that gives a topic name that no other test uses (the topic is not created by it)."""
    test = re.sub(r"[^a-zA-Z0-9_-]+", "-", request.node.name)[:80]
    return lambda: f"{test}-{next(_count)}"
