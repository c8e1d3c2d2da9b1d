"""Positions that clients commit, on their way to a source that keeps them."""

from __future__ import annotations

from typing import Final

import structlog
import trio

from kiwi_gw.api import CommitRefused, Committer
from kiwi_gw.codes import RefusalCode
from kiwi_gw.core.commands import Commit
from kiwi_gw.model import Refusal
from kiwi_gw.runtime.meters import SourceMeter
from kiwi_gw.runtime.plugin_faults import FaultBarrier

log = structlog.get_logger(__name__)

_UNABLE: Final = Refusal(RefusalCode.START, "this source keeps no positions of groups")
_RESTING: Final = Refusal(
    RefusalCode.UNAVAILABLE, "not committed: the source does not run just now", retry=True
)
_IN_DOUBT: Final = Refusal(RefusalCode.UNAVAILABLE, "not known whether it was committed", retry=True)


async def commit(source: object, command: Commit, seconds: float, meter: SourceMeter) -> Refusal | None:
    """Have the source keep positions, within so many seconds. None: it has; else why not, or that nobody
    knows."""
    refusal = await _committed(source, command, seconds)
    meter.commits["failed" if refusal is _IN_DOUBT else "refused" if refusal is not None else "ok"] += 1
    return refusal


async def _committed(source: object, command: Commit, seconds: float) -> Refusal | None:
    if source is None:
        return _RESTING
    if not isinstance(source, Committer):
        return _UNABLE
    done = False
    with FaultBarrier() as barrier, trio.move_on_after(seconds):
        await source.commit(command.group, command.positions)
        done = True
    if isinstance(barrier.error, CommitRefused):
        return Refusal(barrier.error.code, str(barrier.error), retry=barrier.error.retry)
    if barrier.error is not None:
        log.error("a source failed to commit", source=command.source_id, exc_info=barrier.error)
    return None if done else _IN_DOUBT
