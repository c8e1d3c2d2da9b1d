"""The command `kiwi-gw demo`: a broker, real flights replayed into it, a gateway, its clients, and Spark's
results.

Everything runs on loopback, in processes that end with this one. The broker's data and the logs lie in
a folder of this run, which is removed at its end.
"""

from __future__ import annotations

import math
import os
import shutil
import signal
from collections.abc import Callable, Iterator
from contextlib import AsyncExitStack
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

import trio
from aiokafka.errors import KafkaError

from kiwi_demo.broker import Broker, raise_when_ended
from kiwi_demo.flights import Flight, read_flights
from kiwi_demo.gateway import ended, running_gateway
from kiwi_demo.loopback import HOST, free_port
from kiwi_demo.process import Child
from kiwi_demo.producer import create_topic, replay
from kiwi_demo.results import DELAYS, LATE, Results
from kiwi_demo.viewer import Viewer
from kiwi_gw.client.address import Address, parse_address
from kiwi_gw.client.watch import WatchPlan
from kiwi_gw.errors import KiwiError
from kiwi_spark.java.classes import classes_jar
from kiwi_spark.java.connector import fetch_connector
from kiwi_spark.java.jar_set import default_cache

TOPIC = "flights"
PARTITIONS = 4
DEFAULT_PORT, ADMIN_PORT = 8000, 9464
SPEED = 600.0
"""Ten minutes of 2013 in a second: about ten flights."""
PULL_RATE = 2.0
_FIRST_EVENT_SECONDS = 30.0
_CATCH_UP_SECONDS = 2.0


class DemoFailed(KiwiError):  # noqa: N818  (it says what happened)
    """Report that the parts are there, but nothing arrived."""


@dataclass
class _Run:
    """Hold what one run of the demo counts."""

    say: Callable[[str], None]
    produced: int = 0
    started_at: float | None = None
    seconds: float = 0.0
    viewers: tuple[Viewer, ...] = ()
    results: Results | None = None

    def on_produced(self, count: int) -> None:
        self.produced += count

    def summary(self) -> list[str]:
        if self.started_at is None:
            return ["ended before the first event"]
        push, pull = self.viewers
        return [
            f"{self.seconds:.1f} s after the first event:",
            f"  produced      {self.produced} flights",
            f"  push received {push.received}, with {push.lags} LAG notices",
            f"  pull received {pull.received} ({PULL_RATE:g} a second), with {pull.lags} LAG notices",
            *(self.results.summary() if self.results else ()),
        ]


def _print(line: str) -> None:
    print(line, flush=True)


async def run_demo(
    seconds: float | None = None,
    speed: float | None = None,
    *,
    port: int = DEFAULT_PORT,
    kafka_port: int = 9092,
    say: Callable[[str], None] = _print,
) -> None:
    """Show it all until Ctrl-C or SIGTERM, or until `seconds` after the first event; then a summary.

    `speed` is the multiple of real time (default 600). A port that is taken is replaced by a free one.
    Raises `KiwiError` where a part does not work.
    """
    run = _Run(say)
    folder = default_cache() / "runs" / f"demo-{os.getpid()}"
    folder.mkdir(parents=True, exist_ok=True)
    try:
        with trio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
            async with trio.open_nursery() as nursery:

                async def leave() -> None:
                    async for _ in signals:
                        nursery.cancel_scope.cancel()

                nursery.start_soon(leave)
                await _show(run, folder, seconds, speed or SPEED, free_port(port), free_port(kafka_port))
                nursery.cancel_scope.cancel()
        for line in run.summary():
            say(line)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


