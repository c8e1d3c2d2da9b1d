"""Queries over ranges of topics in a real driver, with a real broker."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Callable
from typing import Any, Final

import pytest

from kiwi_demo.broker import Broker
from kiwi_spark.protocol.messages import (
    BatchTaken,
    BeginBatch,
    EndBatch,
    QueryEnded,
    QueryStarted,
    StartRangeQuery,
)
from kiwi_spark.protocol.range_query import RangeQuery, TopicTable
from tests.integration.spark.driver_peer import DriverPeer, RowsTalk, runs
from tests.topics import Record, Topics

pytestmark = [pytest.mark.integration, pytest.mark.extended, pytest.mark.timeout(600)]

NOW: Final = time.time_ns() // 1_000_000 - 1_000_000
CARRIERS: Final = ("AA", "UA", "B6", "DL")
FLIGHTS: Final = [
    {"carrier": CARRIERS[n * n % 7 % 4], "n": n, "delay": n / 4, "plane": {"seats": n % 3}}
    for n in range(900)
]


class Asker:
    """Asks a driver."""

    def __init__(self, driver: DriverPeer, broker: Broker) -> None:
        self.driver = driver
        self._broker = broker

    def table(self, topic: str, **fields: Any) -> TopicTable:
        kafka = {"kafka.bootstrap.servers": self._broker.bootstrap, "kafka.isolation.level": "read_committed"}
        return TopicTable(source=topic, topic=topic, kafka=kafka, **fields)

    def say(self, sql: str, *tables: TopicTable, **fields: Any) -> int:
        run = next(runs)
        given = {f"t{number}": table for number, table in enumerate(tables)}
        limits = {"result_bytes": 1 << 24, "offsets": 10_000_000}
        query = RangeQuery(source=f"q{run}", sql=sql, tables=given, **(limits | fields))
        self.driver.control.say(StartRangeQuery(run=run, query=query))
        return run

    def start(self, sql: str, *tables: TopicTable, **fields: Any) -> tuple[int, RowsTalk]:
        """One that begins to run."""
        run = self.say(sql, *tables, **fields)
        while not isinstance(message := self.driver.control.next(), QueryStarted):
            assert not isinstance(message, QueryEnded), message
        return run, self.driver.accept(run)

    def batches(self, sql: str, *tables: TopicTable, **fields: Any) -> list[list[dict[str, Any]]]:
        """The rows of each batch: of its value, and of its key."""
        run, rows = self.start(sql, *tables, **fields)
        found = []
        while True:
            try:
                _, batch = rows.batch()
            except EOFError:
                break
            found.append([{**json.loads(row["key"] or "{}"), **json.loads(row["value"])} for row in batch])
        ended = self.driver.ended(run)
        assert ended.error_kind is None, ended.message
        return found

    def rows(self, sql: str, *tables: TopicTable, **fields: Any) -> list[dict[str, Any]]:
        """The rows of a result that comes at once."""
        batches = self.batches(sql, *tables, **fields)
        assert len(batches) == 1
        return batches[0]

    def refused(self, sql: str, *tables: TopicTable, **fields: Any) -> str:
        """What a query dies of, which is the client's."""
        run = self.say(sql, *tables, **fields)
        ended = self.driver.ended(run)
        assert ended.error_kind == "query", ended
        return ended.message


@pytest.fixture
def ask(driver: DriverPeer, broker: Broker) -> Asker:
    return Asker(driver, broker)


@pytest.fixture(scope="module")
def known() -> dict[str, str]:
    """Topics that are made once, by what is in them."""
    return {}


