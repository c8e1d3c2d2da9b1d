"""Makes a topic, and replays flights into it at a multiple of the time they really took."""

from __future__ import annotations

import asyncio
import math
import threading
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Coroutine, Iterator
from contextlib import aclosing, asynccontextmanager
from typing import Any, TypeVar

import trio
from aiokafka import AIOKafkaProducer
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.errors import for_code

from kiwi_demo.flights import Flight

T = TypeVar("T")

_MOST_AT_ONCE = 1000
_FLUSH_SECONDS = 3.0
_LEADERS_SECONDS = 20.0


async def create_topic(bootstrap: str, topic: str, partitions: int) -> None:
    """Make a topic; return when every partition has a leader. Raise aiokafka's errors."""
    async with _asyncio_thread() as run:
        await run(_create(bootstrap, topic, partitions))


@asynccontextmanager
async def _asyncio_thread() -> AsyncIterator[Callable[[Coroutine[Any, Any, T]], Awaitable[T]]]:
    """Open an asyncio loop in a thread of its own, and give what has coroutines run there."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, name="aiokafka", daemon=True)
    thread.start()

    async def run(work: Coroutine[Any, Any, T]) -> T:
        done = asyncio.run_coroutine_threadsafe(work, loop)
        try:
            return await trio.to_thread.run_sync(done.result, abandon_on_cancel=True)
        except trio.Cancelled:
            done.cancel()
            raise

    try:
        yield run
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


async def _create(bootstrap: str, topic: str, partitions: int) -> None:
    admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap)
    await admin.start()
    try:
        answer = await admin.create_topics([NewTopic(topic, partitions, 1)])
        for name, code, *message in answer.topic_errors:
            if code:
                raise for_code(code)(f"{name}: {message[0] if message else ''}")
        async with asyncio.timeout(_LEADERS_SECONDS):
            while True:
                (found,) = await admin.describe_topics([topic])
                leaders = [one["leader"] for one in found["partitions"]]
                if not found["error_code"] and len(leaders) == partitions and min(leaders) >= 0:
                    return
                await asyncio.sleep(0.05)
    finally:
        await admin.close()


async def replay(
    bootstrap: str,
    topic: str,
    flights: Iterator[Flight],
    *,
    speed: float,
    on_produced: Callable[[int], None] = lambda count: None,
) -> None:
    """Produce every flight when it is due; return when all are acknowledged.

    The first is due at once, the others after it as they were scheduled, divided by `speed`; infinite:
    no waiting. Late ones are caught up with. A flight without a schedule goes with the one before it.
    The key is the carrier, the timestamp the time of production. `on_produced` gets how many more were
    handed to the client; those are sent even if this is cancelled. Raises aiokafka's errors if the
    broker stays away.
    """
    if not speed > 0:
        raise ValueError(f"speed is a factor above 0, not {speed}")
    token = trio.lowlevel.current_trio_token()

    def count_in_trio(count: int) -> None:
        token.run_sync_soon(on_produced, count)

    async with _asyncio_thread() as run_there:
        producer = await run_there(_started(bootstrap))
        try:
            async with aclosing(due_runs(flights, speed)) as runs:
                async for run in runs:
                    await run_there(_send(producer, topic, run, count_in_trio))
        finally:
            with trio.move_on_after(_FLUSH_SECONDS, shield=True):  # what was handed over is still sent
                await run_there(producer.stop())


async def _started(bootstrap: str) -> AIOKafkaProducer:
    producer = AIOKafkaProducer(bootstrap_servers=bootstrap, linger_ms=5, enable_idempotence=True)
    await producer.start()
    return producer


async def _send(
    producer: AIOKafkaProducer, topic: str, flights: list[Flight], on_produced: Callable[[int], None]
) -> None:
    sent = []
    for flight in flights:
        sent.append(await producer.send(topic, key=flight.carrier.encode(), value=flight.value))
        on_produced(1)
    await asyncio.gather(*sent)


async def due_runs(flights: Iterator[Flight], speed: float) -> AsyncGenerator[list[Flight], None]:
    """Yield the flights in runs that are due together, each run when it is due."""
    first = next(flights, None)
    if first is None:
        return
    begun, zero = trio.current_time(), first.departure or 0.0
    waiting: Flight | None = first
    while waiting is not None:
        if waiting.departure is not None:
            await trio.sleep_until(begun + (waiting.departure - zero) / speed)
        reached = zero + (trio.current_time() - begun) * speed if speed < math.inf else math.inf
        run = [waiting]
        waiting = next(flights, None)
        while waiting is not None and len(run) < _MOST_AT_ONCE and (waiting.departure or 0.0) <= reached:
            run.append(waiting)
            waiting = next(flights, None)
        yield run
