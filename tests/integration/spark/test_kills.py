"""What is killed costs no row and doubles none: `benchmarks.kills` kills 100 times."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from kiwi_demo.broker import Broker
from tests.integration.spark.kills import WHO, Kills

pytestmark = [pytest.mark.integration, pytest.mark.timeout(900)]


@pytest.mark.parametrize(
    "who", [pytest.param(who, marks=() if who == "gateway" else pytest.mark.extended) for who in WHO]
)
async def test_every_row_comes_once(
    broker: Broker, new_topic: Callable[[], str], tmp_path: Path, who: str
) -> None:
    kills = Kills(broker.bootstrap, tmp_path, who, new_topic())
    await kills.run(1)
    for mode, account in kills.accounts.items():
        assert account.exact, (mode, account)
        assert account.rows > 100