@pytest.fixture
async def flights(topics: Topics, known: dict[str, str], new_topic: Callable[[], str]) -> str:
    """900 flights in three partitions, with a key, a time and headers; a tombstone, and what is no JSON."""
    if "flights" not in known:
        known["flights"] = await topics.create(new_topic(), 3)
        good = [
            Record(
                json.dumps(flight).encode(),
                key=b"k%d" % (n % 5),
                partition=n % 3,
                timestamp=NOW + n,
                headers=[("h", b"first"), ("h", b"h%d" % (n % 2)), ("raw", b"\xff")],
            )
            for n, flight in enumerate(FLIGHTS)
        ]
        others = [Record(b"{nope", partition=0, timestamp=NOW + 900), Record(None, b"gone", 0, NOW + 900)]
        await topics.produce(known["flights"], [*good, *others])
    return known["flights"]


BY_CARRIER: Final = (
    "SELECT t0.value.carrier AS carrier, count(*) AS n FROM t0 "
    "WHERE t0.value.n >= 0 GROUP BY t0.value.carrier"
)


def counted() -> dict[str, int]:
    return dict(Counter(str(flight["carrier"]) for flight in FLIGHTS))


async def test_groups_are_counted_as_python_counts_them(ask: Asker, flights: str) -> None:
    found = ask.rows(BY_CARRIER, ask.table(flights), key=["carrier"])
    assert {row["carrier"]: row["n"] for row in found} == counted()


async def test_a_key_is_apart_from_the_value_and_there_is_none_without(ask: Asker, flights: str) -> None:
    run, rows = ask.start(f"{BY_CARRIER} ORDER BY n DESC LIMIT 1", ask.table(flights), key=["carrier"])
    carrier, n = max(counted().items(), key=lambda item: item[1])
    assert rows.batch()[1] == [
        {"key": json.dumps({"carrier": carrier}, separators=(",", ":")), "value": f'{{"n":{n}}}'}
    ]
    assert ask.driver.ended(run).error_kind is None
    run, rows = ask.start(f"{BY_CARRIER} ORDER BY n DESC LIMIT 1", ask.table(flights))
    assert rows.batch()[1] == [{"key": None, "value": f'{{"carrier":"{carrier}","n":{n}}}'}]
    assert ask.driver.ended(run).error_kind is None


async def test_two_topics_are_joined(
    ask: Asker, flights: str, topics: Topics, new_topic: Callable[[], str]
) -> None:
    names = await topics.create(new_topic())
    await topics.produce(
        names, [Record(b'{"name":"Airline %s"}' % one.encode(), one.encode()) for one in CARRIERS[:3]]
    )
    sql = (
        "SELECT t1.value.name AS name, count(*) AS n, sum(t0.value.delay) AS delay FROM t0 "
        "JOIN t1 ON t0.value.carrier = t1.key GROUP BY t1.value.name"
    )
    found = {
        row["name"]: (row["n"], row["delay"]) for row in ask.rows(sql, ask.table(flights), ask.table(names))
    }
    expected = {
        f"Airline {one}": (
            counted()[one],
            sum(float(str(flight["delay"])) for flight in FLIGHTS if flight["carrier"] == one),
        )
        for one in CARRIERS[:3]
        if one in counted()
    }
    assert found == expected


async def test_rows_come_in_their_order(ask: Asker, flights: str) -> None:
    sql = (
        "SELECT t0.value.n AS n, t0.value.plane AS plane FROM t0 "
        "WHERE t0.value.n > 5 ORDER BY plane.seats, n DESC"
    )
    expected = sorted(FLIGHTS[6:], key=lambda one: (one["n"] % 3, -int(str(one["n"]))))  # type: ignore[operator]
    assert [row["n"] for row in ask.rows(sql, ask.table(flights))] == [one["n"] for one in expected]


