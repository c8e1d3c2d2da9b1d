"""The sources that the gateway brings along, against the contract that holds for everybody's."""

from __future__ import annotations

import pytest
from trio.testing import MockClock

import kiwi_counter
from kiwi_gw.plugin_manager import PluginManager
from kiwi_gw.testing import check_source


@pytest.mark.parametrize("lazy", [False, True])
@pytest.mark.parametrize("last", [None, 3, 50])
async def test_counter(autojump_clock: MockClock, lazy: bool, last: int | None) -> None:
    manager = PluginManager()
    manager.register(kiwi_counter, "counter")
    settings = {"type": "counter", "id": "c", "min": 1, "max": last, "interval_ms": 100, "lazy": lazy}
    counter = manager.source_types()["counter"]
    report = await check_source(counter, settings, lazy=lazy, repeatable=True, events=60)
    assert report.finite is (last is not None)
    assert report.events == (last or report.events)
    assert report.positions == {0: report.events}
