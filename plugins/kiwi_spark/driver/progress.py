"""Tells the gateway what Spark says of every micro-batch."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, Final

from pyspark.sql.streaming.listener import StreamingQueryListener

from kiwi_spark.driver.inputs import observed
from kiwi_spark.frames import Message
from kiwi_spark.wire import Idle, Progress

_LOOK_SECONDS: Final = 1
_BEHIND: Final = "maxOffsetsBehindLatest"
_HAS_LOOKED: Final = ("Waiting for data to arrive", "Waiting for next trigger")
"""What a query's status is between two looks for input; not while it is being started, nor within one."""


class Listener(StreamingQueryListener):
    """Of a session in which one query runs. over: set when all was told of it."""

    def __init__(self, run: int, streams: Sequence[str], tell: Callable[[Message], None]) -> None:
        self._run = run
        self._streams = streams
        self._tell = tell
        self.over = threading.Event()

    def onQueryStarted(self, event: Any) -> None:  # noqa: N802
        """The gateway is told by Started."""

    def onQueryProgress(self, event: Any) -> None:  # noqa: N802
        self._tell(progress_of(self._run, self._streams, event.progress))

    def onQueryIdle(self, event: Any) -> None:  # noqa: N802
        self._tell(Idle(run=self._run))

    def onQueryTerminated(self, event: Any) -> None:  # noqa: N802
        self.over.set()  # the gateway is told by Ended


def follow(running: Any, run: int, streams: Sequence[str], tell: Callable[[Message], None]) -> None:
    """Tell of every batch of a query over Spark Connect, until it is over. Raises what ended it.

    The server is asked again and again: a listener there would have to be in a Python of its own.
    """
    told = ("", -1)
    over = False
    while not over:
        over = running.awaitTermination(_LOOK_SECONDS)
        if not over and told == ("", -1) and running.status["message"] in _HAS_LOOKED:
            tell(Idle(run=run))
        for said in running.recentProgress:
            at = (said.timestamp, said.batchId)
            if at > told:
                told = at
                tell(progress_of(run, streams, said))


def progress_of(run: int, streams: Sequence[str], said: Any) -> Progress:
    """said: Spark's StreamingQueryProgress."""
    metrics = {
        name: (row["bad"], row["sample"] or "")
        for name, row in ((name, _row(row)) for name, row in (said.observedMetrics or {}).items())
        if "bad" in row
    }
    bad, sample = bad_records(metrics, streams)
    return Progress(
        run=run,
        batch=said.batchId,
        input_rows=max(0, said.numInputRows),
        seconds=said.batchDuration / 1000,
        bad=bad,
        bad_sample=sample,
        state_rows=sum(one.numRowsTotal for one in said.stateOperators),
        state_bytes=sum(one.memoryUsedBytes for one in said.stateOperators),
        late=sum(one.numRowsDroppedByWatermark for one in said.stateOperators),
        behind=behind_newest(one.metrics or {} for one in said.sources),
        phases={name: ms / 1000 for name, ms in (said.durationMs or {}).items()},
        watermark=watermark_ms((said.eventTime or {}).get("watermark")),
    )


def _row(row: Any) -> Any:
    """What was observed, by name. Over Connect a row comes as its values and its schema."""
    if "schema" not in row:
        return row
    return dict(zip((one["name"] for one in row["schema"]["fields"]), row["values"], strict=True))


def bad_records(metrics: Mapping[str, tuple[int, str]], streams: Sequence[str]) -> tuple[int, str]:
    """How many records of a batch were bad, over all inputs, and one of them with its place."""
    total, shown = 0, ""
    for name in streams:
        count, sample = metrics.get(observed(name), (0, ""))
        total += count
        if count and not shown:
            shown = f"input {name}, {sample}"
    return total, shown


def behind_newest(metrics: Iterable[Mapping[str, str]]) -> int | None:
    """The most that a partition of any input is behind its newest record; None where none says so."""
    return max((int(one[_BEHIND]) for one in metrics if _BEHIND in one), default=None)


def watermark_ms(text: str | None) -> int | None:
    """A watermark as Spark writes it, in ms since the epoch; None where there is none yet (1970)."""
    if not text:
        return None
    moment = round(datetime.fromisoformat(text.replace("Z", "+00:00")).timestamp() * 1000)
    return moment or None
