"""Statements of more than one record: what an engine is asked, the rows that it gives, and how they end."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from kiwi_gw.codes import RefusalCode
from kiwi_gw.core.notices import OpenFailed
from kiwi_gw.core.publishing import publish
from kiwi_gw.core.source_hub import SourceHub
from kiwi_gw.dialects.encoder import MAX_EVENT_BYTES
from kiwi_gw.dialects.lenses.settings import LensesSettings, LensesSqlSettings
from kiwi_gw.dialects.lenses.sql import MAX_ROWS
from kiwi_gw.dialects.lenses.v2.rows import RowFrames
from kiwi_gw.model import Batch, Decode
from tests.unit.core.desk import Gateway
from tests.unit.dialects.lenses.bench import Json
from tests.unit.dialects.lenses.v2.caller import SqlCaller, data
from tests.unit.dialects.lenses.v2.statements import messages

COUNT = "SELECT carrier, count(*) AS n FROM cars GROUP BY carrier"
SORTED = "SELECT * FROM cars ORDER BY n"


def give(hub: SourceHub | None, *rows: tuple[bytes | None, bytes], first: int = 0) -> None:
    """Have the engine give rows: what they have in common with those whose place they take, and values."""
    assert hub is not None
    for _ in publish(hub, of(rows, first)):
        pass


def of(rows: Sequence[tuple[bytes | None, bytes]], first: int = 0) -> Batch:
    keys, values = [key for key, _ in rows], [value for _, value in rows]
    numbers = range(first, first + len(rows))
    return Batch({0: first}, [0] * len(rows), numbers, {"key": keys, "value": values}, 0)


def asking(sql: str = COUNT, **members: object) -> SqlCaller:
    caller = SqlCaller(Gateway("cars", "boats"))
    caller.ask(sql, **members)
    return caller


def test_rows_have_numbers_and_ids_and_no_metadata() -> None:
    caller = asking()
    give(caller.rows, (b'["UA"]', b'{"carrier":"UA","n":1}'), (b"[null]", b'{"carrier":null,"n":2}'))
    give(caller.rows, (b'["UA"]', b'{"carrier":"UA","n":3}'), first=2)
    assert caller.rows is not None
    caller.rows.ended()
    heard = caller.heard()
    assert heard[0] == {"type": "METADATA", "data": {"fields": []}}
    assert heard[-1] == {"type": "END"}
    rows = heard[1:-1]
    assert [row["data"] for row in rows] == [
        {"value": {"carrier": "UA", "n": 1}, "rownum": 0},
        {"value": {"carrier": None, "n": 2}, "rownum": 1},
        {"value": {"carrier": "UA", "n": 3}, "rownum": 2},
    ]
    assert rows[0]["rowId"] == rows[2]["rowId"] != rows[1]["rowId"]
    assert {(row["type"], row["statementIndex"]) for row in rows} == {("RECORD", None)}
    assert (caller.code, caller.executions.count) == (1000, 0)


def test_rows_without_keys_have_ids_of_their_own() -> None:
    made = messages(RowFrames("columns", True, MAX_ROWS, 10**6)(of([(None, b"1"), (None, b"1")])))
    ids = {message["rowId"] for message in made if message is not None}
    assert len(ids) == 2


WHOLE = b'{"value":{"n":1},"offset":9,"partition":2,"timestamp":0,"key_size":1,"value_size":7,"key":%b}'


@pytest.mark.parametrize(("iso", "moment"), [("true", "1970-01-01T00:00:00.000Z"), ("false", 0)])
def test_rows_that_are_records_have_their_places(iso: str, moment: object) -> None:
    caller = asking(f"SET format.timestamp={iso}; {SORTED}")
    give(caller.rows, (None, WHOLE % b'"k"'), (None, WHOLE % b"null"))
    metadata, first, second = caller.heard()
    assert metadata["data"]["fields"] == ["offset", "partition", "timestamp", "__keysize", "__valuesize"]
    place = {"offset": 9, "partition": 2, "timestamp": moment, "__keysize": 1, "__valuesize": 7}
    assert first["data"] == {"key": "k", "value": {"n": 1}, "metadata": place, "rownum": 0}
    assert second["data"] == {"value": {"n": 1}, "metadata": place, "rownum": 1}


def test_distinct_values_are_as_they_are() -> None:
    caller = asking("SELECT DISTINCT * FROM cars")
    give(caller.rows, (None, b'{"value":{"n":1}}'), (None, b'{"value":null}'))
    metadata, *rows = caller.heard()
    assert metadata["data"] == {"fields": []}
    assert [row["data"] for row in rows] == [{"value": {"n": 1}, "rownum": 0}, {"value": None, "rownum": 1}]
    assert rows[0]["rowId"] != rows[1]["rowId"]


@pytest.mark.parametrize("beyond", [0, 1, 5])
def test_more_rows_than_a_result_may_have(beyond: int) -> None:
    caller = asking()
    rows = [(None, b"1")] * (MAX_ROWS + beyond)
    for first in range(0, len(rows), 3_000):
        give(caller.rows, *rows[first : first + 3_000], first=first)
    assert caller.rows is not None
    caller.rows.ended()
    heard = caller.heard()
    kinds = [message["type"] for message in heard]
    assert kinds == ["METADATA", *["RECORD"] * MAX_ROWS, *["SENTINEL"] * (beyond > 0), "END"]
    if beyond:
        reason = data(heard, "SENTINEL")[0]["reason"]
        assert (reason["type"], reason["source"], reason["amount"]) == ("MAX_ROWS", "cars", MAX_ROWS)


def test_an_engine_that_fails() -> None:
    caller = asking()
    give(caller.rows, (None, b"1"))
    assert caller.rows is not None
    caller.rows.failed("no memory is left")
    error = caller.heard()[2]
    assert (error["type"], error["data"], caller.code) == ("ERROR", "no memory is left", 1000)
    assert caller.executions.count == 0


def failed(caller: SqlCaller, code: str, words: str) -> Json:
    """Have it refused by the core. Returns the first message."""
    caller.carry_out(caller.session.notice(OpenFailed("execution", code, words)))
    message, end = caller.heard()
    assert (end, caller.code, caller.executions.count) == ({"type": "END"}, 1000, 0)
    return message


@pytest.mark.parametrize(
    ("sql", "words"),
    [
        (COUNT, "no such topic: `cars` (at character 36)"),
        (
            "SELECT count(*) AS n FROM cars a JOIN boats b ON a.n = b.n",
            "no such topic: one of `cars`, `boats`",
        ),
    ],
)
def test_a_table_that_may_not_be_read_is_none(sql: str, words: str) -> None:
    caller = SqlCaller(Gateway("cars", "boats"))
    caller.holds_queries = True
    caller.ask(sql)
    assert failed(caller, RefusalCode.UNKNOWN_SOURCE, "whatever")["data"] == words


@pytest.mark.parametrize(
    ("code", "words"),
    [
        (RefusalCode.QUERY, "not this one"),
        (RefusalCode.NO_ENGINE, "this query needs Spark, which is not configured here: section spark"),
    ],
)
def test_words_of_an_engine_that_does_not_want_it_or_is_not_there(code: RefusalCode, words: str) -> None:
    caller = SqlCaller(Gateway("cars"))
    caller.holds_queries = True
    caller.ask(COUNT)
    assert failed(caller, code, "not this one")["data"] == words


def test_what_is_wrong_with_how_a_table_is_read_is_said_last() -> None:
    """Behind its rights: who may not read it does not learn how it is declared."""
    caller = SqlCaller(Gateway("cars"))
    caller.holds_queries = True
    caller.ask("SELECT count(*) AS n FROM cars WHERE _vtype = 'AVRO'")
    assert caller.heard() == []
    caller.run_query()
    assert caller.heard()[0]["data"].startswith("this source does not declare it as AVRO")


def test_live_aggregates_may_be_refused() -> None:
    caller = asking(f"SET live.aggs=false; {COUNT}", live=True)
    assert caller.heard()[0]["data"] == "aggregates with `live` are refused: live.aggs is false"
    assert (caller.query, caller.code) == (None, 1000)
    for sql, live in ((f"SET live.aggs=false; {COUNT}", False), (COUNT, True)):
        caller = asking(sql, live=live)
        assert caller.query is not None
        assert caller.query.query.live == live
        assert caller.kinds() == ["METADATA"]


def test_its_time() -> None:
    """The engine's own bound comes behind, so that the words are those of the threshold."""
    caller = asking(f"SET max.query.time=30s; {COUNT}", stats=250)
    assert caller.query is not None
    assert caller.query.query.limits.seconds == 31
    caller.pass_time(29.9)
    assert caller.kinds() == ["METADATA"], "no STATS: nothing here knows what an engine reads"
    assert len(caller.deadlines) == 1
    assert caller.timers == [], "but that for the message, which has fired"
    caller.pass_time(0.2)
    heard = caller.heard()
    reason = data(heard, "SENTINEL")[0]["reason"]
    assert (reason["type"], reason["timeout"], len(heard)) == ("MAX_QUERY_TIME", 30_000, 2)
    longest = asking(COUNT)
    assert longest.query is not None
    assert longest.query.query.limits.seconds == 60
    longest.pass_time(200)
    assert max(longest.deadlines) <= longest.gateway.clock() + 10


