"""Clients that are gone without a word, and clients that only stand still (row C4)."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import trio

from tests.faults.attackers import attacker
from tests.faults.half_open import NoNamespacesError, half_open
from tests.faults.test_hostile_clients import healthy

pytestmark = pytest.mark.integration

VANISHED_MS, DEAD_MS = 3_000, 6_000
"""A tenth of the defaults: so is what a test waits for."""


async def test_whose_cable_is_pulled_is_let_go_of(
    request: pytest.FixtureRequest, figure: Callable[[str, object], None]
) -> None:
    if request.config.getoption("without_namespaces"):
        pytest.skip("left out by --without-namespaces")
    try:
        found = await half_open(VANISHED_MS, DEAD_MS)
    except NoNamespacesError as error:
        pytest.fail(
            f"this machine lets us make no network namespaces ({error}), so nobody's cable can be pulled; "
            "allow user namespaces, or leave this test out in so many words: --without-namespaces"
        )
    figure("seconds that clients whose cable was pulled were kept", found)
    # The defaults leave as much for looking once a second: 28 s of the 30 that are promised.
    assert VANISHED_MS / 1000 <= found["streaming"] <= VANISHED_MS / 1000 + 2
    assert found["idle"] <= DEAD_MS / 1000 + 2
    assert found["resources"] <= 1.5, "a close frame has a second to get through"
    assert found["others"] <= 0.5


async def test_a_stopped_process_is_slow_and_not_dead(tmp_path: Path) -> None:
    limits: dict[str, Any] = {"vanished_after_ms": 1_000, "dead_after_ms": 1_000, "ping_interval_ms": 300}
    async with healthy(tmp_path, **limits) as stage, trio.open_nursery() as nursery:
        stopped = await nursery.start(attacker, "reader", stage.gateway.port, {"seconds": 6})
        await stopped.says("subscribed")
        os.kill(stopped.pid, signal.SIGSTOP)
        await trio.sleep(3)
        os.kill(stopped.pid, signal.SIGCONT)
        told = await stopped.result()
    assert told["lags"] == 0
    assert told["closed"] is False
    assert told["gaps"] == 0
    assert told["events"] >= 300, "what came while it stood still, too"
