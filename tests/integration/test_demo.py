"""`kiwi-gw demo`, as a user runs it: the broker, the flights, the gateway, both ways to subscribe, Spark."""

from __future__ import annotations

import fcntl
import itertools
import math
import os
import re
import signal
import struct
import subprocess
import sys
import termios
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import pytest
import trio
import yaml

from kiwi_demo.broker import Broker
from kiwi_demo.flights import Flight
from kiwi_demo.gateway import demo_config, without_spark
from kiwi_demo.loopback import HOST, answers
from kiwi_demo.producer import replay
from tests.integration.gateway import gateway
from tests.integration.spark.no_java import environment_without_java
from tests.integration.test_lenses import answer, in_python, records, request, select
from tests.integration.test_lenses_sql import executed
from tests.topics import Record, Topics

pytestmark = [pytest.mark.integration, pytest.mark.extended]

COMMAND = [sys.executable, "-m", "kiwi_gw", "demo", "--port", "0", "--kafka-port", "0", "--speed", "3600"]

TABLE = re.compile(
    r"^delays-by-carrier, 2013-01-\d\d \d\d:00: the longest of \d+ carriers\n"
    r"  \w[\w. ]+ +\d+ flights? due until \d\d:00, [+-]\d+\.\d min on average\n",
    re.MULTILINE,
)
LATE = re.compile(
    r"^  late  \w\w \d+ +\w{3} to \w{3}, due 2013-\S+Z, left \+\d+ min +\(partition \d, offset \d+\)\n",
    re.MULTILINE,
)


@asynccontextmanager
async def demo(*options: str, env: dict[str, str] | None = None) -> AsyncIterator[trio.Process]:
    """The demo's process with its output as a stream; it has ended by the end of the block."""
    run = partial(trio.run_process, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False, env=env)
    async with trio.open_nursery() as nursery:
        yield await nursery.start(run, [*COMMAND, *options])


async def test_it_ends_by_itself_with_a_summary() -> None:
    async with demo("--seconds", "3") as process:
        assert process.stdout is not None
        said = "".join([chunk.decode() async for chunk in process.stdout])
    assert process.returncode == 0, said
    assert re.search(r"^  push  \w\w \d+ +\w{3} to \w{3}, due 2013-01-01T1\d:\d\d:00Z", said, re.MULTILINE), (
        said
    )
    assert re.search(r"^  pull  \w\w \d+ +\w{3} to \w{3}, due 2013-01-01T1\d:\d\d:00Z", said, re.MULTILINE), (
        said
    )
    produced = int(re.findall(r"^  (\d+) flights were produced$", said, re.MULTILINE)[0])
    assert produced >= 50, "an hour of flights a second"
    for client in ("push", "slow, drop_oldest", "slow, replay"):
        assert re.search(rf"^  {client} +{produced} +0 +0 +0 +0$", said, re.MULTILINE), said
    pulled = re.search(r"^  pull +(\d+) +0 +0 +0 +(\d+)$", said, re.MULTILINE)
    assert pulled, said
    assert sum(map(int, pulled.groups())) == produced
    assert 2 <= int(pulled[1]) <= 45, "five a second, until all others have caught up"
    assert said.rstrip().rpartition("\n  delays-by-carrier ")[0].endswith("was announced, to the flight"), (
        said
    )


async def test_its_story_is_told_to_the_end_without_spark() -> None:
    """One is told what it has missed, none misses anything else, and a restart costs nothing."""
    async with demo("--no-spark", "--speed", "1800", "--seconds", "34") as process:
        assert process.stdout is not None
        said = "".join([chunk.decode() async for chunk in process.stdout])
    assert process.returncode == 0, said
    stalled = said.index("both slow clients stop reading")
    lag = re.search(
        r"^  slow, drop_oldest  LAG: (\d+) events given up, offsets \d+ to \d+ of", said, re.MULTILINE
    )
    assert lag, said
    assert stalled < lag.start() < said.index("the gateway is restarted under its clients")
    assert said.index("the gateway is there again") < said.index(
        "  push  connected again; goes on where it was"
    )
    produced = int(re.findall(r"^  (\d+) flights were produced$", said, re.MULTILINE)[0])
    for client in ("push", "slow, replay"):
        assert re.search(rf"^  {client} +{produced} +0 +0 +0 +0$", said, re.MULTILINE), said
    row = re.search(r"^  slow, drop_oldest +(\d+) +(\d+) +(\d+) +0 +0$", said, re.MULTILINE)
    assert row, said
    received, missed, announced = map(int, row.groups())
    assert int(lag[1]) <= missed == announced
    assert received + missed == produced
    assert said.endswith("was announced, to the flight\n"), said


async def test_in_a_terminal_it_is_a_picture_with_keys() -> None:
    ours, its = os.openpty()
    fcntl.ioctl(its, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 120, 0, 0))
    before = termios.tcgetattr(its)
    said = b""
    presses = [
        (b"received", b"s"),
        (b"stalled", b"r"),
        (b"slow clients read again", b"b"),
        (b"the broker is there again", b"q"),
    ]
    run = partial(trio.run_process, stdin=its, stdout=its, stderr=its, env={**os.environ, "TERM": "xterm"})
    try:
        async with trio.open_nursery() as nursery:
            process = await nursery.start(run, [*COMMAND, "--no-spark"])
            while process.poll() is None:
                with trio.move_on_after(0.2):
                    await trio.lowlevel.wait_readable(ours)
                    said += os.read(ours, 65_536)
                if presses and presses[0][0] in said:
                    os.write(ours, presses.pop(0)[1])
        assert termios.tcgetattr(its) == before, "the terminal is as it was"
    finally:
        os.close(its)
        os.close(ours)
    assert presses == []
    assert b"what happens" in said
    assert b"flights were produced" in said.rpartition(b"\x1b[?1049l")[2], (
        "the picture is gone, the account stays"
    )


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
async def test_a_signal_ends_all_of_it_in_order(number: signal.Signals) -> None:
    said = ""
    async with demo() as process:
        assert process.stdout is not None
        async for chunk in process.stdout:
            said += chunk.decode()
            if "and so on" in said and process.returncode is None:
                process.send_signal(number)
                break
        async for chunk in process.stdout:
            said += chunk.decode()
    assert process.returncode == 0, said
    assert "s after the first event:" in said
    ports = [int(port) for port in re.findall(rf"{re.escape(HOST)}:(\d+)", said)]
    assert len(set(ports)) == 3
    for port in set(ports):
        with pytest.raises(OSError, match="all attempts to connect"):
            await trio.open_tcp_stream(HOST, port)
        assert not await answers(HOST, port)


