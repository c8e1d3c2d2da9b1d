"""Kiwi and Zetta on one port over one source, through an independent client: both see the same."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import pytest
import trio
import yaml
from websockets.sync.client import ClientConnection, connect

from kiwi_demo.broker import Broker
from tests.integration.gateway import gateway, kafka_config
from tests.topics import Record, Topics

pytestmark = pytest.mark.integration

WITHIN = 20.0

Message = dict[str, Any]


class Talk:
    """One connection, used from threads."""

    def __init__(self, socket: ClientConnection) -> None:
        self._socket = socket

    async def say(self, **message: object) -> None:
        await trio.to_thread.run_sync(self._socket.send, json.dumps(message))

    async def hear(self, count: int = 1) -> list[Message]:
        """So many messages. That a source takes a while to reach its broker is none."""

        def read() -> list[Message]:
            found: list[Message] = []
            while len(found) < count:
                message = json.loads(self._socket.recv(timeout=WITHIN))
                if message["type"] != "NOTICE" or not message["data"]["type"].startswith("SOURCE_"):
                    found.append(message)
            return found

        return await trio.to_thread.run_sync(read)


@contextmanager
def talk(url: str) -> Iterator[Talk]:
    with connect(url, max_size=None) as socket:
        yield Talk(socket)


async def test_both_protocols_see_the_same_events_of_a_topic(
    broker: Broker, topics: Topics, new_topic: Callable[[], str], tmp_path: Path
) -> None:
    name = await topics.create(new_topic(), 2)
    config: dict[str, Any] = kafka_config(broker.bootstrap, name)
    config["sources"][0]["zetta"] = {"topic": "hub/sensor/{key}/reading", "data": "value.reading"}
    async with gateway(tmp_path, config) as running:
        base = f"ws://{running.address}"
        with talk(f"{base}/") as kiwi, talk(f"{base}/") as kiwi_filtered, talk(f"{base}/events") as zetta:
            await kiwi.say(type="SUBSCRIBE", sourceId=name)
            await kiwi_filtered.say(
                type="SUBSCRIBE", sourceId=name, where="value.reading.c >= 30 AND key IN ('1', '2')"
            )
            assert (await kiwi.hear())[0]["type"] == "SUBSCRIBE_OK"
            assert (await kiwi_filtered.hear())[0]["type"] == "SUBSCRIBE_OK"
            await zetta.say(type="subscribe", topic="hub/sensor/*/reading")
            await zetta.say(type="subscribe", topic="hub/sensor/[12]/reading?where data.c >= 30")
            await zetta.say(type="subscribe", topic="hub/query/", limit=4)
            acks = await zetta.hear(3)
            assert [(ack["type"], ack["subscriptionId"]) for ack in acks] == [
                ("subscribe-ack", 1),
                ("subscribe-ack", 2),
                ("subscribe-ack", 3),
            ]
            await zetta.say(type="ping")  # behind it, the subscriptions are open
            assert (await zetta.hear())[0]["type"] == "pong"
            records = [
                Record(json.dumps({"reading": {"c": n, "n": "é"}}).encode(), key=str(n % 4).encode())
                for n in range(60)
            ]
            await topics.produce(name, records)
            with trio.fail_after(60):
                seen_by_kiwi = await kiwi.hear(60)
                filtered = await kiwi_filtered.hear(15)
                seen_by_zetta = await zetta.hear(60 + 15 + 4 + 1)
    events = [message for message in seen_by_zetta if message.get("subscriptionId") == 1]
    assert [(e["topic"].split("/")[2], e["data"], e["timestamp"]) for e in events] == [
        (m["data"]["key"], json.loads(m["data"]["value"])["reading"], m["data"]["timestamp"])
        for m in seen_by_kiwi
    ]
    assert len({(m["data"]["partition"], m["data"]["offset"]) for m in seen_by_kiwi}) == 60
    queried = [message for message in seen_by_zetta if message.get("subscriptionId") == 2]
    assert [e["data"]["c"] for e in queried] == [
        json.loads(m["data"]["value"])["reading"]["c"] for m in filtered
    ]
    devices = [message for message in seen_by_zetta if message.get("subscriptionId") == 3]
    assert sorted(d["data"]["id"] for d in devices if d["type"] == "event") == ["0", "1", "2", "3"]
    assert devices[-1]["type"] == "unsubscribe-ack"


async def test_a_reload_that_alters_the_topics_of_a_source(tmp_path: Path) -> None:
    def config(topic: str) -> str:
        ticks = {"type": "counter", "id": "ticks", "min": 0, "interval_ms": 20}
        block = {"topic": topic, "data": "value.count"}
        return yaml.safe_dump({"server": {"address": "127.0.0.1:0"}, "sources": [{**ticks, "zetta": block}]})

    async with gateway(tmp_path, config("hub/clock/1/tick")) as running:
        with talk(f"ws://{running.address}/events?filterMultiple=true") as zetta:
            await zetta.say(type="subscribe", topic="hub/clock/1/tick")
            await zetta.say(type="subscribe", topic="hub/clock/*/tick")
            heard = await zetta.hear(8)
            assert {m["topic"] for m in heard if m["type"] == "event"} == {"hub/clock/1/tick"}
            running.config.write_text(config("hub/clock/2/tick"))
            with trio.fail_after(30):
                told, last = [], heard[-1]
                while last["topic"] != "hub/clock/2/tick":
                    (last,) = await zetta.hear()
                    if last["type"] == "error":
                        told.append((last["code"], last["topic"], last["message"], last["subscriptionId"]))
            assert told == [(500, "hub/clock/1/tick", "the source was altered", 1)]
            assert last["subscriptionId"] == [2]


async def test_what_the_root_answers(tmp_path: Path) -> None:
    config = {
        "name": "<hub>",
        "server": {"address": "127.0.0.1:0"},
        "sources": [{"type": "counter", "id": "ticks", "min": 0, "interval_ms": 1000}],
    }

    def get(address: str, **headers: str) -> tuple[str, bytes]:
        with urlopen(Request(f"http://{address}/", headers=headers), timeout=WITHIN) as answer:
            return answer.headers["Content-Type"], answer.read()

    async with gateway(tmp_path, config) as running:
        kind, body = await trio.to_thread.run_sync(
            lambda: get(running.address, Accept="application/vnd.siren+json")
        )
        assert kind == "application/vnd.siren+json"
        (link,) = [
            link["href"]
            for link in json.loads(body)["links"]
            if "http://rels.zettajs.io/events" in link["rel"]
        ]
        with talk(link) as zetta:
            await zetta.say(type="ping", data=[None])
            assert (await zetta.hear())[0]["data"] == [None]
        kind, body = await trio.to_thread.run_sync(lambda: get(running.address, Accept="text/html,*/*"))
        assert kind.startswith("text/html")
        assert b"&lt;hub&gt;" in body
        assert f"ws://{running.address}/events".encode() in body
