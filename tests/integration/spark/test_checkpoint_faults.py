"""Checkpoints that are another's, and those that cannot be written: what a gateway says when it starts.

A first gateway has made the checkpoints; the second one finds them.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import trio

from kiwi_demo.broker import Broker
from tests.integration.client import client
from tests.integration.gateway import kafka_config
from tests.integration.spark.held_gateway import (
    WITHIN_TESTS,
    HeldGateway,
    exactly,
    failed,
    numbers,
    query,
    spark_section,
    values,
)
from tests.topics import Topics

pytestmark = [pytest.mark.integration, pytest.mark.extended, pytest.mark.timeout(600)]

TOPIC, FILLED = "test-checkpoint-faults", "test-checkpoint-faults-filled"

OWN_MOUNTS = ("unshare", "--user", "--map-root-user", "--mount")
ON_A_SMALL_DISK = (*OWN_MOUNTS, "sh", "-c", 'mount -t tmpfs -o size=64k none "$0" && exec "$@"')
"""Before the folder that is to be one, and a command. It holds three batches of a query without state."""


@dataclass(frozen=True, slots=True)
class Setup:
    """small: why there is no small disk; empty if there is."""

    gateway: HeldGateway
    topics: Topics
    folder: Path
    small: str


def configuration(bootstrap: str, folder: Path, *, changed: str, second: bool) -> dict[str, object]:
    queries = [query(name, TOPIC) for name in ("fine", "older", "spoiled")]
    queries.append(query("changed", TOPIC, more={"sql": changed}))
    queries.append(query("anew", TOPIC, more={"on_other_checkpoint": "new"}))
    if second:
        queries += [query("no-folder", TOPIC), query("full", FILLED)]
    return kafka_config(
        bootstrap,
        "",
        **WITHIN_TESTS,
        spark=spark_section(folder, max_restarts=2),
        sources=[*({"type": "kafka", "topic": topic} for topic in (TOPIC, FILLED)), *queries],
    )


async def first_gateway(bootstrap: str, folder: Path) -> None:
    """Runs until all of its queries have had 20 records, and their checkpoints know it."""
    config = configuration(bootstrap, folder, changed="SELECT a FROM flights", second=False)
    gateway = HeldGateway(folder, config)
    await trio.to_thread.run_sync(gateway.start)
    try:
        for name in ("fine", "older", "spoiled", "changed", "anew"):
            async with client(gateway.address, name) as reader:
                with gateway.patience():
                    await reader.subscribe(**{"from": "earliest"})
                    await reader.have(20)
                    while not settled(folder / "state" / name / "0"):  # noqa: ASYNC110  Spark tells nobody
                        await trio.sleep(0.05)
    finally:
        await trio.to_thread.run_sync(gateway.stop)


def settled(checkpoint: Path) -> bool:
    """Whether every batch that was begun is committed."""
    begun, done = ({one.name for one in (checkpoint / log).glob("[0-9]*")} for log in ("offsets", "commits"))
    return bool(begun) and begun == done


def of_another_spark(meta: Path) -> None:
    found = json.loads(meta.read_text())
    assert found["parts"]["Spark"] == "4.2"
    found["parts"]["Spark"] = "4.0"
    meta.write_text(json.dumps(found))
    (meta.parent / f".{meta.name}.crc").unlink()  # Hadoop's, of what the file was


@pytest.fixture(scope="module")
def stage(
    broker: Broker, request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Setup]:
    folder = tmp_path_factory.mktemp("checkpoints")
    topics = Topics(broker.bootstrap)

    async def prepare() -> None:
        for topic in (TOPIC, FILLED):
            await topics.create(topic)
        await topics.produce(TOPIC, numbers(0, 20))
        await first_gateway(broker.bootstrap, folder)

    trio.run(prepare)
    state = folder / "state"
    for name in ("older", "anew"):
        of_another_spark(state / name / "meta.json")
    (state / "spoiled" / "meta.json").write_text("{")
    (state / "no-folder").write_text("a file is where its folder should be")
    (state / "full").mkdir()
    small = "left out by --without-namespaces"
    if not request.config.getoption("without_namespaces"):
        tried = subprocess.run([*OWN_MOUNTS, "true"], capture_output=True, text=True, check=False)
        small = tried.stderr.strip()
    gateway = HeldGateway(
        folder,
        configuration(broker.bootstrap, folder, changed="SELECT a + 1 AS a FROM flights", second=True),
        expected_errors=("source failed",),
        within=() if small else (*ON_A_SMALL_DISK, str(state / "full")),
    )
    gateway.start()
    try:
        yield Setup(gateway, topics, folder, small)
    finally:
        gateway.stop()


async def test_one_of_another_query_is_refused(stage: Setup) -> None:
    place = stage.folder / "state" / "changed"
    what = f"the checkpoint {place}/0 is of another query: sql differ(s)"
    then = f"Restore what was changed; or begin afresh from `start`: remove {place}, or set"
    await failed(stage.gateway, "changed", what)
    await failed(stage.gateway, "changed", then)


async def test_one_of_another_spark_is_refused(stage: Setup) -> None:
    what = "is of another version of Spark: Spark differ(s) (it is of Spark 4.0, this is 4.2.0)"
    await failed(stage.gateway, "older", what)
    await failed(stage.gateway, "older", f"remove {stage.folder / 'state' / 'older'}")


async def test_one_that_is_spoiled_is_refused(stage: Setup) -> None:
    await failed(stage.gateway, "spoiled", str(stage.folder / "state" / "spoiled" / "meta.json"))
    await failed(stage.gateway, "spoiled", "to begin afresh")


async def test_a_new_one_is_begun_where_that_is_wanted(stage: Setup) -> None:
    async with client(stage.gateway.address, "anew") as reader:
        with stage.gateway.patience():
            await reader.subscribe(**{"from": "earliest"})
            await reader.have(20)
    assert exactly(values(reader), range(20))
    line = await stage.gateway.logged("query starts", source="anew")
    assert "cannot be kept (it is of another Spark): it begins afresh in" in line["note"]


async def test_one_that_cannot_be_written_fails_the_source(stage: Setup) -> None:
    await failed(stage.gateway, "no-folder", str(stage.folder / "state" / "no-folder"))
    assert not stage.gateway.lines("query has ended and is started again"), "trying again helps none of these"


async def test_no_room_for_one_fails_the_source(stage: Setup) -> None:
    if stage.small == "left out by --without-namespaces":
        pytest.skip(stage.small)
    assert not stage.small, (
        "this machine lets us make no mount namespaces, so there is no small disk to be filled; allow user "
        "namespaces, or leave this test out in so many words: --without-namespaces"
    )
    produced = 0
    async with client(stage.gateway.address, "full") as reader:
        with stage.gateway.patience():
            await reader.subscribe()
            while not reader.recording.closed:
                assert produced < 30, "the disk is not small"
                await stage.topics.produce(FILLED, numbers(produced, 1))
                produced += 1
                while reader.recording.events < produced and not reader.recording.closed:
                    assert await reader.read()
    closed = await reader.until_closed()
    assert closed["reason"] == "failed"
    assert "No space left on device" in closed["message"]
    found = values(reader)
    assert found == [*range(len(found))]
    assert len(found) >= 1
    await failed(stage.gateway, "full", "No space left on device")


async def test_the_others_go_on_where_they_were(stage: Setup) -> None:
    async with client(stage.gateway.address, "fine") as reader:
        with stage.gateway.patience():
            await reader.subscribe(**{"from": "earliest"})
            await stage.topics.produce(TOPIC, numbers(20, 20))
            await reader.have(20)
    assert exactly(values(reader), range(20, 40))
