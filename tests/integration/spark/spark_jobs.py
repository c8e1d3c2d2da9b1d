"""Read what Spark itself says of the jobs of a gateway's driver, in its log of events."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import trio

from tests.integration.spark.late_flights import small


@dataclass(frozen=True)
class Job:
    """begins, ends: seconds since 1970; the end of one that runs is infinite."""

    begins: float
    ends: float


class SparkJobs:
    """folder: for the log; it is made. conf: the configuration of a Spark that writes it."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        self._folder = folder
        self.conf = {
            **small(),
            "spark.eventLog.enabled": "true",
            "spark.eventLog.dir": folder.as_uri(),
            "spark.eventLog.compress": "false",
            "spark.eventLog.rolling.enabled": "false",
        }

    def by_query(self) -> Mapping[str, Sequence[Job]]:
        """Return the jobs so far, by the query that they are of."""
        begun: dict[int, tuple[str, float]] = {}
        ended: dict[int, float] = {}
        for event in self._events():
            if event["Event"] == "SparkListenerJobStart":
                group = event["Properties"]["spark.jobGroup.id"]
                begun[event["Job ID"]] = group, event["Submission Time"] / 1000
            elif event["Event"] == "SparkListenerJobEnd":
                ended[event["Job ID"]] = event["Completion Time"] / 1000
        found: dict[str, list[Job]] = {}
        for number, (group, begins) in begun.items():
            found.setdefault(group, []).append(Job(begins, ended.get(number, math.inf)))
        return found

    async def until_running(self, count: int) -> None:
        """Return when so many queries have a job that runs."""
        while self._running() != count:  # noqa: ASYNC110  (a file tells nobody)
            await trio.sleep(0.02)

    def _running(self) -> int:
        return sum(any(job.ends == math.inf for job in jobs) for jobs in self.by_query().values())

    def _events(self) -> Sequence[Any]:
        (file,) = self._folder.iterdir()
        *lines, _ = file.read_text().split("\n")  # what is behind the last line is not all there yet
        return [json.loads(line) for line in lines if '"SparkListenerJob' in line[:40]]
