"""A gateway with a source of type spark, on a fake driver: what its clients see."""

from __future__ import annotations

import json
import os
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, ClassVar

import pytest
import structlog
import trio
from trio_websocket import WebSocketConnection, open_websocket_url

import kiwi_kafka
from kiwi_gw.api import PluginContext, ServiceType, SourceType, hookimpl
from kiwi_gw.core.hub_limits import HubState
from kiwi_gw.testing import GatewayUnderTest, open_gateway
from kiwi_spark import plugin
from kiwi_spark.gateway import batches
from kiwi_spark.gateway.service import SparkService
from tests.edge.admin import fetch, scrape, value
from tests.plugins.spark.bench import fake_spark

pytestmark = pytest.mark.slow

SECONDS = 50


class FakePlugin:
    """The plugin with another driver. opened: the services that are open."""

    opened: ClassVar[list[SparkService]] = []

    @hookimpl
    def source_types(self) -> Sequence[SourceType]:
        return plugin.source_types()

    @hookimpl
    def config_sections(self) -> object:
        return plugin.config_sections()

    @hookimpl
    def services(self) -> Sequence[ServiceType]:
        @asynccontextmanager
        async def open_fake(context: PluginContext) -> AsyncIterator[SparkService]:
            async with fake_spark() as spark:
                FakePlugin.opened.append(spark)
                try:
                    yield spark
                finally:
                    FakePlugin.opened.remove(spark)

        return [ServiceType("spark", open_fake, sections=("spark",))]


def config(folder: Path, plan: object, *, stage_bytes: int = 1 << 20, **keys: Any) -> str:
    source = {
        "type": "spark",
        "id": "s",
        "inputs": {"a": {"source": "in"}},
        "sql": json.dumps(plan),
        **keys,
    }
    whole = {
        "plugins": ["spark", "kafka"],
        "kafka": {"bootstrap_servers": "127.0.0.1:1"},
        "spark": {"checkpoint_dir": str(folder), "stage_bytes": stage_bytes},
        "subscriber": {"subscribe_timeout_ms": "40s"},
        "sources": [{"type": "kafka", "id": "in", "topic": "in"}, source],
    }
    return json.dumps(whole)


async def say(client: WebSocketConnection, kind: str, **more: object) -> None:
    await client.send_message(json.dumps({"type": kind, "sourceId": "s", **more}))


async def hear(client: WebSocketConnection, kind: str) -> dict[str, Any]:
    while True:
        message: dict[str, Any] = json.loads(await client.get_message())
        if message["type"] == kind:
            return message


PLUGINS = {"spark": FakePlugin(), "kafka": kiwi_kafka}


@pytest.mark.usefixtures("short_pauses")
async def test_results(tmp_path: Path) -> None:
    text = config(tmp_path, {"batches": 2, "kill": [[0, "end"], [1, "within"]]})
    with trio.fail_after(SECONDS):
        async with (
            open_gateway(text, plugins=PLUGINS) as gateway,
            open_websocket_url(f"ws://{gateway.address}/") as client,
        ):
            await say(client, "SUBSCRIBE", mode="push", **{"from": "earliest"})
            found = [(await hear(client, "RESULT"))["data"] for _ in range(10)]
    assert [(event["batch"], event["row"]) for event in found] == [(b, r) for b in (0, 1) for r in range(5)]
    assert sorted(event["value"]["n"] for event in found) == list(range(10))
    assert {event["sourceType"] for event in found} == {"spark"}
    assert {event["key"]["k"] for event in found} == {0, 1, 2}


async def test_a_result_that_ends_is_served_to_who_comes_later(tmp_path: Path) -> None:
    """As long as the window holds it, and whoever had it before."""
    text = config(tmp_path, {"batches": 2, "over": 1}, trigger="available_now")
    with trio.fail_after(SECONDS):
        async with open_gateway(text, plugins=PLUGINS) as gateway:
            for _ in range(2):
                async with open_websocket_url(f"ws://{gateway.address}/") as client:
                    await say(client, "SUBSCRIBE", mode="push", **{"from": "earliest"})
                    found = [(await hear(client, "RESULT"))["data"] for _ in range(10)]
                    assert [(one["batch"], one["row"]) for one in found] == [
                        (b, r) for b in (0, 1) for r in range(5)
                    ]
                    closed = (await hear(client, "NOTICE"))["data"]
                    assert (closed["type"], closed["reason"]) == ("SUBSCRIPTION_CLOSED", "ended")
                hub = gateway.gateway.hub("s")
                assert hub is not None
                assert hub.state is HubState.ENDED


