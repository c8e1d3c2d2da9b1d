"""A source whose history cannot be reached for a while: it is asked again, and nobody is told."""

from __future__ import annotations

from pathlib import Path

import pytest
import trio
from trio.testing import MockClock

from kiwi_gw.core.notices import OpenFailed
from kiwi_gw.model import AtTime, Start, StartAt
from tests.unit.runtime.fakes import Bench
from tests.unit.runtime.test_history import begin, gateway, publish


def failures(bench: Bench) -> int:
    (runner,) = bench.gateway.runners()
    return runner.history.failures


@pytest.mark.parametrize("start", [StartAt.EARLIEST, AtTime(1)])
async def test_where_to_begin_is_asked_again_if_that_fails(
    tmp_path: Path, autojump_clock: MockClock, start: Start
) -> None:
    async with gateway(tmp_path) as (bench, script):
        await publish(script, 1000, timestamp=1)
        client = bench.connect()
        script.history.fail(OSError("no route"))
        client.does(begin(start))
        await trio.sleep(0.9)
        assert client.offsets == list(range(1000))
        assert client.told(OpenFailed) == []
        assert failures(bench) == 1


async def test_who_cannot_be_told_where_to_begin_in_time_is_refused(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    async with gateway(tmp_path) as (bench, script):
        await publish(script, 1000)
        client = bench.connect()
        script.history.fail(*(OSError("no route") for _ in range(20)))
        client.does(begin())
        await trio.sleep(1.1)
        assert len(client.refusals) == 1
        asked = failures(bench)
        assert 2 <= asked <= 6, "with pauses between"
        await trio.sleep(30)
        assert failures(bench) == asked, "nobody wants to know any more"
