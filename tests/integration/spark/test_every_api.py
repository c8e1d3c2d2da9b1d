"""Every API of PySpark that keeps state or hands over pandas, in a real driver with the locked packages."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

import msgspec
import pytest

from kiwi_gw.query.schema import Schema
from kiwi_spark.protocol.messages import BatchProgress, QueryStarted, StartQuery
from kiwi_spark.protocol.query_spec import OutputMode, QuerySpec, TableInput, Watermark
from tests.integration.spark.driver_peer import DriverPeer, runs, usual_session

pytestmark = [pytest.mark.integration, pytest.mark.timeout(600)]
extended = pytest.mark.extended

SCHEMA: Final = "k STRING, n INT, at TIMESTAMP"
HDFS: Final = "org.apache.spark.sql.execution.streaming.state.HDFSBackedStateStoreProvider"
PROVIDER: Final = "spark.sql.streaming.stateStore.providerClass"

SUMS: Final[list[dict[str, Any]]] = [{"k": "a", "total": 3}, {"k": "b", "total": 4}]
ROWS: Final[list[dict[str, Any]]] = [{"k": "a", "n": 1}, {"k": "a", "n": 2}, {"k": "b", "n": 4}]
KEYS: Final[list[dict[str, Any]]] = [{"k": "a"}, {"k": "b"}]

APIS: Final[dict[str, tuple[OutputMode, list[dict[str, Any]]]]] = {
    "map_in_pandas": ("append", [{**row, "n": row["n"] * 2} for row in ROWS]),
    "map_in_arrow": ("append", ROWS),
    "pandas_udf": ("append", [{"n": 2}, {"n": 3}, {"n": 5}]),
    "plain_udf": ("append", [{"n": 2}, {"n": 3}, {"n": 5}]),
    "apply_in_pandas": ("append", SUMS),
    "apply_in_pandas_with_state": ("update", SUMS),
    "transform_with_state_in_pandas": ("update", SUMS),
    "transform_with_state": ("update", SUMS),
    "drop_duplicates": ("append", KEYS),
    "drop_duplicates_within_watermark": ("append", KEYS),
    "joined_streams": ("append", [{**row, "m": row["n"]} for row in ROWS]),
    "session_windows": ("append", [{"k": "a", "c": 2}, {"k": "b", "c": 1}]),
    "aggregates": ("update", SUMS),
}
"""By its name in `stateful_apis`: the output mode, and the rows that come of `write_rows`."""


def write_rows(folder: Path, name: str = "1.json", *, day: int = 1) -> None:
    rows = [{**row, "at": f"2013-01-{day:02}T00:0{number}:00Z"} for number, row in enumerate(ROWS)]
    folder.mkdir(exist_ok=True)
    (folder / name).write_text("\n".join(map(json.dumps, rows)))


def query(folder: Path, name: str, mode: OutputMode = "update") -> QuerySpec:
    one = {"maxFilesPerTrigger": "1"}
    table = TableInput(format="json", path=str(folder / "in"), schema=SCHEMA, stream=True, options=one)
    marks = {one: Watermark("at", "1 minute") for one in ("events", "others")}
    return QuerySpec(
        source=name,
        tables={"events": table, "others": table},
        watermarks=marks,
        transform=f"stateful_apis:{name}",
        output_mode=mode,
        trigger="",
        checkpoint=str(folder / "state"),
    )


def results(driver: DriverPeer, asked: QuerySpec) -> tuple[list[dict[str, Any]], list[str]]:
    """All rows of a query that ends by itself, and its notes."""
    run = next(runs)
    started, rows = driver.start(run, asked)
    found: list[dict[str, Any]] = []
    while True:
        try:
            _, batch = rows.batch()
        except EOFError:
            break
        found += [json.loads(row["value"]) for row in batch]
    ended = driver.ended(run)
    assert ended.error_kind is None, ended.message
    return found, started.notes


def by_key(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return sorted(rows, key=lambda row: str(row["k"]))


@extended
def test_one_query_of_every_api(driver: DriverPeer, tmp_path: Path) -> None:
    write_rows(tmp_path / "in")
    write_rows(tmp_path / "in", "2.json", day=20)  # for what waits until its windows are over
    write_rows(tmp_path / "in", "3.json", day=30)
    for name, (mode, expected) in APIS.items():
        found, _ = results(driver, query(tmp_path, name, mode))
        assert [row for row in expected if row not in found] == [], (name, found)


@extended
def test_a_checkpoint_keeps_the_state_store_that_it_was_made_with(driver: DriverPeer, tmp_path: Path) -> None:
    """And what the other one cannot do ends a query for good."""
    write_rows(tmp_path / "in")
    asked = query(tmp_path, "apply_in_pandas_with_state")
    usual = usual_session()
    before = DriverPeer(msgspec.structs.replace(usual, conf={**usual.conf, PROVIDER: HDFS}))
    try:
        assert by_key(results(before, asked)[0]) == SUMS
        ended = before.fail(next(runs), query(tmp_path, "transform_with_state_in_pandas"))
    finally:
        before.close()
    assert ended.error_kind == "query", ended.message
    write_rows(tmp_path / "in", "2.json", day=2)
    found, _ = results(driver, asked)
    assert by_key(found) == [{**row, "total": 2 * row["total"]} for row in SUMS]


def test_rows_behind_the_watermark_are_counted_and_not_in_the_result(
    driver: DriverPeer, tmp_path: Path
) -> None:
    asked = query(tmp_path, "drop_duplicates_within_watermark", "append")
    write_rows(tmp_path / "in", day=30)
    assert by_key(results(driver, asked)[0]) == KEYS
    write_rows(tmp_path / "in", "2.json", day=1)
    run = next(runs)
    _, rows = driver.start(run, asked)
    said = driver.control.expect(BatchProgress, run=run) if rows.batch()[1] == [] else None
    assert said is not None
    assert said.late == len(ROWS)
    assert said.state_bytes > 0
    assert {"addBatch", "queryPlanning", "walCommit"} <= set(said.phases)
    assert driver.ended(run).error_kind is None


def test_a_bounded_result_of_files_and_one_of_tables_alone(driver: DriverPeer, tmp_path: Path) -> None:
    """A stream of files goes on from its checkpoint; of tables a result is computed again, as the same."""
    write_rows(tmp_path / "in")
    counted = msgspec.structs.replace(
        query(tmp_path, "files"),
        transform="",
        sql="SELECT k, n FROM events",
        output_mode="append",
        watermarks={},
    )
    inferred = {"events": msgspec.structs.replace(counted.tables["events"], schema="")}
    counted = msgspec.structs.replace(counted, tables=inferred)
    assert sorted(map(str, results(driver, counted)[0])) == sorted(map(str, ROWS))
    write_rows(tmp_path / "in", "2.json", day=2)
    assert len(results(driver, counted)[0]) == 3
    static = {"events": msgspec.structs.replace(counted.tables["events"], stream=False)}
    once = msgspec.structs.replace(
        counted, source="tables", tables=static, sql="SELECT k, sum(n) AS total FROM events GROUP BY k"
    )
    begun = []
    for run in (next(runs), next(runs)):
        driver.control.say(StartQuery(run=run, query=once))
        begun.append(driver.control.expect(QueryStarted, run=run))
        assert driver.accept(run).batch()[1] != []
        assert driver.control.expect(BatchProgress, run=run).batch == 0
        assert driver.ended(run).error_kind is None
    assert (begun[0].query, begun[0].next_batch) == (begun[1].query, 0)
    assert driver.analyse(once).columns == [("k", "string"), ("total", "bigint")]


def test_a_batch_above_the_bound_is_refused_whole_for_good_and_before_it_is_collected(
    driver: DriverPeer, tmp_path: Path
) -> None:
    """One of 1.4 GB has no room in the driver; which goes on, and brings what is within the bound."""
    write_rows(tmp_path / "in")
    files = query(tmp_path, "large").tables["events"]
    tables = {"events": msgspec.structs.replace(files, stream=False)}
    whole = QuerySpec(
        source="large", tables=tables, trigger="", checkpoint=str(tmp_path / "state"), batch_bytes=1 << 20
    )

    def of(rows: int, **more: Any) -> QuerySpec:
        words = "SELECT e.n, r.id, repeat('x', 200) AS s FROM events e CROSS JOIN range(%d) r"
        return msgspec.structs.replace(whole, sql=words % rows, **more)

    ended = driver.fail(next(runs), of(2_000_000))
    assert (ended.error_kind, "nothing of it is sent" in ended.message) == ("query", True), ended
    assert "more bytes than `spark.batch_bytes` allows (1,048,576)" in ended.message
    stream = {"tables": {"events": files}, "source": "larger"}
    assert driver.fail(next(runs), of(100_000, **stream)).error_kind == "query"
    write_rows(tmp_path / "in", "2.json", day=2)
    several = msgspec.structs.replace(files, options={"maxFilesPerTrigger": "2"})
    refused = of(3_000, source="several", tables={"events": several})
    assert driver.fail(next(runs), refused).error_kind == "query"
    fewer = msgspec.structs.replace(refused, tables={"events": files})
    ended = driver.fail(next(runs), fewer)  # the same batch again
    assert "Smaller batches" in ended.message
    assert "need a new checkpoint" in ended.message
    anew = msgspec.structs.replace(fewer, batch_bytes=4 << 20, source="anew")
    assert len(results(driver, anew)[0]) == 2 * 9_000
    more = msgspec.structs.replace(fewer, batch_bytes=8 << 20)
    assert len(results(driver, more)[0]) == 2 * 9_000
    (tmp_path / "in" / "2.json").unlink()
    assert len(results(driver, of(1_000))[0]) == 3_000
    again = of(1_000, **{**stream, "source": "small"})
    assert len(results(driver, again)[0]) == 3_000


def test_a_query_says_what_its_results_are_made_of(driver: DriverPeer, tmp_path: Path) -> None:
    """Of every kind of column, also nested, and of a function in Python."""
    write_rows(tmp_path / "in")
    asked = msgspec.structs.replace(
        query(tmp_path, "described", "append"),
        transform="",
        watermarks={},
        sql="SELECT n, n IS NULL AS no, n / 2 AS half, cast(n AS DECIMAL(9, 2)) AS d, at, "
        "parse_json('1') AS v, array(named_struct('x y', k)) AS a, map(n, map('b', n)) AS m, NULL AS z, "
        "named_struct('p`q', 1) AS odd, interval 1 day AS i, cast(k AS BINARY) AS b FROM events",
    )
    run = next(runs)
    started, rows = driver.start(run, asked)
    row = json.loads(rows.batch()[1][0]["value"])
    assert driver.stop(run).error_kind is None
    assert started.members == (
        "`n` INT, `no` BOOLEAN, `half` DOUBLE, `d` STRING, `at` STRING, `v` VARIANT, "
        "`a` ARRAY<STRUCT<`x y` STRING>>, `m` MAP<STRING, MAP<STRING, INT>>, `z` VARIANT, `odd` VARIANT, "
        "`i` STRING, `b` STRING"
    )
    known = Schema.parse(started.members)
    assert [name for name, _ in known.value.fields] == list(row)
    run = next(runs)
    started, _ = driver.start(run, query(tmp_path, "aggregates"))
    assert (driver.stop(run).error_kind, started.members) == (None, "`k` STRING, `total` BIGINT")


def test_a_result_of_tables_that_takes_for_ever_is_stopped(driver: DriverPeer, tmp_path: Path) -> None:
    """A reload that alters it need not wait for it."""
    write_rows(tmp_path / "in")
    tables = {"events": msgspec.structs.replace(query(tmp_path, "ever").tables["events"], stream=False)}
    words = "SELECT sum(e.n * r.id % 7) AS s FROM events e CROSS JOIN range(1000000000000) r"
    asked = QuerySpec(source="ever", tables=tables, sql=words, trigger="", checkpoint=str(tmp_path / "state"))
    for _ in range(2):
        run = next(runs)
        driver.start(run, asked)
        assert driver.stop(run).error_kind is None