async def test_columns_that_are_no_members(ask: Asker, flights: str) -> None:
    sql = (
        "SELECT t0.key AS key, t0.headers['h'] AS h, t0.headers['raw'] AS raw, t0.partition AS p, "
        "t0.offset AS o, t0.timestamp AS at, t0.key_size AS ks, t0.value_size AS vs FROM t0 "
        "WHERE t0.partition = 0 ORDER BY o DESC LIMIT 3"
    )
    found = ask.rows(sql, ask.table(flights))
    tombstone = {"key": "gone", "h": None, "raw": None, "p": 0, "o": 301, "at": NOW + 900, "ks": 4, "vs": 0}
    assert found[0] == tombstone
    assert (found[1]["key"], found[1]["vs"]) == (None, 5)  # it is not JSON, and is not asked to be
    last = json.dumps(FLIGHTS[897])
    expected = {
        "key": "k2",
        "h": "h1",
        "raw": None,
        "p": 0,
        "o": 299,
        "at": NOW + 897,
        "ks": 2,
        "vs": len(last),
    }
    assert found[2] == expected


async def test_what_is_no_json_is_left_out_where_the_value_is_read(ask: Asker, flights: str) -> None:
    assert ask.rows("SELECT count(*) AS n FROM t0", ask.table(flights)) == [{"n": 902}]
    sql = "SELECT count(*) AS n, count(t0.value.n) AS m FROM t0"
    assert ask.rows(sql, ask.table(flights)) == [{"n": 901, "m": 900}]


@pytest.mark.parametrize(
    ("narrowed", "count"),
    [
        ({"first_offset": 10, "last_offset": 19}, 30),
        ({"partitions": [1, 2]}, 600),
        ({"first_time": NOW + 300}, 602),
        ({"first_time": NOW + 300, "first_offset": 200, "partitions": [0]}, 102),
        ({"first_offset": 1_000}, 0),
        ({"last_offset": 0}, 3),
    ],
)
async def test_no_more_is_read_than_what_it_is_narrowed_to(
    ask: Asker, flights: str, narrowed: dict[str, Any], count: int
) -> None:
    table = ask.table(flights, **narrowed)
    assert ask.rows("SELECT count(*) AS n FROM t0", table) == [{"n": count}]


async def test_values_of_every_form(ask: Asker, topics: Topics, new_topic: Callable[[], str]) -> None:
    name = await topics.create(new_topic())
    numbers = [(0, 0), (-1, -1), (2**31 - 1, 2**63 - 1), (-(2**31), -(2**63))]
    await topics.produce(
        name,
        [
            Record(long.to_bytes(8, "big", signed=True), one.to_bytes(4, "big", signed=True))
            for one, long in numbers
        ],
    )
    sql = "SELECT t0.key AS k, t0.value AS v FROM t0 ORDER BY t0.offset"
    found = ask.rows(sql, ask.table(name, key="int", value="long"))
    assert [(row["k"], row["v"]) for row in found] == numbers
    assert ask.rows(sql, ask.table(name, key="long", value="int")) == []  # none of them can be decoded
    assert ask.rows(sql, ask.table(name, key="binary", value="string"))[0] == {"k": "AAAAAA==", "v": "\0" * 8}


async def test_avro_is_decoded_by_its_schema(
    ask: Asker, topics: Topics, new_topic: Callable[[], str]
) -> None:
    name = await topics.create(new_topic())
    await topics.produce(name, [Record(bytes([6, *b"abc", 2 * n])) for n in range(5)])
    at = {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}}
    schema = {"type": "record", "name": "r", "fields": [{"name": "s", "type": "string"}, at]}
    table = ask.table(name, value="avro", avro=json.dumps(schema))
    sql = "SELECT t0.value.s AS s, sum(t0.value.at) AS n FROM t0 GROUP BY t0.value.s"
    assert ask.rows(sql, table) == [{"s": "abc", "n": 10}]


async def test_a_declared_schema_knows_members_that_no_event_has(ask: Asker, flights: str) -> None:
    table = ask.table(flights, schema="carrier STRING, n DOUBLE, gate STRING, plane BIGINT")
    sql = (
        "SELECT count(t0.value.gate) AS gates, max(t0.value.n) AS n, count(t0.value.plane) AS planes FROM t0"
    )
    assert ask.rows(sql, table) == [{"gates": 0, "n": 899.0, "planes": 0}]  # an object is no BIGINT


