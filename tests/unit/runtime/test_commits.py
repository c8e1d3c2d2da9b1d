"""What a source makes of a commit: kept, refused, or not known."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import pytest
import trio
from structlog.typing import EventDict
from trio.testing import MockClock

from kiwi_gw.api import CommitRefused
from kiwi_gw.core.commands import Commit
from kiwi_gw.runtime.commits import commit
from kiwi_gw.runtime.meters import SourceMeter

COMMIT = Commit("c", "a", "g", {0: (1, "")})


class Keeper:
    """A source that keeps positions, or raises, or hangs if there is nothing to raise."""

    def __init__(self, error: Exception | None) -> None:
        self._error = error

    async def committed(self, group: str) -> Mapping[int, tuple[int, str]]:
        return {}

    async def commit(self, group: str, positions: Mapping[int, tuple[int, str]]) -> None:
        if self._error is None:
            await trio.sleep_forever()
        else:
            raise self._error


@pytest.mark.parametrize(
    ("source", "code", "retry", "counted"),
    [
        (None, "unavailable", True, "refused"),
        (object(), "start", False, "refused"),
        (Keeper(CommitRefused("positions", "there is no partition 7")), "positions", False, "refused"),
        (Keeper(ZeroDivisionError("boom")), "unavailable", True, "failed"),
        (Keeper(None), "unavailable", True, "failed"),
    ],
    ids=["does not run", "keeps none", "refuses", "fails", "hangs"],
)
async def test_why_a_commit_is_not_kept(
    source: object,
    code: str,
    retry: bool,
    counted: str,
    autojump_clock: MockClock,
    logged: Callable[[str], list[EventDict]],
) -> None:
    meter, began = SourceMeter("a"), trio.current_time()
    refusal = await commit(source, COMMIT, 3, meter)
    assert refusal is not None
    assert (refusal.code, refusal.retry) == (code, retry)
    assert meter.commits == {counted: 1}
    assert trio.current_time() <= began + 3
    told = logged("a source failed to commit")
    assert [type(line["exc_info"]) for line in told] == (
        [ZeroDivisionError] if counted == "failed" and trio.current_time() == began else []
    )
