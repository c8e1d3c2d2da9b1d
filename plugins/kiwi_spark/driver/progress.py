"""Tells the gateway what Spark says of every micro-batch."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, Final

from pyspark.sql.streaming.listener import StreamingQueryProgress

from kiwi_spark.driver.bad_records import BadRecordCounter, Counted, added_up, observed
from kiwi_spark.protocol.messages import BatchProgress, Message, QueryIdle, QueryReads

Send = Callable[[Message], None]

_LOOK_SECONDS: Final = 1
_LOOK_MS: Final = 1_000 * _LOOK_SECONDS
_WRITES: Final = 2
_BEHIND: Final = "maxOffsetsBehindLatest"
_HAS_LOOKED: Final = ("Waiting for data to arrive", "Waiting for next trigger")
"""What a query's status is between two looks for input; not while it is being started, nor within one."""


def follow(
    running: Any,
    reports: Any,
    run: int,
    bad: Mapping[str, BadRecordCounter],
    send: Send,
    written: Callable[[], int] = lambda: 0,
) -> None:
    """Report every batch of a query until it is over. Raises what ended it.

    reports: a listener of its session (`QueryReports.java`). bad: what counts bad records, by input. written:
    as `TopicLink.progress`.
    """
    over, spark_run, known = False, str(running.runId), 0
    while not over:
        if (now := written()) > known:
            known = now
            send(QueryReads(run=run, writes=now == _WRITES))
        ended = not running.isActive
        said = str(reports.take(spark_run, _LOOK_MS))
        lines = said.split("\n") if said else []  # and no `splitlines`: a text in JSON may have U+2028
        for line in lines:
            if line == "idle":
                send(QueryIdle(run=run))
            elif line != "over":
                counted = added_up({name: counter.take() for name, counter in bad.items()})
                send(progress_of(run, StreamingQueryProgress.fromJson(json.loads(line)), counted))
        # Of its last batch Spark tells a moment after it has ended.
        over = "over" in lines or (ended and not lines)
    running.awaitTermination()


def follow_remote(running: Any, run: int, streams: Sequence[str], send: Send) -> None:
    """Report every batch of a query over Spark Connect, until it is over. Raises what ended it.

    The server is asked again and again: a listener there would have to be in a Python of its own.
    """
    newest = ("", -1)
    over = False
    while not over:
        over = running.awaitTermination(_LOOK_SECONDS)
        if not over and newest == ("", -1) and running.status["message"] in _HAS_LOOKED:
            send(QueryIdle(run=run))
        for said in running.recentProgress:
            at = (said.timestamp, said.batchId)
            if at > newest:
                newest = at
                send(progress_of(run, said, observed(said, streams)))


def progress_of(run: int, said: Any, bad: Counted) -> BatchProgress:
    """said: Spark's StreamingQueryProgress."""
    return BatchProgress(
        run=run,
        batch=said.batchId,
        input_rows=max(0, said.numInputRows),
        seconds=said.batchDuration / 1000,
        bad=bad[0],
        bad_sample=bad[1],
        bad_because=bad[2],
        state_rows=sum(one.numRowsTotal for one in said.stateOperators),
        state_bytes=sum(one.memoryUsedBytes for one in said.stateOperators),
        late=sum(one.numRowsDroppedByWatermark for one in said.stateOperators),
        behind=behind_newest(one.metrics or {} for one in said.sources),
        phases={name: ms / 1000 for name, ms in (said.durationMs or {}).items()},
        watermark=watermark_ms((said.eventTime or {}).get("watermark")),
    )


def behind_newest(metrics: Iterable[Mapping[str, str]]) -> int | None:
    """Return the most that a partition of any input is behind its newest record; None where unknown."""
    return max((int(one[_BEHIND]) for one in metrics if _BEHIND in one), default=None)


def watermark_ms(text: str | None) -> int | None:
    """Read a watermark as Spark writes it: ms since the epoch; None where there is none yet (1970)."""
    if not text:
        return None
    moment = round(datetime.fromisoformat(text.replace("Z", "+00:00")).timestamp() * 1000)
    return moment or None
