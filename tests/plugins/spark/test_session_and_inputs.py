"""What is configured for Spark, without a Spark."""

from __future__ import annotations

import tempfile

import pytest

from kiwi_spark.driver.bad_records import BadRecordCounter, added_up
from kiwi_spark.driver.inputs import start_options
from kiwi_spark.driver.progress import behind_newest, watermark_ms
from kiwi_spark.driver.session import configuration
from kiwi_spark.protocol.query_spec import SessionSpec


def test_the_users_configuration_wins() -> None:
    conf = configuration(SessionSpec(master="local[*]", conf={"spark.ui.enabled": "true"}))
    assert conf["spark.ui.enabled"] == "true"
    assert conf["spark.sql.session.timeZone"] == "UTC"
    assert conf["spark.driver.bindAddress"] == "127.0.0.1"
    assert not {"spark.jars", "spark.jars.packages"} & set(conf)


OURS = "-Xss16m -XX:+ExitOnOutOfMemoryError"


@pytest.mark.parametrize(
    ("own", "all_"),
    [
        ("", OURS),
        ("-Da=b", f"-Da=b {OURS}"),
        ("-Xss4m", "-Xss4m -XX:+ExitOnOutOfMemoryError"),
        ("-XX:+CrashOnOutOfMemoryError", "-XX:+CrashOnOutOfMemoryError -Xss16m"),
    ],
)
def test_threads_have_a_deep_stack_and_no_memory_ends_all_unless_the_user_says_more(
    own: str, all_: str
) -> None:
    conf = configuration(SessionSpec(master="local[1]", conf={"spark.driver.extraJavaOptions": own}))
    assert conf["spark.driver.extraJavaOptions"] == f"{all_} -Djava.io.tmpdir={tempfile.gettempdir()}"


def test_temporary_files_are_where_the_gateway_said_unless_the_user_said_where(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", "/a place")
    conf = configuration(SessionSpec(master="local[1]"))
    assert conf["spark.driver.extraJavaOptions"] == f"{OURS} '-Djava.io.tmpdir=/a place'"
    assert conf["spark.sql.warehouse.dir"] == "/a place/spark-warehouse"
    own = {"spark.driver.extraJavaOptions": "-Djava.io.tmpdir=/b", "spark.sql.catalogImplementation": "hive"}
    conf = configuration(SessionSpec(master="local[1]", conf=own))
    assert conf["spark.driver.extraJavaOptions"] == f"-Djava.io.tmpdir=/b {OURS}"
    assert "spark.sql.warehouse.dir" not in conf


def test_only_a_local_driver_is_bound_to_loopback() -> None:
    assert "spark.driver.host" not in configuration(SessionSpec(master="spark://there:7077"))


def test_only_a_local_driver_has_the_file_system_for_checkpoints_unless_the_user_says_which() -> None:
    key, stock = "spark.hadoop.fs.AbstractFileSystem.file.impl", "org.apache.hadoop.fs.local.LocalFs"
    assert configuration(SessionSpec(master="local[1]"))[key] == "kiwigw.spark.DirectLocalFs"
    assert configuration(SessionSpec(master="local[1]", conf={key: stock}))[key] == stock
    assert key not in configuration(SessionSpec(master="spark://there:7077"))


def test_where_a_topic_is_read_from() -> None:
    assert start_options("latest") == {"startingOffsets": "latest"}
    assert start_options(12) == {
        "startingTimestamp": "12",
        "startingOffsetsByTimestampStrategy": "latest",
    }


def test_bad_records_are_added_up_over_the_inputs() -> None:
    counted = {"a": (0, "", ""), "b": (2, "offset 3: x", "n: INT"), "c": (1, "offset 1: y", "")}
    assert added_up(counted) == (3, "input b, offset 3: x", "n: INT")
    assert added_up({}) == (0, "", "")


class CountedInJava:
    def take(self) -> str:
        return f"2 partition 0 offset 1: {'x' * 300}"


def test_what_is_wrong_with_a_bad_record_is_not_asked_for_every_batch() -> None:
    asked: list[str] = []

    def explain(value: str) -> str:
        asked.append(value)
        return "why"

    counter = BadRecordCounter(CountedInJava(), explain)
    shown = f"partition 0 offset 1: {'x' * 200}"
    assert counter.take() == (2, shown, "why")
    assert counter.take() == (2, shown, "")
    assert asked == ["x" * 300]


@pytest.mark.parametrize(
    ("metrics", "behind"),
    [([], None), ([{}], None), ([{"maxOffsetsBehindLatest": "3"}, {}, {"maxOffsetsBehindLatest": "7"}], 7)],
)
def test_the_partition_that_is_furthest_behind_counts(
    metrics: list[dict[str, str]], behind: int | None
) -> None:
    assert behind_newest(metrics) == behind


@pytest.mark.parametrize(
    ("text", "ms"),
    [(None, None), ("1970-01-01T00:00:00.000Z", None), ("2020-01-01T00:00:00.5Z", 1577836800500)],
)
def test_a_watermark_is_ms_since_the_epoch(text: str | None, ms: int | None) -> None:
    assert watermark_ms(text) == ms
