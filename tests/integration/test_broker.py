"""The broker itself: it is real, keeps its data and its port, and leaves nothing behind."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
import trio

from kiwi_demo.broker import Broker, new_cluster_id
from kiwi_demo.loopback import HOST, BrokerError, Node, answers, free_ports
from kiwi_spark.java.home import java_home
from tests.plugins.spark.without_extras import WITHOUT_EXTRAS
from tests.topics import Record, Topics

pytestmark = pytest.mark.integration


async def test_it_keeps_what_is_produced(topics: Topics, new_topic: Callable[[], str]) -> None:
    name = await topics.create(new_topic(), partitions=4)
    placed = await topics.produce(name, [Record(b"%d" % n, key=b"k", partition=n % 4) for n in range(100)])
    assert placed == [(n % 4, n // 4) for n in range(100)]
    assert await topics.end_offsets(name) == dict.fromkeys(range(4), 25)


async def test_filling_is_even_and_complete(topics: Topics, new_topic: Callable[[], str]) -> None:
    name = await topics.create(new_topic(), partitions=4)
    await topics.fill(name, 50_001, partitions=4)
    assert await topics.end_offsets(name) == {0: 12_501, 1: 12_500, 2: 12_500, 3: 12_500}


@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd"])
async def test_it_takes_every_codec(topics: Topics, new_topic: Callable[[], str], codec: str) -> None:
    name = await topics.create(new_topic())
    assert await topics.produce(name, [Record(b"x" * 1000)] * 3, codec=codec) == [(0, 0), (0, 1), (0, 2)]


async def test_a_transaction_takes_an_offset_for_its_marker(
    topics: Topics, new_topic: Callable[[], str]
) -> None:
    name = await topics.create(new_topic())
    assert await topics.produce(name, [Record(b"a")], transactional_id=f"{name}-1") == [(0, 0)]
    await topics.produce(name, [Record(b"b")], transactional_id=f"{name}-2", abort=True)
    assert await topics.produce(name, [Record(b"c")]) == [(0, 4)]


async def test_topics_are_made_grown_and_removed(topics: Topics, new_topic: Callable[[], str]) -> None:
    name = new_topic()
    assert await topics.partitions(name) == 0
    assert await topics.partitions(name) == 0, "asking for a topic must not create it"
    await topics.create(name, partitions=2)
    await topics.grow(name, 5)
    assert await topics.partitions(name) == 5
    await topics.delete(name)
    assert await topics.partitions(name) == 0


@pytest.mark.extended
async def test_killed_and_restarted_it_has_its_port_and_its_data(own_broker: Broker) -> None:
    topics = Topics(own_broker.bootstrap)
    name = await topics.create("kept")
    await topics.produce(name, [Record(b"x")] * 10)
    port, first = own_broker.port, own_broker.pid
    await own_broker.kill()
    assert not own_broker.running
    assert not await answers(HOST, port)
    await own_broker.start()
    assert own_broker.port == port
    assert own_broker.running
    assert own_broker.pid != first
    assert await topics.end_offsets(name) == {0: 10}
    await own_broker.stop()
    await own_broker.start()
    assert await topics.end_offsets(name) == {0: 10}


@pytest.mark.extended
async def test_frozen_it_accepts_and_is_silent(own_broker: Broker) -> None:
    own_broker.freeze()
    assert not await answers(HOST, own_broker.port, within=0.5)
    own_broker.thaw()
    await own_broker.wait_ready(10)


@pytest.mark.extended
async def test_topics_appear_by_themselves_only_when_allowed(tmp_path: Path) -> None:
    async with Broker(tmp_path, auto_create=True) as broker:
        assert await Topics(broker.bootstrap).produce("made-by-producing", [Record(b"x")]) == [(0, 0)]


async def test_a_port_in_use_is_said_so(broker: Broker, tmp_path: Path) -> None:
    with pytest.raises(BrokerError, match=f"port {broker.port} on 127.0.0.1 cannot be used"):
        await Broker(tmp_path, port=broker.port).start()


async def test_settings_it_does_not_like_are_shown_with_its_log(tmp_path: Path) -> None:
    with pytest.raises(BrokerError, match="num\\.partitions"):
        await Broker(tmp_path, properties={"num.partitions": "many"}).start()


@pytest.mark.extended
async def test_three_nodes_make_a_cluster(tmp_path: Path) -> None:
    ports, cluster_id = free_ports(6), new_cluster_id()
    nodes = [Node(number + 1, *ports[2 * number : 2 * number + 2]) for number in range(3)]
    brokers = [
        Broker(
            tmp_path / str(node.id),
            node_id=node.id,
            cluster=nodes,
            cluster_id=cluster_id,
            heap="256m",
            java_options=("-XX:TieredStopAtLevel=1",),
        )
        for node in nodes
    ]
    try:
        async with trio.open_nursery() as nursery:
            for one in brokers:
                nursery.start_soon(one.start)
        topics = Topics(",".join(one.bootstrap for one in brokers))
        await topics.create("spread", partitions=3)
        placed = await topics.produce("spread", [Record(b"x", partition=n) for n in range(3)])
        assert placed == [(0, 0), (1, 0), (2, 0)]
    finally:
        for one in brokers:
            await one.kill()


@pytest.mark.extended
@pytest.mark.parametrize(
    ("keep", "start"),
    [
        (True, ["-m", "kiwi_gw"]),
        (False, ["-c", f"{WITHOUT_EXTRAS}from kiwi_gw.cli import main\nsys.exit(main())"]),
    ],
    ids=["kept", "without-extras"],
)
async def test_the_command_runs_one_until_it_is_told_to_end(
    tmp_path: Path, keep: bool, start: list[str]
) -> None:
    data = tmp_path / "data"
    command = [sys.executable, *start, "broker", "--port", "0", "--auto-create"]
    async with trio.open_nursery() as nursery:
        process = await nursery.start(
            partial(
                trio.run_process,
                [*command, *(["--data", str(data)] if keep else [])],
                stderr=subprocess.PIPE,
                env={**os.environ, "JAVA_HOME": str(java_home())},
                check=False,
            )
        )
        said = ""
        async for chunk in process.stderr:
            said += chunk.decode()
            if "Ctrl-C ends it" in said:
                break
        bootstrap, log = re.search(r"answers on (\S+) \(log: (.+)\);", said).groups()  # type: ignore[union-attr]
        assert await Topics(bootstrap).produce("made-by-producing", [Record(b"x")]) == [(0, 0)]
        process.send_signal(signal.SIGINT)
        assert await process.wait() == 0
        assert not await answers(HOST, int(bootstrap.split(":")[1]))
    assert await trio.Path(log).exists() == keep
    if keep:
        async with Broker(data) as broker:
            assert await Topics(broker.bootstrap).end_offsets("made-by-producing") == {0: 1}


_HOLD = """
import signal, sys, trio
from pathlib import Path
from kiwi_demo.broker import Broker
async def main():
    async with Broker(Path(sys.argv[1])) as broker:
        print(broker.pid, flush=True)
        await trio.sleep_forever()
# What a shell starts in the background is born deaf to SIGINT, and so are these tests then.
signal.signal(signal.SIGINT, signal.default_int_handler)
trio.run(main)
"""


@pytest.mark.extended
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT, signal.SIGTERM])
async def test_it_dies_with_its_owner(tmp_path: Path, number: signal.Signals) -> None:
    async with trio.open_nursery() as nursery:
        owner = await nursery.start(
            partial(
                trio.run_process,
                [sys.executable, "-c", _HOLD, str(tmp_path)],
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                check=False,
            )
        )
        pid = int(await owner.stdout.receive_some())
        owner.send_signal(number)
        await owner.wait()
        with trio.fail_after(5):
            while _lives(pid):  # noqa: ASYNC110  (not our child: nobody tells us)
                await trio.sleep(0.02)


def _lives(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True