def test_its_time_is_up_before_it_has_begun() -> None:
    caller = SqlCaller(Gateway("cars"))
    caller.holds_queries = True
    caller.ask(f"SET max.query.time=30s; {COUNT}")
    caller.pass_time(30.1)
    assert caller.kinds() == ["METADATA", "SENTINEL", "END"]


def test_a_configuration_that_allows_less() -> None:
    gateway = Gateway("cars")
    settings = LensesSettings(sql=LensesSqlSettings(max_query_time_ms=5_000))
    caller = SqlCaller(gateway, settings=settings)
    caller.ask(COUNT)
    caller.pass_time(5)
    assert caller.kinds() == ["METADATA", "SENTINEL", "END"]


def test_how_its_source_is_declared_is_what_the_engine_reads() -> None:
    gateway = Gateway("cars")
    hub = gateway.hubs["cars"]
    hub.info = replace(hub.info, decode=Decode(value="string"))
    caller = SqlCaller(gateway)
    caller.ask(COUNT)
    assert caller.query is not None
    assert [table.decode.value for table in caller.query.query.tables.values()] == ["string"]


def test_two_results_share_nothing() -> None:
    one, two = asking(), asking()
    keys = []
    for caller in (one, two):
        assert caller.query is not None
        assert caller.rows is not None
        keys.append(caller.query.wire(caller.rows.info).key)
    assert keys[0] != keys[1]


@pytest.mark.parametrize("behind", [True, False])
def test_a_row_that_is_too_large_is_not_left_out_without_a_word(behind: bool) -> None:
    caller = asking()
    large = b'"' + b"x" * MAX_EVENT_BYTES + b'"'
    give(caller.rows, (None, b"1"), (None, large), *[(None, b"3")] * behind)
    assert caller.rows is not None
    caller.rows.ended()
    heard = caller.heard()
    kinds = [message["type"] for message in heard]
    assert kinds == ["METADATA", "RECORD", "SENTINEL", *["RECORD"] * behind, "END"]
    (lost,) = data(heard, "SENTINEL")
    assert (lost["event"], lost["reason"]["amount"]) == ("RECORDS_LOST", 1)
