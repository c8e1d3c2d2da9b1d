"""The JVM of Spark, its driver or the gateway is killed (-9) again and again, while queries run in real time
and in micro-batches, and records come all the time: what clients were sent is held against what there was.

A gateway takes the results of micro-batches with it, unless they go through Kafka. So these have a `sink`
where it is the gateway that is killed; in real time a client goes on behind its last event.
"""

from __future__ import annotations

import enum
import os
import signal
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from random import Random
from typing import Any, Final

import trio

from tests.integration.gateway import GatewayProcess, gateway, kafka_config
from tests.integration.spark import numbered_records as made_of
from tests.integration.spark.exactness import COUNTED, Account, has_all, judge
from tests.integration.spark.following import Following
from tests.integration.spark.held_gateway import READY, WITHIN_TESTS, driver_of, java_of, query, spark_section
from tests.integration.spark.late_flights import patience
from tests.integration.spark.numbered_records import new_records, produced_all_the_time
from tests.topics import Topics

WHO: Final = ("java", "driver", "gateway")
PARTITIONS: Final = 2
MODES: Final[Mapping[str, Sequence[str]]] = {
    "real time": ("exploded",),
    "micro-batches": ("batches", "counted"),
}
"""The queries of each."""

_PAUSE: Final = 0.1
_REAL_TIME: Final = {"trigger": {"real_time": True, "checkpoint_interval": "5s"}}
_BATCHES: Final = {"trigger": {"processing_time": "200 ms"}}
_POLL: Final = 0.002


class Moment(enum.Enum):
    """When a kill comes. AT_ONCE: when Spark is ready, and queries start. ROWS: after so many rows.
    CHECKPOINT: when a query has just noted what it will do, or has done."""

    AT_ONCE = "at once"
    ROWS = "rows"
    CHECKPOINT = "checkpoint"


def moments(times: int, rng: Random) -> list[Moment]:
    """Choose one for each kill. Clients have come before the first; and after three drivers in a row that
    died at the start one query after the other would be suspected, and at last given up."""
    found = [Moment.ROWS]
    while len(found) < times:
        early = found[-2:] == [Moment.AT_ONCE] * 2
        found.append(rng.choice([one for one in Moment if not (early and one is Moment.AT_ONCE)]))
    return found


class Kills:
    """A gateway with three queries, or one after the other. who: one of WHO. topic: a new one, which they
    read."""

    def __init__(self, bootstrap: str, folder: Path, who: str, topic: str) -> None:
        self.accounts = {mode: Account() for mode in MODES}
        self._who, self._folder, self._topic = who, folder, topic
        self._topics = Topics(bootstrap)
        self._rng = Random(who)
        self._clients = {name: Following(name) for names in MODES.values() for name in names}
        self._killed = 0.0
        self._config = kafka_config(
            bootstrap,
            topic,
            **WITHIN_TESTS,
            spark=spark_section(folder, master="local[*]", restart_pause_ms=500),
            window={"events": 1_000_000},  # however slow this machine is: nobody is to fall out of it
            sources=[
                {"type": "kafka", "topic": topic},
                query("exploded", topic, more={"sql": made_of.EXPLODED, **_REAL_TIME}),
                self._in_batches("batches", sql=made_of.FILTERED, key=["p"]),
                self._in_batches("counted", sql=COUNTED, key=["k"], output_mode="update"),
            ],
        )

    def _in_batches(self, name: str, **more: object) -> Any:
        sink = {"sink": {"topic": f"{self._topic}-{name}"}} if self._who == "gateway" else {}
        return query(name, self._topic, more={**_BATCHES, **sink, **more})

    async def run(self, times: int) -> None:
        """Kill so many times, and fill in the accounts."""
        records = await new_records(self._topics, self._topic, PARTITIONS)
        if self._who == "gateway":
            for name in MODES["micro-batches"]:
                await self._topics.create(f"{self._topic}-{name}", PARTITIONS)
        kills = moments(times, self._rng)
        async with produced_all_the_time(records, pause=_PAUSE) as enough:

            async def finish() -> None:
                await enough()
                for one in self._clients.values():
                    await one.until(partial(has_all, one, records))

            while self._who == "gateway" and kills:
                await self._live([kills.pop(0)])
            await self._live(kills, finish)
        for mode, names in MODES.items():
            for name in names:
                judge(self._clients[name], records, self.accounts[mode])

    async def _live(
        self, kills: Sequence[Moment], finish: Callable[[], Awaitable[None]] | None = None
    ) -> None:
        """Start a gateway, kill what is to be killed, and go on to the end if it is to `finish`."""
        ends = finish is None
        async with (
            gateway(self._folder, self._config, killed=ends) as running,
            trio.open_nursery() as nursery,
        ):
            if not ends or kills != [Moment.AT_ONCE]:
                with patience(running):
                    for one in self._clients.values():
                        await nursery.start(one.run, running.address)
            for number, moment in enumerate(kills, start=1):
                with patience(running):
                    await self._ready(running, number)
                    await self._wait_for(moment)
                self._killed = trio.current_time()
                os.kill(self._victim(running), signal.SIGKILL)
            if finish is not None:
                with patience(running):
                    await self._ready(running, len(kills) + 1)
                    await self._all_go_on()
                    await finish()
                nursery.cancel_scope.cancel()

    async def _ready(self, running: GatewayProcess, count: int) -> None:
        """Wait until so many drivers were there. What clients have had came from those that are gone."""
        await running.logged(READY, count=count)
        if count > 1:
            for one in self._clients.values():
                one.mark()

    def _victim(self, running: GatewayProcess) -> int:
        if self._who == "gateway":
            return running.pid
        return java_of(running) if self._who == "java" else driver_of(running)

    async def _wait_for(self, moment: Moment) -> None:
        """Wait for a moment. But for AT_ONCE all queries have brought something before it."""
        if moment is Moment.AT_ONCE:
            return
        await self._all_go_on()
        if moment is Moment.ROWS:
            leading = self._clients["exploded"]
            until = leading.events + self._rng.randrange(1, 300)
            await leading.until(lambda: leading.events >= until)
        else:
            name, log = self._rng.choice([*self._clients]), self._rng.choice(["offsets", "commits"])
            await self._noted(name, log, self._newest(name, log))

    async def _all_go_on(self) -> None:
        """Wait until every query has brought something, and the next batch is done."""
        noted = {name: self._newest(name, "commits") for name in MODES["micro-batches"]}
        for mode, names in MODES.items():
            for one in (self._clients[name] for name in names):
                await one.until(lambda one=one: one.went_on is not None)  # type: ignore[misc]
            if self._killed:
                went_on = max(self._clients[name].went_on or 0.0 for name in names)
                self.accounts[mode].served.append(went_on - self._killed)
        for name, newest in noted.items():
            await self._noted(name, "commits", newest)

    async def _noted(self, name: str, log: str, newest: int) -> None:
        """Wait until a log in the checkpoint of a query has a newer entry."""
        while self._newest(name, log) <= newest:  # noqa: ASYNC110  (Spark tells nobody)
            await trio.sleep(_POLL)

    def _newest(self, name: str, log: str) -> int:
        entries = (self._folder / "state" / name / "0" / log).glob("[0-9]*")
        return max((int(one.name) for one in entries), default=-1)