async def test_what_is_empty_has_an_empty_result(
    ask: Asker, topics: Topics, new_topic: Callable[[], str]
) -> None:
    empty = ask.table(await topics.create(new_topic(), 2))
    assert ask.rows("SELECT count(*) AS n, max(t0.value.a.b) AS m FROM t0", empty, live=True) == [
        {"n": 0, "m": None}
    ]
    assert ask.rows(BY_CARRIER, empty, key=["carrier"]) == []


async def test_values_that_are_no_objects(ask: Asker, topics: Topics, new_topic: Callable[[], str]) -> None:
    name = await topics.create(new_topic())
    await topics.produce(name, [Record(b"%d" % n) for n in range(10)])
    assert ask.rows("SELECT sum(t0.value) AS n FROM t0", ask.table(name)) == [{"n": 45}]


async def test_what_cannot_be_computed_is_null(ask: Asker, flights: str) -> None:
    sql = "SELECT 1 / (t0.value.n - 1) AS a, CAST(t0.value.carrier AS INT) AS b FROM t0 WHERE t0.value.n = 1"
    assert ask.rows(sql, ask.table(flights)) == [{"a": None, "b": None}]


@pytest.mark.parametrize(
    ("sql", "said"),
    [
        (
            "SELECT t0.value.nope AS x FROM t0",
            "there is no member `nope` (there are: `carrier`, `delay`, `n`, `plane`)",
        ),
        ("SELECT t0.value.Carrier AS x FROM t0", "there is no member `Carrier`"),
        ("SELECT t0.value.carrier.x AS x FROM t0", '"value.carrier" has no members: it is "STRING"'),
        ("SELECT t0.nope AS x FROM t0", "there is no column `nope`"),
        ("SELECT sum(t0.value.plane) AS x FROM t0", 'Cannot resolve "sum(value.plane)"'),
        ("SELECT * FROM json.`/etc/passwd`", "which is none of its tables"),
        ("SELECT * FROM t0 CROSS JOIN range(5)", "which is none of its tables"),
        ("SELECT * FROM t7", "which is none of its tables"),
        ("SELECT t0.key AS k FROM t0 WHERE t0.key IN (SELECT key FROM t7)", "which is none of its tables"),
        ("SET spark.sql.ansi.enabled=true", "Syntax error"),
        ("CREATE TABLE x AS SELECT * FROM t0", "Syntax error"),
    ],
)
async def test_what_is_wrong_is_said_in_words(ask: Asker, flights: str, sql: str, said: str) -> None:
    message = ask.refused(sql, ask.table(flights))
    assert said in message
    for word in ("SQLSTATE", "org.apache", "t0", "line 1", "["):
        assert word not in message


async def test_a_view_of_one_query_is_none_of_the_next(ask: Asker, flights: str) -> None:
    assert ask.rows("SELECT count(*) AS n FROM t1 WHERE 1 = 1", ask.table(flights), ask.table(flights)) == [
        {"n": 902}
    ]
    assert "t1" in ask.refused("SELECT count(*) AS n FROM t1", ask.table(flights))


async def test_more_offsets_than_allowed_are_not_read(ask: Asker, flights: str) -> None:
    said = ask.refused(BY_CARRIER, ask.table(flights), ask.table(flights, partitions=[1]), offsets=1_201)
    assert said.startswith("the query reads 1,202 offsets, and 1,201 is the most")
    assert ask.rows(BY_CARRIER, ask.table(flights), offsets=902)


async def test_a_result_that_is_too_large_is_none(ask: Asker, flights: str) -> None:
    said = ask.refused("SELECT t0.value AS v FROM t0", ask.table(flights), result_bytes=20_000)
    assert said == "the result has more than 20,000 bytes"


