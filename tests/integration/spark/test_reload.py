"""Queries that a reload adds, alters and removes, in real Spark; and what a gateway leaves that is killed."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import trio
import yaml

from kiwi_demo.broker import Broker
from tests.edge.admin import Samples, fetch, scrape, value
from tests.integration.client import client
from tests.integration.gateway import GatewayProcess, gateway, kafka_config
from tests.integration.spark.held_gateway import in_group
from tests.integration.spark.late_flights import patience, small
from tests.topics import Record, Topics

pytestmark = [pytest.mark.integration, pytest.mark.extended, pytest.mark.timeout(600)]

REFUSED = "configuration refused; the old one stays"
COUNT = "SELECT carrier, count(*) AS n FROM flights GROUP BY carrier"


def flights(first: int, count: int) -> list[Record]:
    return [
        Record(json.dumps({"carrier": "AA" if n % 4 else "UA", "n": n}).encode())
        for n in range(first, first + count)
    ]


def query(topic: str, source_id: str, sql: str, **keys: Any) -> dict[str, Any]:
    item = {"source": topic, "schema": "carrier STRING, n INT", "start": "earliest"}
    trigger = {"processing_time": "200 ms"}
    return {
        "type": "spark",
        "id": source_id,
        "inputs": {"flights": item},
        "sql": sql,
        "trigger": trigger,
    } | keys


def config(
    broker: Broker, topic: str, folder: Path, *queries: dict[str, Any], **spark: Any
) -> dict[str, Any]:
    return kafka_config(
        broker.bootstrap,
        topic,
        spark={
            "master": "local[2]",
            "checkpoint_dir": str(folder / "state"),
            "conf": small(),
            "nice": 0,
            **spark,
        },
        server={
            "address": "127.0.0.1:0",
            "admin_address": "127.0.0.1:0",
            "limits": {"ping_interval_ms": "580s", "dead_after_ms": "590s"},
        },
        subscriber={"subscribe_timeout_ms": "140s"},
        sources=[{"type": "kafka", "topic": topic}, *queries],
    )


class _Blocks(yaml.SafeDumper):
    """Texts of several lines as blocks, as people write SQL."""


def _block(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    style = "|" if "\n" in text else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Blocks.add_representer(str, _block)


def write(running: GatewayProcess, found: dict[str, Any]) -> None:
    fresh = running.config.with_suffix(".new")
    fresh.write_text(yaml.dump(found, Dumper=_Blocks))
    fresh.replace(running.config)


async def values(running: GatewayProcess, source_id: str, until: Callable[[list[Any]], bool]) -> list[Any]:
    """What a new client gets of a source from its earliest event on."""
    async with client(running.address, source_id) as reader:
        with patience(running):
            await reader.subscribe(**{"from": "earliest"})
            while not until([result["value"] for result in reader.results]):
                await reader.events(1)
    return [result["value"] for result in reader.results]


def _has_read(measured: Samples, rows: int, *sources: str) -> bool:
    name = "kiwigw_spark_input_rows_total"
    return all(measured.get((name, (("source", one),)), 0) >= rows for one in sources)


def newest(rows: list[Any]) -> dict[str, int]:
    return {row["carrier"]: row["n"] for row in rows}


@pytest.mark.parametrize(
    "trigger",
    [{"processing_time": "200 ms"}, {"real_time": True, "checkpoint_interval": "5s"}],
    ids=["batches", "real time"],
)
async def test_queries_come_change_and_go(
    trigger: dict[str, Any],
    broker: Broker,
    topics: Topics,
    new_topic: Callable[[], str],
    tmp_path: Path,
    temporary: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    topic = await topics.create(new_topic())
    await topics.produce(topic, flights(0, 100))
    whole = query(topic, "all", "SELECT n FROM flights", trigger=trigger)
    counts = query(topic, "counts", COUNT, output_mode="update")
    first = config(broker, topic, tmp_path, whole, counts)
    env = {"TMPDIR": str(temporary)}
    monkeypatch.chdir(tmp_path)
    async with gateway(tmp_path, first, env=env, killed=True, expected_errors={REFUSED}) as running:
        found = await values(running, "all", lambda rows: len(rows) >= 100)
        assert [row["n"] for row in found] == list(range(100))
        await values(running, "counts", lambda rows: newest(rows) == {"AA": 75, "UA": 25})

        admin = (await running.logged("gateway listens"))["admin"]
        with patience(running):  # rows are there before their batch is over
            while not _has_read(measured := await scrape(admin), 100, "all", "counts"):
                await trio.lowlevel.checkpoint()
        assert value(measured, "spark_query_up", source="counts") == 1
        assert value(measured, "spark_state_rows", source="counts") == 2
        assert value(measured, "spark_input_rows_total", source="all") == 100
        assert value(measured, "spark_batch_duration_seconds_count", source="all") >= 1
        details = {one["id"]: one["details"] for one in (await fetch(admin, "/sources"))["sources"]}
        assert (details["all"]["driver"], details["all"]["query"]) == ("ready", "running")

        # What Spark refuses leaves the query that works, and the log has the line.
        wrong = {"sql": "SELECT n,\n  nope\nFROM flights\n"}
        other = {"inputs": {"flights": whole["inputs"]["flights"] | {"schema": "carrier STRING"}}}
        nowhere = {key: item for key, item in whole.items() if key != "sql"} | {"transform": "nowhere:f"}
        for refused, line in ((whole | wrong, "nope"), (whole | other, "sql:"), (nowhere, "transform:")):
            write(running, config(broker, topic, tmp_path, refused, counts))
            count = len([line for line in running.log if line["event"] == REFUSED]) + 1
            with patience(running):
                said = await running.logged(REFUSED, count=count)
            number = 1 + next(
                n for n, text in enumerate(running.config.read_text().splitlines()) if line in text
            )
            assert f"kiwi-gw.yml:{number}: sources[1]." in said["problem"]
            now = {one["id"]: one for one in (await fetch(admin, "/sources"))["sources"]}
            assert now["all"]["state"] == "running"
            assert now["all"]["reloadRefused"] == said["problem"]
            assert now["counts"]["reloadRefused"] is None

        # The SQL of both is altered, and in the same reload what makes another driver necessary.
        whole["sql"] = "SELECT n, n % 2 AS odd FROM flights"
        counts["sql"] = f"{COUNT} HAVING carrier = 'UA'"
        write(running, config(broker, topic, tmp_path, whole, counts, stage_bytes=1 << 20))
        with patience(running):
            kept = await running.logged("query starts", source="all")
            afresh = await running.logged("query starts", source="counts")
        assert "sql changed; the checkpoint" in kept["note"]
        assert "is kept: it has no state" in kept["note"]
        assert "cannot be kept" in afresh["note"]
        assert "it begins afresh in " in afresh["note"]
        assert "counts/1; flights is read again from its `start`; what was counted" in afresh["note"]
        await topics.produce(topic, flights(100, 100))
        found = await values(running, "all", lambda rows: len(rows) >= 100)
        assert found == [{"n": n, "odd": n % 2} for n in range(100, 200)]
        await values(running, "counts", lambda rows: newest(rows) == {"UA": 50})
        assert {"0", "1"} <= set(os.listdir(tmp_path / "state" / "counts"))

        # One goes, one comes, the third stays as it is.
        more = query(topic, "more", "SELECT n FROM flights WHERE n >= 190")
        write(running, config(broker, topic, tmp_path, whole, more, stage_bytes=1 << 20))
        await running.logged("configuration applied", count=2)
        found = await values(running, "more", lambda rows: len(rows) >= 10)
        assert [row["n"] for row in found] == list(range(190, 200))
        ready = [line for line in running.log if line["event"] == "spark driver is ready"]
        assert len(ready) == 2, "the second reload needs no other driver"
        assert len([line for line in running.log if line["event"] == "query starts"]) == 2

        assert sorted(os.listdir(tmp_path)) == ["gateway.log", "kiwi-gw.yml", "state"], (
            "Spark leaves nothing where the gateway was started"
        )
        os.kill(running.pid, signal.SIGKILL)
        with trio.fail_after(30):
            while in_group(ready[-1]["pid"]) or os.listdir(temporary):  # noqa: ASYNC110  nothing tells
                await trio.sleep(0.05)
