"""What the tests with a real Spark share."""

from __future__ import annotations

import pytest

from tests.integration.spark.shared_classes import shared_classes


@pytest.fixture(scope="session", autouse=True)
def _classes() -> None:
    """Made before a test waits for its Spark."""
    shared_classes()
