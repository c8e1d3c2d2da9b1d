"""What the tests with a real Spark share."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.spark.driver_peer import DriverPeer, usual_session
from tests.integration.spark.held_gateway import in_group
from tests.integration.spark.shared_classes import shared_classes


@pytest.fixture(scope="session", autouse=True)
def _classes() -> None:
    """Made before a test waits for its Spark."""
    shared_classes()


@pytest.fixture(scope="session")
def driver() -> Iterator[DriverPeer]:
    """The Spark that all tests share; `next(runs)` numbers a run. Do not kill it: make another one."""
    peer = DriverPeer(usual_session())
    yield peer
    peer.close()
    assert not in_group(peer.process.pid)


@pytest.fixture
def temporary() -> Iterator[Path]:
    """Where temporary files of the gateway go. Not below `tmp_path`: the names of sockets are short."""
    folder = Path(tempfile.mkdtemp(prefix="kw"))
    yield folder
    shutil.rmtree(folder)
