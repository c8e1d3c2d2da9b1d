"""The command `kiwi-gw demo`: a broker, flights replayed into it, a gateway, four clients of different speed,
and Spark's results.

Everything runs on loopback, in processes that end with this one. The broker's data and the logs lie in
a folder of this run, which is removed at its end. In a terminal it is a picture with keys, elsewhere lines.
"""

from __future__ import annotations

import logging
import math
import os
import shutil
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import AsyncExitStack
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Final

import trio
from aiokafka.errors import KafkaError

from kiwi_demo.broker import Broker
from kiwi_demo.flights import Flight, FlightsNotFound, made_up_flights, read_flights
from kiwi_demo.gateway import Gateway, demo_config, without_spark
from kiwi_demo.keys import keys, single_keys
from kiwi_demo.loopback import HOST, free_port
from kiwi_demo.producer import create_topic, replay
from kiwi_demo.results import DELAYS, LATE
from kiwi_demo.stage import TOPIC, Act, DemoFailed, Stage
from kiwi_gw.client.address import Address, parse_address
from kiwi_gw.errors import KiwiError
from kiwi_spark.java.classes import classes_jar
from kiwi_spark.java.connector import fetch_connector
from kiwi_spark.java.jar_set import default_cache

if TYPE_CHECKING:
    from kiwi_demo.screen import Screen

PARTITIONS: Final = 4
DEFAULT_PORT: Final = 8000
ADMIN_PORT: Final = 9464
SPEED: Final = 1800.0
"""Half an hour of 2013 in a second: about thirty flights."""
_FIRST_EVENT_SECONDS: Final = 30.0
_CATCH_UP_SECONDS: Final = 5.0
_NEARLY: Final = 20
"""A client to which so few flights are still to come is one that has caught up."""

_STORY: Final = ((4.0, Act.STALL), (14.0, Act.GO_ON), (6.0, Act.RESTART))
"""What happens by itself: seconds behind what was before, and what."""


@dataclass(frozen=True, slots=True)
class DemoPlan:
    """What is wanted. seconds: from the first event to the end; None: until it is ended. speed: how many
    times faster than it was. spark: whether its results are shown. A port that is taken is replaced by a free
    one."""

    seconds: float | None = None
    speed: float = SPEED
    port: int = DEFAULT_PORT
    kafka_port: int = 9092
    spark: bool = True


def _print(line: str) -> None:
    print(line, flush=True)


async def run_demo(plan: DemoPlan, say: Callable[[str], None] = _print) -> None:
    """Show it all until Ctrl-C or SIGTERM, the key `q`, or the plan's end; then what became of every flight.

    Raises `KiwiError` where a part does not work, or where the accounts of the clients do not add up.
    """
    show = _Show(plan, say)
    folder = default_cache() / "runs" / f"demo-{os.getpid()}"
    folder.mkdir(parents=True, exist_ok=True)
    try:
        with trio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
            async with trio.open_nursery() as nursery:

                async def leave() -> None:
                    async for _ in signals:
                        nursery.cancel_scope.cancel()

                nursery.start_soon(leave)
                await show.run(folder)
                nursery.cancel_scope.cancel()
        for line in show.summary():
            say(line)
        if show.stage is not None and (mistakes := show.stage.mistakes()):
            raise DemoFailed("; ".join(mistakes))
    finally:
        shutil.rmtree(folder, ignore_errors=True)