async def test_what_comes_later_does_not_count(
    ask: Asker, topics: Topics, new_topic: Callable[[], str]
) -> None:
    """Neither in a result that comes at once, nor in one that comes as there is some of it."""
    name = await topics.create(new_topic(), 2)
    records = [Record(b'{"a":%d}' % (n % 3), partition=n % 2) for n in range(25_000)]
    await topics.produce(name, records)
    sql = "SELECT t0.value.a AS a, count(*) AS n FROM t0 GROUP BY t0.value.a"
    for live in (False, True):
        total = sum((await topics.end_offsets(name)).values())
        run, rows = ask.start(sql, ask.table(name), key=["a"], live=live)
        # The query is known to be right when its connection is there: it knows by then what it reads.
        await topics.produce(name, records[:1_000])
        last: dict[str, int] = {}
        steps = 0
        while True:
            try:
                _, batch = rows.batch()
            except EOFError:
                break
            steps += 1
            last |= {row["key"]: json.loads(row["value"])["n"] for row in batch}
        assert ask.driver.ended(run).error_kind is None
        assert sum(last.values()) == total
        assert steps > 1 if live else steps == 1


@pytest.mark.parametrize(
    "sql",
    [
        f"{BY_CARRIER} LIMIT 10001",
        "SELECT t0.value.carrier AS carrier, avg(t0.value.delay) AS n, approx_count_distinct(t0.key) AS k, "
        "min_by(t0.value.delay, t0.value.n) AS f FROM t0 GROUP BY t0.value.carrier",
        "SELECT DISTINCT t0.value.carrier AS carrier FROM t0",
    ],
)
async def test_the_last_row_of_every_key_is_the_result(ask: Asker, flights: str, sql: str) -> None:
    def by_key(batches: list[list[dict[str, Any]]]) -> dict[str, dict[str, Any]]:
        return {row["carrier"]: row for batch in batches for row in batch}

    whole = by_key(ask.batches(sql, ask.table(flights), key=["carrier"]))
    assert by_key(ask.batches(sql, ask.table(flights), key=["carrier"], live=True)) == whole


@pytest.mark.parametrize(
    "sql",
    [
        f"{BY_CARRIER} ORDER BY n DESC",
        f"{BY_CARRIER} LIMIT 2",
        f"{BY_CARRIER} HAVING count(*) < 100",
        "SELECT count(DISTINCT t0.value.carrier) AS n FROM t0",
    ],
)
async def test_what_is_no_stream_that_changes_comes_at_once(ask: Asker, flights: str, sql: str) -> None:
    found = ask.batches(sql, ask.table(flights), live=True)
    assert len(found) == 1
    if "LIMIT" not in sql:  # any two of them
        whole = ask.rows(sql, ask.table(flights))
        assert sorted(map(str, found[0])) == sorted(map(str, whole))


async def test_one_that_is_stopped_is_over_and_the_next_one_runs(ask: Asker, flights: str) -> None:
    """A join of everything with everything, a billion rows of it."""
    endless = "SELECT sum(t0.offset * t1.offset % (t2.offset + 7)) AS n FROM t0 CROSS JOIN t1 CROSS JOIN t2"
    tables = [ask.table(flights)] * 3
    for live in (False, True):
        run, _ = ask.start(endless, *tables, live=live)
        began = time.monotonic()
        assert ask.driver.stop(run).error_kind is None
        assert time.monotonic() - began < 20  # of which a machine that is busy needs some
        assert ask.rows("SELECT count(*) AS n FROM t0", ask.table(flights)) == [{"n": 902}]


async def test_rows_that_nobody_takes_hold_a_query_until_it_is_stopped(ask: Asker, flights: str) -> None:
    run, rows = ask.start(BY_CARRIER, ask.table(flights))
    assert isinstance(rows.next(), BeginBatch)
    rows.expect(EndBatch)
    assert ask.driver.stop(run).error_kind is None
    run, rows = ask.start(BY_CARRIER, ask.table(flights))
    begin = rows.expect(BeginBatch)
    rows.expect(EndBatch)
    rows.say(BatchTaken(batch=begin.batch))
    assert ask.driver.ended(run).error_kind is None
