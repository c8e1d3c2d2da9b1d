"""What SET says of a statement: every name, unit and mistake; and how many statements a client may have."""

from __future__ import annotations

import pytest

from kiwi_gw.dialects.lenses.settings import LensesSqlSettings
from kiwi_gw.dialects.lenses.v2.executions import Executions, client_of
from kiwi_gw.dialects.lenses.v2.thresholds import thresholds_of
from kiwi_gw.model import ANONYMOUS, Identity
from kiwi_gw.query.errors import QueryError
from tests.unit.dialects.lenses.v2.statements import read

CONFIGURED = LensesSqlSettings()


def holds(text: str, configured: LensesSqlSettings = CONFIGURED) -> dict[str, int | bool]:
    statement = read(" ".join([text, "SELECT * FROM t"])).statement
    return dict(thresholds_of(statement.settings, configured).as_written)


def test_what_holds_where_nothing_is_set() -> None:
    assert holds("") == {
        "live.aggs": True,
        "max.idle.time": 20_000,
        "format.timestamp": True,
        "show.bad.records": True,
        "kafka.offset.timeout": 10_000,
        "max.query.time": 3_600_000,
        "max.size": 200 * 1024 * 1024,
    }


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("max.size", "1", 1),
        ("max.size", "1b", 1),
        ("max.size", "'2 K'", 2_048),
        ("max.size", "3m", 3 * 1024**2),
        ("max.size", "200M", 200 * 1024**2),
        ("max.size", "209715200", 209_715_200),
        ("max.query.time", "1", 1),
        ("max.query.time", "250ms", 250),
        ("max.query.time", "90s", 90_000),
        ("max.query.time", "60m", 3_600_000),
        ("max.query.time", "1H", 3_600_000),
        ("max.idle.time", "20s", 20_000),
        ("kafka.offset.timeout", "10S", 10_000),
        ("live.aggs", "FALSE", False),
        ("show.bad.records", "'false'", False),
        ("format.timestamp", "true", True),
    ],
)
def test_every_name_and_unit(name: str, value: str, expected: object) -> None:
    changed = holds(f"SET {name}={value};")
    assert changed[name] == expected
    assert {**changed, name: holds("")[name]} == holds("")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("SET max.size=0;", "max.size is from 1 to 209715200 here"),
        ("SET max.size=209715201;", "max.size is from 1 to 209715200 here"),
        ("SET max.size=1g;", "max.size is from 1 to 209715200 here"),
        ("SET max.size='-1';", "max.size is a whole number, alone or with 'b', 'k', 'm', 'g'"),
        ("SET max.size='1.5m';", "max.size is a whole number"),
        ("SET max.size='1s';", "max.size is a whole number"),
        ("SET max.size='9999999999999999';", "max.size is a whole number"),
        ("SET max.size='';", "max.size is a whole number"),
        ("SET max.size='١';", "max.size is a whole number"),
        ("SET max.query.time=61m;", "max.query.time is from 1 to 3600000 here"),
        ("SET max.query.time=1d;", "max.query.time is a whole number, alone or with 'ms', 's', 'm', 'h'"),
        ("SET max.idle.time=21s;", "max.idle.time is from 1 to 20000 here"),
        ("SET kafka.offset.timeout=0;", "kafka.offset.timeout is from 1 to 10000 here"),
        ("SET live.aggs=1;", "live.aggs is true or false"),
        ("SET live.aggs=;", ""),
        ("SET live.agg=true;", "live.agg cannot be set (did you mean live.aggs?)"),
        ("SET x=true;", "x cannot be set: there are live.aggs, max.idle.time"),
    ],
)
def test_every_mistake_is_told_with_its_place(text: str, words: str) -> None:
    with pytest.raises(QueryError) as raised:
        holds(text)
    assert raised.value.words.startswith(words), raised.value.words
    assert raised.value.position is not None


def test_no_statement_has_more_than_is_configured_and_the_last_one_counts() -> None:
    configured = LensesSqlSettings(max_size=100, max_idle_time_ms=500)
    assert holds("", configured)["max.size"] == 100
    assert holds("SET max.size=7; SET max.size=100;", configured)["max.size"] == 100
    with pytest.raises(QueryError, match="from 1 to 100 here"):
        holds("SET max.size=101;", configured)
    with pytest.raises(QueryError, match="from 1 to 500 here"):
        holds("SET max.idle.time=1s;", configured)


# --- executions ------------------------------------------------------------------------------------


def test_of_each_client_and_of_all() -> None:
    executions = Executions(3, 2)
    assert [executions.begin("a") for _ in range(2)] == [None, None]
    assert executions.begin("a") == "at most 2 queries of one client are executed at a time"
    assert executions.begin("b") is None
    assert executions.begin("c") == "at most 3 queries are executed at a time; try again"
    assert executions.count == 3
    executions.over("a")
    assert executions.begin("c") is None
    for client in ("a", "b", "c"):
        executions.over(client)
    assert executions.count == 0


def test_who_counts_as_one_client() -> None:
    ann = Identity("ann")
    assert client_of(ann, "10.0.0.1:1") == client_of(ann, "10.0.0.2:2")
    assert client_of(ann, "10.0.0.1:1") != client_of(Identity("bob"), "10.0.0.1:1")
    assert client_of(ANONYMOUS, "10.0.0.1:1") == client_of(ANONYMOUS, "10.0.0.1:2")
    assert client_of(ANONYMOUS, "[::1]:1") != client_of(ANONYMOUS, "[::2]:1")
    named_as_nobody = Identity(ANONYMOUS.name)
    assert client_of(named_as_nobody, "10.0.0.1:1") != client_of(ANONYMOUS, "10.0.0.1:1")