class _Show:
    """Hold one run of the demo."""

    def __init__(self, plan: DemoPlan, say: Callable[[str], None]) -> None:
        self.stage: Stage | None = None
        self._plan = plan
        self._say = say
        self._began: float | None = None
        self._seconds = 0.0
        self._over = trio.Event()
        self._story = trio.CancelScope()

    async def run(self, folder: Path) -> None:
        """Set the stage and play on it."""
        plan = self._plan
        self._say("starting Kafka ...")
        async with AsyncExitStack() as stack:
            broker = Broker(folder / "kafka", port=free_port(plan.kafka_port), report=self._say)
            async with trio.open_nursery() as nursery:
                nursery.start_soon(stack.enter_async_context, broker)
                if plan.spark:
                    nursery.start_soon(_fetch_for_spark, self._say)
                flights = await trio.to_thread.run_sync(self._opened)
            self._say(f"Kafka answers on {broker.bootstrap}")
            await create_topic(broker.bootstrap, TOPIC, PARTITIONS)
            self._say("starting the gateway ...")
            config = demo_config() if plan.spark else without_spark(demo_config(), folder)
            port = free_port(plan.port)
            admin_port = free_port(ADMIN_PORT if port == DEFAULT_PORT else 0)
            gateway = Gateway(config, broker.bootstrap, port, folder, admin_port)
            await stack.enter_async_context(gateway)
            address = parse_address(f"ws://{HOST}:{port}/")
            stage = self.stage = Stage(
                broker, gateway, address, self._say, spark=plan.spark, events=not _on_a_screen()
            )
            where = _where(address, admin_port, broker, spark=plan.spark)
            nursery = await stack.enter_async_context(trio.open_nursery())
            nursery.start_soon(stage.raise_when_ended)
            await self._play(stage, broker.bootstrap, flights, where)
            nursery.cancel_scope.cancel()

    def summary(self) -> list[str]:
        """Word what became of every flight."""
        if self.stage is None or self._began is None:
            return ["ended before the first event"]
        lines = [f"{self._seconds:.1f} s after the first event:", *self.stage.account()]
        if not self.stage.mistakes():
            lines.append("  nothing came twice, and whatever was missed was announced, to the flight")
        return [*lines, *(self.stage.results.summary() if self.stage.results else ())]

    async def _play(self, stage: Stage, bootstrap: str, flights: Iterator[Flight], where: list[str]) -> None:
        async with trio.open_nursery() as playing:
            for client in stage.clients:
                playing.start_soon(client.run)
            for client in stage.clients:
                await client.subscribed.wait()
            if stage.results is not None:
                playing.start_soon(stage.results.run)
            if _on_a_screen():
                playing.start_soon(self._on_screen, stage, where)
            else:
                for line in where:
                    self._say(line)
            async with trio.open_nursery() as acting:
                acting.start_soon(self._replay_all, stage, bootstrap, flights)
                await self._first_event(stage)
                acting.start_soon(self._tell, stage, acting)
                with trio.move_on_after(math.inf if self._plan.seconds is None else self._plan.seconds):
                    await self._over.wait()
                self._seconds = trio.current_time() - (self._began or 0.0)
                acting.cancel_scope.cancel()
            stage.all_read()
            with trio.move_on_after(_CATCH_UP_SECONDS):  # what is on its way
                await stage.caught_up(0)
            playing.cancel_scope.cancel()

    async def _first_event(self, stage: Stage) -> None:
        with trio.move_on_after(_FIRST_EVENT_SECONDS) as waiting:
            await stage.clients[0].first.wait()
        if waiting.cancelled_caught:
            raise DemoFailed(f"no event arrived in {_FIRST_EVENT_SECONDS:g} s")
        self._began = trio.current_time()

    async def _tell(self, stage: Stage, acting: trio.Nursery) -> None:
        """Do what the story says, until somebody presses a key."""
        with self._story:
            for seconds, act in _STORY:
                await trio.sleep(seconds)
                acting.start_soon(stage.act, act)  # which goes on to its end
                if act is Act.GO_ON:
                    await stage.caught_up(_NEARLY)

    async def _on_screen(self, stage: Stage, where: list[str]) -> None:
        from kiwi_demo.screen import Screen

        logging.getLogger("aiokafka").setLevel(logging.CRITICAL)  # it would write into the picture
        screen: Screen = Screen(stage, [where[0], where[-2]])
        stage.say = screen.story.append
        with single_keys():
            async with trio.open_nursery() as nursery:
                nursery.start_soon(screen.run)
                async for key in keys():
                    self._story.cancel()  # somebody else tells it now
                    if key == "q":
                        self._over.set()
                    elif key in {act.value for act in Act}:
                        nursery.start_soon(stage.act, Act(key))

    async def _replay_all(self, stage: Stage, bootstrap: str, flights: Iterator[Flight]) -> None:
        speed = self._plan.speed
        try:
            await replay(bootstrap, TOPIC, flights, speed=speed, on_produced=stage.on_produced)
        except KafkaError as error:
            raise DemoFailed(f"the broker takes no more flights: {error}") from error
        stage.say(f"the last of {stage.produced} flights has left; everything stays up")

    def _opened(self) -> Iterator[Flight]:
        """Open the flights and read the first one, which sorts them all (1.6 s)."""
        try:
            flights = read_flights()
            return chain([next(flights)], flights)
        except FlightsNotFound as error:
            if self._plan.spark:
                raise
            self._say(f"the flights are made up ({error})")
            return made_up_flights()


async def _fetch_for_spark(say: Callable[[str], None]) -> None:
    """Fetch what Spark will need beside Kafka's start: later it would be waited for alone."""
    try:
        await fetch_connector(report=say)
        await classes_jar(report=say)
    except KiwiError as failure:
        say(f"Spark will not work: {failure}")


def _on_a_screen() -> bool:
    """Return whether there is a terminal to draw on, and what draws."""
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        return False
    try:
        import rich  # noqa: F401
    except ModuleNotFoundError:
        return False
    return True


def _where(address: Address, admin_port: int, broker: Broker, *, spark: bool) -> list[str]:
    command = own_command()
    sources = f"flights, {DELAYS}, {LATE}, ticks" if spark else "flights, ticks"
    return [
        f"  gateway  {address}  (sources: {sources})",
        f"  health   http://{address.authority}/health",
        f"  metrics  http://{HOST}:{admin_port}/metrics  (and /sources, /connections, /subscriptions)",
        f"  Kafka    {broker.bootstrap}  (topic {TOPIC}, {PARTITIONS} partitions)",
        f"  try      {command} tail {address} flights",
        "  Ctrl-C ends it all",
    ]


def own_command() -> str:
    """Return how `kiwi-gw` is called from where the user stands."""
    script = Path(sys.executable).with_name("kiwi-gw")
    found = shutil.which("kiwi-gw")
    if found is not None and Path(found).resolve() == script.resolve():
        return "kiwi-gw"
    here = Path.cwd()
    return str(script.relative_to(here)) if script.is_relative_to(here) else str(script)