@pytest.mark.timeout(600)
async def test_it_shows_what_spark_makes_of_the_flights_also_where_no_java_is_installed(
    tmp_path: Path,
) -> None:
    said = ""
    async with demo(env=environment_without_java(tmp_path / "bin")) as process:
        assert process.stdout is not None
        async for chunk in process.stdout:
            said += chunk.decode()
            if process.returncode is None and TABLE.search(said) and LATE.search(said):
                process.send_signal(signal.SIGINT)
                break
        async for chunk in process.stdout:
            said += chunk.decode()
    assert process.returncode == 0, said
    assert said.index("Spark is starting") < said.index("Spark is there; its first results")
    assert said.index("due 2013-01-01T10:15:00Z") < said.index("Spark is there"), "flights do not wait for it"
    assert re.search(r"^  delays-by-carrier \d+ results, with 0 LAG notices$", said, re.MULTILINE), said
    late = r"^  late-flights      \d+ results, with 0 LAG notices, the newest came \d+ ms after their flights"
    assert re.search(late, said, re.MULTILINE), said


async def test_what_was_counted_was_sent_also_when_the_replay_is_cut_off(
    topics: Topics, broker: Broker, new_topic: Callable[[], str]
) -> None:
    name = await topics.create(new_topic(), partitions=4)
    flights = (Flight("UA", 60.0 * number, {"flight": number}) for number in itertools.count())
    counted = 0

    with trio.CancelScope() as scope:

        def count(more: int) -> None:
            nonlocal counted
            counted += more
            if counted == 2500:
                scope.cancel()

        await replay(broker.bootstrap, name, flights, speed=math.inf, on_produced=count)
    assert scope.cancelled_caught
    assert counted >= 2500
    assert sum((await topics.end_offsets(name)).values()) == counted


async def test_a_gateway_that_cannot_start_is_shown_with_its_log(tmp_path: Path) -> None:
    broken = tmp_path / "broken.yml"
    broken.write_text("sources: 3\n")
    script = f"""
import trio
from pathlib import Path
from kiwi_demo import gateway
gateway.demo_config = lambda: Path({str(broken)!r})
async def main():
    folder = Path({str(tmp_path)!r})
    async with gateway.Gateway(gateway.demo_config(), "127.0.0.1:1", 1, folder):
        pass
trio.run(main)
"""
    ended = await trio.run_process([sys.executable, "-c", script], capture_stderr=True, check=False)
    assert ended.returncode == 1
    assert b"the gateway ended with code 78" in ended.stderr
    assert b"broken.yml:1: sources: must be a list" in ended.stderr


async def test_its_configuration_serves_both_protocols_of_lenses_and_only_to_read(
    topics: Topics, broker: Broker, new_topic: Callable[[], str], tmp_path: Path
) -> None:
    """Whoever it is: any LOGIN will do, and SQL v2 asks for none."""
    name = await topics.create(new_topic(), partitions=2)
    await topics.produce(name, [Record(b'{"carrier":"UA"}', partition=n % 2) for n in range(10)])
    settings = yaml.safe_load(without_spark(demo_config(), tmp_path).read_text())
    settings["sources"][0] |= {"id": "flights", "topic": name}
    unsaid = "the configuration does not say"
    ports = {"KIWI_DEMO_BOOTSTRAP": broker.bootstrap, "KIWI_DEMO_PORT": "0", "KIWI_DEMO_ADMIN_PORT": "0"}
    async with gateway(tmp_path, yaml.safe_dump(settings), env=ports) as running:
        async with in_python(running.address, "page") as page:
            assert await answer(page, "LOGIN", 0, {"user": "anyone", "password": ""}) == "anonymous"
            await answer(page, "SUBSCRIBE", 1, select("flights", "WHERE _meta.offset >= 0"))
            assert {each["value"] for each in await records(page, 10)} == {'{"carrier":"UA"}'}
            await page.send(request("PUBLISH", 2, {"topic": "flights", "value": "x"}))
            heard = await page.hear()
            assert (heard["type"], heard["content"]) == ("ERROR", f"{unsaid} `publish: true`")
            done = {"topic": "flights", "partition": 0, "offset": 0}
            await page.send(request("COMMIT", 3, {"commits": [done]}))
            heard = await page.hear()
            assert (heard["type"], heard["content"]) == ("ERROR", f"flights: {unsaid} `commit: true`")
            assert await answer(page, "UNSUBSCRIBE", 4, {"topics": ["flights"]}) == "flights"
        said = await executed(running.address, "SELECT * FROM flights")
        assert [each["data"]["value"] for each in said[1:]] == [{"carrier": "UA"}] * 10
    assert sum((await topics.end_offsets(name)).values()) == 10