async def refusal(client: WebSocketConnection, **query: str) -> str:
    """Why a subscription with a query is refused; empty if it is not."""
    await say(client, "SUBSCRIBE", mode="pull", **query)
    while True:
        message: dict[str, Any] = json.loads(await client.get_message())
        if message["type"] == "SUBSCRIBE_ERROR":
            return str(message["data"]["error"])
        if message["type"] == "SUBSCRIBE_OK":
            await say(client, "UNSUBSCRIBE")
            await hear(client, "UNSUBSCRIBE_OK")
            return ""


async def test_a_query_for_a_member_that_the_results_do_not_have_is_refused(tmp_path: Path) -> None:
    """Also after a reload that makes other results; and not where it is not known what they have."""
    first = {"members": "`n` BIGINT, `at` STRUCT<`x y`: STRING>, `m` MAP<STRING, ARRAY<DOUBLE>>, `v` VARIANT"}
    with trio.fail_after(SECONDS):
        async with (
            open_gateway(config(tmp_path, first), plugins=PLUGINS) as gateway,
            open_websocket_url(f"ws://{gateway.address}/") as client,
        ):
            await _batches(gateway, 1)
            assert await refusal(client, where="value.n > 1 and value.at['x y'] = '1'") == ""
            assert await refusal(client, select="value.m.any[3], value.v.any.thing, partition") == ""
            assert await refusal(client, where="value.nn > 1") == (
                "where: value has no 'nn' (did you mean n?): it has n, at, m, v (at character 1)"
            )
            assert "select: value.at has no 'z': it has x y" in await refusal(client, select="value.at.z")
            where = "value.n > 1 or " * 60 + "value.nn > 1"
            assert "value has no 'nn'" in await refusal(client, where=where), "of a worker, too"
            for plan in ({"batches": 4, "members": "`nn` BIGINT"}, {"batches": 5}):
                gateway.file.write_text(config(tmp_path, plan))
                assert await gateway.reloader.reload()
                await _batches(gateway, 1)
                assert await refusal(client, where="value.nn > 1") == ""
                said = await refusal(client, where="value.n > 1")
                assert ("value has no 'n'" in said) == ("members" in plan)


async def test_a_query_that_is_wrong(tmp_path: Path) -> None:
    text = config(tmp_path, {"fail": ["query", "[TABLE_OR_VIEW_NOT_FOUND] b"]})
    with trio.fail_after(SECONDS):
        async with (
            open_gateway(text, plugins=PLUGINS) as gateway,
            open_websocket_url(f"ws://{gateway.address}/") as client,
        ):
            await say(client, "SUBSCRIBE", mode="push")
            error = await hear(client, "SUBSCRIBE_ERROR")
    assert "TABLE_OR_VIEW_NOT_FOUND" in json.dumps(error)


async def test_who_blocks_holds_spark(tmp_path: Path) -> None:
    """A pull subscription without credit, policy `block`: the batch that it has no room for is not done."""
    keys: dict[str, Any] = {
        "subscriber": {"overflow": "block", "buffer_capacity": 5, "block_timeout_ms": "45s"}
    }
    text = config(tmp_path, {"batches": 9, "part": 9}, **keys)
    state = trio.Path(tmp_path / "s.json")

    async def committed() -> int:
        found: int = json.loads(await state.read_text())["next"]
        return found

    with trio.fail_after(SECONDS):
        async with (
            open_gateway(text, plugins=PLUGINS) as gateway,
            open_websocket_url(f"ws://{gateway.address}/") as client,
        ):
            await say(client, "SUBSCRIBE", mode="pull", **{"from": "earliest"})
            await hear(client, "SUBSCRIBE_OK")
            hub = gateway.gateway.hub("s")
            assert hub is not None
            while not hub.held_by:  # noqa: ASYNC110  nothing tells
                await trio.sleep(0.01)
            held = await committed()
            await trio.sleep(0.3)  # for what should not come
            assert await committed() == held < 9
            await say(client, "REQUEST", n=45)
            found = [(await hear(client, "RESULT"))["data"]["value"]["n"] for _ in range(45)]
    assert sorted(found[-5:]) == list(range(40, 45))
    assert len(set(found)) == 45


async def test_what_was_given_up_is_told_as_batches_and_rows(tmp_path: Path) -> None:
    keys: dict[str, Any] = {"subscriber": {"overflow": "drop_oldest", "buffer_capacity": 5}}
    text = config(tmp_path, {"batches": 40}, **keys)
    with trio.fail_after(SECONDS):
        async with (
            open_gateway(text, plugins=PLUGINS) as gateway,
            open_websocket_url(f"ws://{gateway.address}/") as client,
        ):
            await say(client, "SUBSCRIBE", mode="pull")
            while not (notice := (await hear(client, "NOTICE"))["data"]).get("ranges"):
                pass
    (first, last), positions = notice["ranges"]["0"], notice["positions"]
    end = last.get("row", 4)  # without it: the end of the batch
    assert (last["batch"] - first["batch"]) * 5 + end - first["row"] + 1 == notice["dropped"]
    behind = {"batch": last["batch"], "row": end + 1}
    assert positions == (behind if "row" in last else {"batch": last["batch"] + 1, "row": 0})


