"""Every API of PySpark that keeps state or hands over pandas, in a real driver with the locked packages."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import msgspec
import pytest

from kiwi_spark.spec import OutputMode, Query, Session, TableInput, Watermark
from kiwi_spark.wire import Progress
from tests.integration.spark.driver_peer import DriverPeer
from tests.integration.spark.shared_classes import small_jvm

pytestmark = [pytest.mark.integration, pytest.mark.timeout(600)]

SCHEMA: Final = "k STRING, n INT, at TIMESTAMP"
HDFS: Final = "org.apache.spark.sql.execution.streaming.state.HDFSBackedStateStoreProvider"
PROVIDER: Final = "spark.sql.streaming.stateStore.providerClass"

SUMS: Final = [{"k": "a", "total": 3}, {"k": "b", "total": 4}]
ROWS: Final = [{"k": "a", "n": 1}, {"k": "a", "n": 2}, {"k": "b", "n": 4}]
KEYS: Final = [{"k": "a"}, {"k": "b"}]

APIS: Final[dict[str, tuple[OutputMode, list[dict[str, Any]]]]] = {
    "map_in_pandas": ("append", [{**row, "n": row["n"] * 2} for row in ROWS]),
    "map_in_arrow": ("append", ROWS),
    "pandas_udf": ("append", [{"n": 2}, {"n": 3}, {"n": 5}]),
    "apply_in_pandas_with_state": ("update", SUMS),
    "transform_with_state_in_pandas": ("update", SUMS),
    "drop_duplicates": ("append", KEYS),
    "drop_duplicates_within_watermark": ("append", KEYS),
    "joined_streams": ("append", [{**row, "m": row["n"]} for row in ROWS]),
    "session_windows": ("append", [{"k": "a", "c": 2}, {"k": "b", "c": 1}]),
    "aggregates": ("update", SUMS),
}
"""By its name in `stateful_apis`: the output mode, and the rows that come of `write_rows`."""


def session(**conf: str) -> Session:
    own = {"spark.driver.memory": "1g", "spark.driver.extraJavaOptions": small_jvm(), **conf}
    return Session(master="local[2]", conf=own, python_path=[str(Path(__file__).parent)])


@pytest.fixture(scope="module")
def driver() -> Iterator[DriverPeer]:
    peer = DriverPeer(session())
    yield peer
    peer.close()


def write_rows(folder: Path, name: str = "1.json", *, day: int = 1) -> None:
    rows = [{**row, "at": f"2013-01-{day:02}T00:0{number}:00Z"} for number, row in enumerate(ROWS)]
    folder.mkdir(exist_ok=True)
    (folder / name).write_text("\n".join(map(json.dumps, rows)))


def query(folder: Path, name: str, mode: OutputMode = "update") -> Query:
    table = TableInput(format="json", path=str(folder / "in"), schema=SCHEMA, stream=True, max_files=1)
    marks = {one: Watermark("at", "1 minute") for one in ("events", "others")}
    return Query(
        source=name,
        tables={"events": table, "others": table},
        watermarks=marks,
        transform=f"stateful_apis:{name}",
        output_mode=mode,
        trigger="",
        checkpoint=str(folder / "state"),
    )


def results(driver: DriverPeer, run: int, asked: Query) -> tuple[list[dict[str, Any]], list[str]]:
    """All rows of a query that ends by itself, and its notes."""
    started, rows = driver.start(run, asked)
    found: list[dict[str, Any]] = []
    while True:
        try:
            _, batch = rows.batch()
        except EOFError:
            break
        found += [json.loads(row["value"]) for row in batch]
    ended = driver.ended(run)
    assert ended.trouble is None, ended.message
    return found, started.notes


def test_one_query_of_every_api(driver: DriverPeer, tmp_path: Path) -> None:
    write_rows(tmp_path / "in")
    write_rows(tmp_path / "in", "2.json", day=20)  # for what waits until its windows are over
    write_rows(tmp_path / "in", "3.json", day=30)
    for run, (name, (mode, expected)) in enumerate(APIS.items(), 1):
        found, _ = results(driver, run, query(tmp_path, name, mode))
        assert [row for row in expected if row not in found] == [], (name, found)
