"""What is killed costs no row and doubles none: `benchmarks.kills` kills 100 times, and the driver, too."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from kiwi_demo.broker import Broker
from tests.integration.spark.kills import Kills

pytestmark = [pytest.mark.integration, pytest.mark.timeout(900)]


@pytest.mark.parametrize("who", ["gateway", pytest.param("java", marks=pytest.mark.extended)])
async def test_every_row_comes_once(
    broker: Broker, new_topic: Callable[[], str], tmp_path: Path, who: str
) -> None:
    kills = Kills(broker.bootstrap, tmp_path, who, new_topic())
    await kills.run(1)
    for mode, account in kills.accounts.items():
        assert account.exact, (mode, account)
        assert account.rows > 100