async def test_nothing_is_left_of_queries_that_reloads_took_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither descriptors nor memory, also of a query that had a batch which nobody took."""
    blocked: dict[str, Any] = {
        "subscriber": {"overflow": "block", "buffer_capacity": 5, "block_timeout_ms": "45s"}
    }
    # Else it is a minute until nothing waits for it.
    monkeypatch.setattr(batches, "ABANDONED_SECONDS", -1.0)
    without = json.loads(config(tmp_path, {}))
    without["sources"] = without["sources"][:1]
    with trio.fail_after(SECONDS):
        async with open_gateway(config(tmp_path, {"batches": 1}), plugins=PLUGINS) as gateway:
            await _batches(gateway, 1)

            async def again(number: int) -> None:
                gateway.file.write_text(config(tmp_path, {"batches": 1000 + number, "part": 9}, **blocked))
                assert await gateway.reloader.reload()
                async with open_websocket_url(f"ws://{gateway.address}/") as client:
                    await say(client, "SUBSCRIBE", mode="pull", **{"from": "earliest"})
                    await hear(client, "SUBSCRIBE_OK")
                    hub = gateway.gateway.hub("s")
                    assert hub is not None
                    while not hub.held_by:  # noqa: ASYNC110  nothing tells
                        await trio.sleep(0.01)
                    # Another one than before, if it took longer to come again than a service lingers.
                    spark = [one for one in FakePlugin.opened if one.driver.pid][-1]
                    assert spark.budget.used > 0
                    gateway.file.write_text(json.dumps(without))
                    assert await gateway.reloader.reload()
                while spark._runs:  # noqa: ASYNC110
                    await trio.sleep(0.01)
                assert spark.budget.used == 0
                (tmp_path / "s.json").unlink(missing_ok=True)

            await again(0)
            before = len(os.listdir("/proc/self/fd"))
            for number in range(1, 21):
                await again(number)
            assert len(os.listdir("/proc/self/fd")) <= before + 1  # a connection that is being closed


async def _driver_of(gateway: GatewayUnderTest) -> SparkService:
    await _batches(gateway, 1)
    (found,) = (one for one in FakePlugin.opened if one.driver.pid)
    return found


@pytest.mark.parametrize("stage_bytes", [1 << 20, 1 << 21], ids=["the same driver", "another driver"])
async def test_a_query_that_a_reload_altered_may_begin_afresh(tmp_path: Path, stage_bytes: int) -> None:
    """Also where the section `spark` is altered with it, and all that knew the old query is closed."""
    with trio.fail_after(SECONDS), structlog.testing.capture_logs() as lines:
        async with open_gateway(config(tmp_path, {"batches": 1}), plugins=PLUGINS) as gateway:
            await _batches(gateway, 1)
            gateway.file.write_text(config(tmp_path, {"batches": 3}, stage_bytes=stage_bytes))
            assert await gateway.reloader.reload()
            await _batches(gateway, 2)
    notes = [line["note"] for line in lines if line["event"] == "query starts"]
    assert notes == ["fresh: False", "fresh: True"]
    started = [line for line in lines if line["event"] == "spark driver is ready"]
    assert len(started) == (1 if stage_bytes == 1 << 20 else 2)


async def test_a_reload_with_a_query_that_spark_refuses_leaves_the_one_that_works(tmp_path: Path) -> None:
    """Until it is mended; the log has the line, and `/sources` the reason."""
    with trio.fail_after(SECONDS), structlog.testing.capture_logs() as lines:
        async with open_gateway(
            config(tmp_path, {"batches": 1}), plugins=PLUGINS, admin="127.0.0.1:0"
        ) as gateway:
            await _batches(gateway, 1)

            async def refused() -> Any:
                return (await fetch(gateway.admin_address, "/sources"))["sources"][1]["reloadRefused"]

            hub = gateway.gateway.hub("s")
            wrong = json.dumps(json.loads(config(tmp_path, {"batches": 3, "nonsense": 1})), indent=1)
            gateway.file.write_text(wrong)
            assert not await gateway.reloader.reload()
            assert gateway.gateway.hub("s") is hub
            at = [number for number, line in enumerate(wrong.splitlines(), 1) if '"sql"' in line]
            words = f"{gateway.file}:{at[0]}: sources[1].sql: [PARSE_SYNTAX_ERROR] near 'nonsense'"
            assert await refused() == words
            gateway.file.write_text(config(tmp_path, {"batches": 3}))
            assert await gateway.reloader.reload()
            assert gateway.gateway.hub("s") is not hub
            await _batches(gateway, 2)
            assert await refused() is None
    (line,) = [line for line in lines if line["event"].startswith("configuration refused")]
    assert line["problem"] == words


async def test_a_reload_that_spark_cannot_judge_is_applied(tmp_path: Path) -> None:
    with trio.fail_after(SECONDS):
        async with open_gateway(config(tmp_path, {"batches": 1}), plugins=PLUGINS) as gateway:
            await _batches(gateway, 1)
            gateway.file.write_text(config(tmp_path, {"batches": 3, "unreachable": 1}))
            assert await gateway.reloader.reload()
            await _batches(gateway, 2)


@pytest.mark.usefixtures("short_pauses")
@pytest.mark.parametrize(
    ("how", "why"), [("dies", "the Spark driver"), ("breaks", "StackOverflowError: null")], ids=str
)
async def test_a_reload_that_spark_dies_of_or_fails_at_leaves_the_query_that_works(
    tmp_path: Path, how: str, why: str
) -> None:
    with trio.fail_after(SECONDS), structlog.testing.capture_logs() as lines:
        async with open_gateway(config(tmp_path, {"batches": 1}), plugins=PLUGINS) as gateway:
            await _batches(gateway, 1)
            hub = gateway.gateway.hub("s")
            gateway.file.write_text(config(tmp_path, {"batches": 3, how: 1}))
            assert not await gateway.reloader.reload()
            assert gateway.gateway.hub("s") is hub
    (line,) = [line for line in lines if line["event"].startswith("configuration refused")]
    assert "sources[1].sql: could not be analysed (" in line["problem"]
    assert why in line["problem"]
    assert line["problem"].endswith("the old one stays, reload again")


async def _batches(gateway: GatewayUnderTest, count: int) -> None:
    """Until the source, as it is now, has brought so many."""
    hub = gateway.gateway.hub("s")
    assert hub is not None
    while hub.events_in < count * 5:  # noqa: ASYNC110  nothing tells
        await trio.sleep(0.01)


@pytest.mark.usefixtures("short_pauses")
async def test_operators_see_how_query_and_driver_are(tmp_path: Path) -> None:
    told = {"bad": 2, "watermark": 5_000, "state_rows": 7, "state_bytes": 1_000, "late": 4, "behind": 30}
    text = config(tmp_path, {"batches": 3, "trouble": [1, "user", 1], **told})
    with trio.fail_after(SECONDS):
        async with open_gateway(text, plugins=PLUGINS, admin="127.0.0.1:0") as gateway:
            await _batches(gateway, 3)
            found = await scrape(gateway.admin_address)
            while value(found, "spark_batch_duration_seconds_count", source="s") < 3:
                found = await scrape(gateway.admin_address)
            kafka, spark = (await fetch(gateway.admin_address, "/sources"))["sources"]
    assert value(found, "spark_query_up", source="s") == 1
    assert value(found, "spark_batch_duration_seconds_sum", source="s") == pytest.approx(0.3)
    assert value(found, "spark_input_rows_total", source="s") == 27
    assert value(found, "spark_bad_records_total", source="s") == 6
    assert value(found, "spark_watermark_timestamp_seconds", source="s") == 5
    assert value(found, "spark_state_rows", source="s") == 7
    assert value(found, "spark_state_bytes", source="s") == 1_000
    assert value(found, "spark_late_rows_total", source="s") == 12
    assert value(found, "spark_behind_newest", source="s") == 30
    assert value(found, "spark_running_seconds_total", source="s") == 1.5
    assert value(found, "spark_checkpoint_seconds_total", source="s") == 1.5
    assert not [name for name, labels in found if "spark" in name and ("source", "in") in labels]
    details = spark["details"]
    assert kafka["details"] is None
    assert details.pop("driverPid") > 1
    assert details == {
        "driver": "ready",
        "driverDeaths": 0,
        "spark": "4.2.0-fake",
        "query": "running",
        "mode": "micro-batches",
        "trouble": None,
        "lastError": "user: a user function raised",
        "batch": 2,
        "inputRows": 9,
        "batchSeconds": 0.1,
        "stateRows": 7,
        "stateBytes": 1_000,
        "lateRows": 12,
        "behindNewest": 30,
        "watermark": 5000,
    }
