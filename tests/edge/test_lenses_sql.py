"""Lenses SQL v2 over a real socket: one statement, its records, and the end (document 001 and the issue that
settles what it leaves open)."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio

from kiwi_gw.testing import GatewayUnderTest, ScriptedSources, open_gateway
from tests.edge.wire import TEXT, Client, Over, connect, frame

PATH = "/api/ws/v2/sql/execute"
TOKEN = "a-token-of-a-machine"

CONFIG = """
plugins: [scripted]
server: {limits: {compiling_percent: 0, connection_compiling_percent: 0}}
lenses: {enabled: true, login_timeout_ms: 5000, sql: {SQL}}
sources:
  - {type: scripted, id: orders}
  - {type: scripted, id: prices-internal, lenses: {topic: prices}}
  - {type: scripted, id: secrets}
tokens:
  roles:
    reader: {sources: [orders, prices-internal], actions: [subscribe, replay]}
    listener: {sources: [orders], actions: [subscribe]}
  static:
    - {name: machine, token: a-token-of-a-machine, roles: [reader]}
    - {name: ear, token: a-token-of-an-ear, roles: [listener]}
"""

Message = dict[str, Any]


@asynccontextmanager
async def running(
    sql: str = "max_size: 200MiB", *, replayable: bool = True
) -> AsyncIterator[tuple[GatewayUnderTest, ScriptedSources]]:
    sources = ScriptedSources(replayable=replayable)
    async with open_gateway(CONFIG.replace("SQL", sql), plugins={"scripted": sources}) as gateway:
        yield gateway, sources


@asynccontextmanager
async def executing(
    gateway: GatewayUnderTest, sql: str, *, header: str | None = None, **members: object
) -> AsyncIterator[Client]:
    headers = [] if header is None else [("Authorization", f"Bearer {header}")]
    async with connect(gateway, PATH, headers=headers) as client:
        await client.send(frame(TEXT, json.dumps({"token": TOKEN, "sql": sql, **members}).encode()))
        yield client


async def hear(client: Client) -> Message | int:
    """Return the next message, or the code of the close frame."""
    try:
        with trio.fail_after(20):
            found = await client.frame()
    except Over as over:
        return over.code or 0
    message: Message = json.loads(found.payload)
    return message


async def rest(client: Client) -> list[Message]:
    """Return all messages up to END, behind which the connection is closed with 1000."""
    heard: list[Message] = []
    while (message := await hear(client)) != {"type": "END"}:
        assert isinstance(message, dict), message
        heard.append(message)
    assert await hear(client) == 1000
    return heard


async def executed(gateway: GatewayUnderTest, sql: str, **members: Any) -> list[Message]:
    async with executing(gateway, sql, **members) as client:
        return await rest(client)


def kinds(heard: Sequence[Message]) -> list[str]:
    return [message["type"] for message in heard]


def values(heard: Sequence[Message]) -> list[object]:
    return [message["data"]["value"] for message in heard if message["type"] == "RECORD"]


async def test_everything_from_the_first_record_to_the_end_of_then() -> None:
    async with running() as (gateway, sources):
        await sources["orders"].publish([b'{"n":1}', None, b'{"n":"\xc3\xa4"}'])
        heard = await executed(gateway, "SELECT * FROM orders")
        assert heard[0] == {
            "type": "METADATA",
            "data": {"fields": ["offset", "partition", "timestamp", "__keysize", "__valuesize"]},
        }
        assert values(heard) == [{"n": 1}, None, {"n": "ä"}]
        assert kinds(heard) == ["METADATA", "RECORD", "RECORD", "RECORD"]
        assert [message["data"]["rownum"] for message in heard[1:]] == [0, 1, 2]
        assert heard[1]["data"]["metadata"]["__valuesize"] == 7
        assert set(heard[2]["data"]["metadata"]) == {
            "offset",
            "partition",
            "timestamp",
            "__keysize",
            "__valuesize",
        }


async def test_a_condition_columns_and_a_limit() -> None:
    async with running() as (gateway, sources):
        await sources["prices-internal"].publish([b'{"n":%d}' % n for n in range(10)])
        heard = await executed(gateway, "SELECT n AS m FROM prices WHERE n > 4 LIMIT 2")
        assert values(heard) == [{"m": 5}, {"m": 6}]
        assert kinds(heard) == ["METADATA", "RECORD", "RECORD"]
        assert "key" not in heard[1]["data"]


async def test_an_empty_range_ends_at_once() -> None:
    async with running() as (gateway, sources):
        assert kinds(await executed(gateway, "SELECT * FROM orders")) == ["METADATA"]
        await sources["orders"].publish([b"1", b"2"])
        sql = "SELECT * FROM orders WHERE _offset > 5 AND _offset < 3"
        assert kinds(await executed(gateway, sql)) == ["METADATA"]
        assert values(await executed(gateway, "SELECT * FROM orders WHERE _offset >= 1")) == [2]


async def test_live_goes_on_past_the_end() -> None:
    async with running() as (gateway, sources):
        await sources["orders"].publish([b"1"])
        async with executing(gateway, "SELECT * FROM orders LIMIT 3", live=True) as client:
            first = [await hear(client), await hear(client)]
            assert [message["type"] for message in first if isinstance(message, dict)] == [
                "METADATA",
                "RECORD",
            ]
            await sources["orders"].publish([b"2"])
            await sources["orders"].publish([b"3", b"4"])
            assert values(await rest(client)) == [2, 3]


async def test_bad_records_are_told_and_count_against_no_limit() -> None:
    async with running() as (gateway, sources):
        await sources["orders"].publish([b"{", b'{"n":1}', b"\xff", b'{"n":2}', b'{"n":3}'])
        heard = await executed(gateway, "SELECT * FROM orders LIMIT 2", stats=1000)
        assert kinds(heard) == ["METADATA", "BADRECORD", "RECORD", "BADRECORD", "RECORD", "STATS"]
        bad = heard[1]["data"]["metadata"]
        assert (bad["offset"], bad["partition"], bad["table"]) == (0, 0, "orders")
        assert heard[-1]["data"]["badRecordsTotal"] == 2
        again = await executed(gateway, "SELECT n FROM orders WHERE n < 3")
        assert kinds(again) == ["METADATA", "BADRECORD", "RECORD", "BADRECORD", "RECORD"]
        hidden = await executed(gateway, "SET show.bad.records=false; SELECT * FROM orders")
        assert values(hidden) == [{"n": 1}, {"n": 2}, {"n": 3}]
        assert kinds(hidden) == ["METADATA", "RECORD", "RECORD", "RECORD"]


async def test_a_threshold_of_size_ends_it_at_the_record_that_reaches_it() -> None:
    async with running() as (gateway, sources):
        await sources["orders"].publish([b'{"n":%d}' % n for n in range(9)])
        heard = await executed(gateway, "SET max.size=20; SELECT * FROM orders WHERE n > 0", stats=300)
        assert kinds(heard) == ["METADATA", "RECORD", "RECORD", "STATS", "SENTINEL"]
        assert heard[-2]["data"]["bytesRead"] == 21
        reason = heard[-1]["data"]["reason"]
        assert (reason["type"], reason["source"], reason["amount"]) == ("MAX_SIZE", "orders", 20)
        assert heard[-1]["data"]["event"] == "QUERY_TERMINATED"
        assert kinds(await executed(gateway, "SET max.size=20; SELECT * FROM orders LIMIT 3")) == [
            "METADATA",
            "RECORD",
            "RECORD",
            "RECORD",
        ]


async def test_what_the_last_stats_say() -> None:
    async with running() as (gateway, sources):
        await sources["orders"].publish([b'{"n":%d}' % n for n in range(9)])
        heard = await executed(gateway, "SELECT * FROM orders WHERE n < 2", stats=60_000)
        stats = heard[-1]["data"]
        (source_id,) = stats["sources"]
        assert stats["sources"][source_id] == "orders"
        assert stats["sourceConfigs"][source_id] == {
            "live.aggs": True,
            "max.idle.time": 20_000,
            "format.timestamp": True,
            "show.bad.records": True,
            "kafka.offset.timeout": 10_000,
            "max.query.time": 3_600_000,
            "max.size": 209_715_200,
        }
        assert stats["sourcesStats"][source_id] == {
            "0": {"begin": 0, "offsetBound": 8, "bytesRead": 63, "recordsScanned": 9, "end": 8}
        }
        assert (stats["results"], stats["recordsScanned"], stats["bytesRead"]) == (2, 9, 63)
        assert stats["badRecordsTotal"] == stats["recordsSkipped"] == 0


async def test_thresholds_of_time() -> None:
    async with running() as (gateway, sources):
        await sources["orders"].publish([b"1"])
        sql = "SET max.query.time=200ms; SELECT * FROM orders"
        heard = await executed(gateway, sql, live=True)
        # Whether its record came in time is this machine's business.
        assert [kind for kind in kinds(heard) if kind != "RECORD"] == ["METADATA", "SENTINEL"]
        reason = heard[-1]["data"]["reason"]
        assert (reason["type"], reason["timeout"]) == ("MAX_QUERY_TIME", 200)
        assert reason["amount"] >= 200


@pytest.mark.parametrize(
    ("message", "words"),
    [
        ("{", "a JSON object is needed"),
        ("[]", "a JSON object is needed"),
        ("{}", "sql must be a string"),
        ('{"sql": 1}', "sql must be a string"),
        ('{"sql": "SELECT * FROM orders", "live": 1}', "live must be true or false"),
        ('{"sql": "SELECT * FROM orders", "stats": "1"}', None),
        ('{"sql": "SELECT * FROM orders", "stats": -1}', None),
        ('{"sql": "SELECT * FROM orders", "token": 7}', "token must be a string"),
        ('{"sql": "SELECT * FROM orders", "token": "wrong"}', None),
        ('{"sql": "SELECT * FROM orders"}', "a token is needed: in the message, or in the header Auth"),
        ({"sql": "SELECT * FROM nowhere"}, "no such topic: `nowhere` (at character 15)"),
        ({"sql": "SELECT * FROM secrets"}, "no such topic: `secrets` (at character 15)"),
        ({"sql": "SELECT * FROM"}, None),
        ({"sql": "INSERT INTO orders SELECT 1"}, None),
        ({"sql": "SET a.b=1; SELECT * FROM orders"}, "a.b cannot be set: there are live.aggs, max.idle"),
        ({"sql": "SET max.size=1g; SELECT * FROM orders"}, "max.size is from 1 to 209715200 here (at cha"),
        ({"sql": "SET max.size=x; SELECT * FROM orders"}, "max.size is a whole number, alone or with 'b'"),
        ({"sql": "SET show.bad.records=1; SELECT * FROM orders"}, "show.bad.records is true or false"),
        ({"sql": "SELECT * FROM orders WHERE _sample=3"}, "_sample is for protocol v1"),
        ({"sql": "SELECT * FROM orders WHERE _vtype='AVRO'"}, "this source does not declare it as AVRO"),
        ({"sql": "SELECT * FROM orders", "token": "a-token-of-an-ear"}, "not allowed: to begin in"),
    ],
)
async def test_mistakes_are_told_and_end_it(message: str | Mapping[str, object], words: str | None) -> None:
    text = message if isinstance(message, str) else json.dumps({"token": TOKEN, **message})
    async with running() as (gateway, _), connect(gateway, PATH) as client:
        await client.send(frame(TEXT, text.encode()))
        heard = await rest(client)
        assert kinds(heard) == ["ERROR"]
        assert heard[0]["data"].startswith(words or ""), heard


async def test_the_token_of_the_header_counts_and_no_other_beside_it() -> None:
    async with running() as (gateway, _):
        sql = "SELECT * FROM orders"
        for token in (None, "", TOKEN):
            assert kinds(await executed(gateway, sql, header=TOKEN, token=token)) == ["METADATA"]
        (wrong,) = await executed(gateway, sql, header=TOKEN, token="a-token-of-an-ear")
        assert wrong == {"type": "ERROR", "data": "the token is another one than that of the header"}


async def test_a_second_message_cancels_it() -> None:
    async with running() as (gateway, sources):
        await sources["orders"].publish([b"1"])
        async with executing(gateway, "SELECT * FROM orders", live=True) as client:
            assert [await hear(client), await hear(client)]
            await client.send(frame(TEXT, b"{}"))
            assert await hear(client) == {"type": "ERROR", "data": "a second message cancels the query"}
            assert await hear(client) == {"type": "END"}
            assert await hear(client) == 1008


async def test_only_so_many_at_a_time() -> None:
    async with running("queries: 3, queries_identity: 2") as (gateway, _):
        sql = "SELECT * FROM orders"
        async with (
            executing(gateway, sql, live=True) as one,
            executing(gateway, sql, live=True) as two,
        ):
            assert [await hear(one), await hear(two)]
            (refused,) = await executed(gateway, sql)
            assert refused["data"] == "at most 2 queries of one client are executed at a time"
        with trio.fail_after(20):  # who has gone has given its place back
            while kinds(await executed(gateway, sql)) == ["ERROR"]:
                pass


@pytest.mark.parametrize(
    ("sql", "words"),
    [
        (
            "SELECT count(*) FROM orders",
            "this query needs Spark, which is not configured here: section spark",
        ),
        ("SELECT n, count(*) FROM nowhere GROUP BY n", "no such topic: `nowhere` (at character 25)"),
        ("SELECT count(*) FROM secrets WHERE _vtype='AVRO'", "no such topic: `secrets` (at character 22)"),
        ("SELECT n FROM orders GROUP BY", None),
        ("SELECT reflect('java.lang.Runtime') FROM orders", None),
        ("SELECT n, count(*) FROM orders", None),
    ],
)
async def test_what_needs_more_than_one_record_is_refused_where_nothing_runs_it(
    sql: str, words: str | None
) -> None:
    async with running() as (gateway, _):
        with trio.fail_after(5):
            heard = await executed(gateway, sql)
        assert kinds(heard) == ["ERROR"]
        assert heard[0]["data"].startswith(words or ""), heard


async def test_without_history_what_the_window_holds() -> None:
    async with running(replayable=False) as (gateway, sources):
        await sources["orders"].publish([b"1", b"2"])
        assert values(await executed(gateway, "SELECT * FROM orders")) == [1, 2]
        sql = "SELECT * FROM orders WHERE _ts > 0"
        assert kinds(await executed(gateway, sql))[0] == "METADATA"