async def _show(
    run: _Run, folder: Path, seconds: float | None, speed: float, port: int, kafka_port: int
) -> None:
    run.say("starting Kafka ...")
    async with AsyncExitStack() as stack:
        broker = Broker(folder / "kafka", port=kafka_port, report=run.say)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(stack.enter_async_context, broker)
            nursery.start_soon(_fetch_for_spark, run.say)
            flights = await trio.to_thread.run_sync(_opened)
        run.say(f"Kafka answers on {broker.bootstrap}")
        await create_topic(broker.bootstrap, TOPIC, PARTITIONS)
        log = folder / "gateway.log"
        run.say("starting the gateway ...")
        admin_port = free_port(ADMIN_PORT if port == DEFAULT_PORT else 0)
        gateway = await stack.enter_async_context(
            running_gateway(broker.bootstrap, port, log, folder / "state", admin_port)
        )
        address = parse_address(f"ws://{HOST}:{port}/")
        for line in _where(address, admin_port, broker):
            run.say(line)
        nursery = await stack.enter_async_context(trio.open_nursery())
        nursery.start_soon(raise_when_ended, broker)
        nursery.start_soon(_raise_when_ended, gateway, log)
        run.results = Results(address, run.say, log)
        await _watch_flights(run, run.results, address, broker.bootstrap, flights, seconds, speed)
        nursery.cancel_scope.cancel()


async def _watch_flights(
    run: _Run,
    results: Results,
    address: Address,
    bootstrap: str,
    flights: Iterator[Flight],
    seconds: float | None,
    speed: float,
) -> None:
    push = Viewer(address, WatchPlan(TOPIC, "push"), run.say)
    run.viewers = (push, Viewer(address, WatchPlan(TOPIC, "pull", rate=PULL_RATE), run.say))
    async with trio.open_nursery() as watching:
        for viewer in run.viewers:
            watching.start_soon(viewer.run)
        for viewer in run.viewers:
            await viewer.subscribed.wait()
        run.say(f"a push and a pull subscription ({PULL_RATE:g} a second); their first events:")
        watching.start_soon(results.run)
        async with trio.open_nursery() as producing:
            producing.start_soon(_replay_all, run, bootstrap, flights, speed)
            with trio.move_on_after(_FIRST_EVENT_SECONDS) as waiting:
                await push.first.wait()
            if waiting.cancelled_caught:
                raise DemoFailed(f"no event arrived in {_FIRST_EVENT_SECONDS:g} s")
            run.started_at = trio.current_time()
            try:
                await trio.sleep(math.inf if seconds is None else seconds)
            finally:
                run.seconds = trio.current_time() - run.started_at
            producing.cancel_scope.cancel()
        with trio.move_on_after(_CATCH_UP_SECONDS):  # what is on its way
            await push.received_at_least(run.produced)
        watching.cancel_scope.cancel()


async def _replay_all(run: _Run, bootstrap: str, flights: Iterator[Flight], speed: float) -> None:
    try:
        await replay(bootstrap, TOPIC, flights, speed=speed, on_produced=run.on_produced)
    except KafkaError as error:
        raise DemoFailed(f"the broker takes no more flights: {error}") from error
    run.say(f"the last of {run.produced} flights has left; everything stays up")


async def _raise_when_ended(gateway: Child, log: Path) -> None:
    await gateway.wait()
    raise ended(gateway, log)


async def _fetch_for_spark(say: Callable[[str], None]) -> None:
    """Fetch what Spark will need beside Kafka's start: later it would be waited for alone."""
    try:
        await fetch_connector(report=say)
        await classes_jar(report=say)
    except KiwiError as failure:
        say(f"Spark will not work: {failure}")


def _opened() -> Iterator[Flight]:
    """Open the flights and read the first one, which sorts them all (1.6 s)."""
    flights = read_flights()
    return chain([next(flights)], flights)


def _where(address: Address, admin_port: int, broker: Broker) -> list[str]:
    return [
        f"  gateway  {address}  (sources: flights, {DELAYS}, {LATE}, ticks)",
        f"  health   http://{address.authority}/health",
        f"  metrics  http://{HOST}:{admin_port}/metrics  (and /sources, /connections, /subscriptions)",
        f"  Kafka    {broker.bootstrap}  (topic {TOPIC}, {PARTITIONS} partitions)",
        f"  try      kiwi-gw tail {address} flights",
        "  Ctrl-C ends it all",
    ]
