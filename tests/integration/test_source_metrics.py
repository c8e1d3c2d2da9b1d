"""What metrics say of a topic on a real broker, while it is there and when it is gone."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
import trio

from kiwi_demo.broker import Broker
from tests.edge.admin import fetch, scrape, value
from tests.integration.client import client
from tests.integration.gateway import gateway, kafka_config
from tests.topics import Topics

pytestmark = pytest.mark.integration

EVENTS = 1_000


@pytest.mark.extended
async def test_lag_delay_and_outage(own_broker: Broker, tmp_path: Path) -> None:
    topics = Topics(own_broker.bootstrap)
    topic = await topics.create("measured", 4)
    settings = kafka_config(own_broker.bootstrap, topic, metrics={"per_partition": True})
    settings["server"] = {"address": "127.0.0.1:0", "admin_address": "127.0.0.1:0"}
    async with gateway(tmp_path, settings) as running, client(running.address, topic) as one:
        (line,) = [line for line in running.log if line["event"] == "gateway listens"]
        admin = line["admin"]
        await one.subscribe()
        began = time.time()
        await topics.fill(topic, EVENTS, partitions=4)
        await one.events(EVENTS)
        with trio.fail_after(10):  # the watch looks once a second
            while ("kiwigw_source_lag_records", (("source", topic),)) not in (found := await scrape(admin)):
                await trio.lowlevel.checkpoint()
        assert value(found, "source_lag_records", source=topic) == 0
        partitions = [
            value(found, "source_partition_lag_records", source=topic, partition=str(p)) for p in range(4)
        ]
        assert partitions == [0] * 4
        assert value(found, "source_up", source=topic) == 1
        assert value(found, "source_events_total", source=topic) == EVENTS
        assert value(found, "events_delivered_total", source=topic, dialect="kiwi") == EVENTS
        assert value(found, "delivery_delay_seconds_count", source=topic) >= 1
        newest = value(found, "source_last_event_timestamp_seconds", source=topic)
        assert began - 1 <= newest <= time.time()
        (source,) = (await fetch(admin, "/sources"))["sources"]
        assert (source["lag"], source["reachable"]) == ({str(p): 0 for p in range(4)}, True)
        await own_broker.stop()
        with trio.fail_after(30):
            while value(found := await scrape(admin), "source_stalled_seconds", source=topic) < 1:
                await trio.lowlevel.checkpoint()
        assert value(found, "source_up", source=topic) == 0
        assert value(found, "source_state", source=topic, state="running") == 1, "its subscriptions stay"
        assert (await fetch(admin, "/sources"))["sources"][0]["reachable"] is False
        assert value(found, "subscriptions", source=topic, mode="push") == 1
