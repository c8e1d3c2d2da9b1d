"""What kind of trouble an exception of Spark is, from chains of causes as Spark 4.2.0 gives them."""

from __future__ import annotations

import pytest

from kiwi_spark.driver.error_classification import Cause, classify_causes
from kiwi_spark.protocol.query_spec import ErrorKind

FAILED = Cause("org.apache.spark.SparkException", "Job aborted due to stage failure: Task 0 failed 1 times")
UDF = """[PYTHON_EXCEPTION] An exception was thrown from the Python worker: Traceback (most recent call last):
  File "pipelines.py", line 4, in f
    raise ValueError("boom")
ValueError: boom
 SQLSTATE: 38000"""


@pytest.mark.parametrize(
    ("causes", "trouble", "words"),
    [
        ([FAILED, Cause("org.apache.spark.api.python.PythonException", UDF)], "user", "ValueError: boom"),
        (
            [
                Cause(
                    "SparkRuntimeException",
                    "[USER_RAISED_EXCEPTION] kiwi-gw bad record: input f, offset 3: {",
                )
            ],
            "bad_record",
            "bad record: input f, offset 3: {",
        ),
        *(
            ([FAILED, Cause(f"kiwigw.spark.{name}", "it is the query")], "query", "it is the query")
            for name in ("TooLarge", "NoPlace")
        ),
        (
            [Cause("kiwigw.spark.StillWritten", "another process writes")],
            "unreachable",
            "another process writes",
        ),
        (
            [
                Cause("java.lang.RuntimeException", "a row was not written to the topic t: too large"),
                Cause("org.apache.kafka.common.errors.RecordTooLargeException", "The message is too large"),
            ],
            "query",
            "The message is too large",
        ),
        (
            [FAILED, Cause("java.io.IOException", "No space left on device")],
            "no_space",
            "No space left on device",
        ),
        (
            [FAILED, Cause("org.apache.kafka.clients.consumer.OffsetOutOfRangeException", "out of range")],
            "data_loss",
            "out of range",
        ),
        (
            [
                Cause(
                    "java.lang.IllegalStateException",
                    "Partition t-0's offset was changed from 5 to 1. Some data "
                    "may have been lost because they are not available in Kafka any more",
                )
            ],
            "data_loss",
            "from 5 to 1",
        ),
        (
            [
                Cause("java.util.concurrent.ExecutionException", "x"),
                Cause(
                    "org.apache.kafka.common.errors.TimeoutException",
                    "Timed out waiting for a node assignment",
                ),
            ],
            "unreachable",
            "node assignment",
        ),
        (
            [
                Cause("org.apache.kafka.common.KafkaException", "Failed to create new KafkaAdminClient"),
                Cause("org.apache.kafka.common.config.ConfigException", "No resolvable bootstrap urls"),
            ],
            "unreachable",
            "bootstrap",
        ),
        (
            [Cause("org.apache.spark.sql.execution.streaming.state.StateSchemaNotCompatible", "no")],
            "checkpoint",
            "no",
        ),
        (
            [
                FAILED,
                Cause(
                    "org.apache.kafka.clients.consumer.OffsetOutOfRangeException", "Fetch position 5 is out"
                ),
            ],
            "data_loss",
            "`fail_on_data_loss: false` of the input goes on without them",
        ),
        (
            [Cause("org.apache.hadoop.fs.ParentNotDirectoryException", "Parent path is not a directory: /a")],
            "no_space",
            "/a",
        ),
        (
            [Cause("org.apache.hadoop.fs.ChecksumException", "Checksum error: /a/meta.json at 0")],
            "checkpoint",
            "/a/meta.json at 0 (remove",
        ),
        ([Cause("java.io.FileNotFoundException", "/a/b (Permission denied)")], "no_space", "/a/b"),
        (
            [Cause("org.apache.spark.api.python.PythonException", UDF.replace("boom", "Permission denied"))],
            "user",
            "ValueError: Permission denied",
        ),
        (
            [
                Cause("org.apache.spark.SparkException", "Python worker failed to connect back."),
                Cause(
                    "java.net.SocketTimeoutException",
                    "Timed out while waiting for the Python worker to connect back",
                ),
            ],
            "unreachable",
            "Python worker",
        ),
        ([FAILED], "gone", "Job aborted"),
        *(
            (
                [Cause("org.apache.spark.SparkException", f"[{condition}] Of /state/a/0.")],
                "checkpoint",
                "Of /state/a/0. (remove the source's folder there",
            )
            for condition in (
                "CHECKPOINT_FILE_CHECKSUM_VERIFICATION_FAILED",
                "STATE_STORE_ROW_CHECKSUM_VERIFICATION_FAILED",
                "STREAMING_CHECKPOINT_MISSING_METADATA_FILE",
                "STREAMING_STATEFUL_OPERATOR_MISSING_STATE_DIRECTORY",
                "STATE_STORE_CHECKPOINT_LOCATION_NOT_EMPTY",
            )
        ),
    ],
)
def test_causes_are_a_kind_of_trouble_with_words(causes: list[Cause], trouble: ErrorKind, words: str) -> None:
    kind, message = classify_causes(causes)
    assert kind == trouble
    assert words in message


def test_a_full_disk_counts_before_what_it_brought_about() -> None:
    causes = [
        Cause("org.apache.spark.api.python.PythonException", UDF),
        Cause("java.io.IOException", "No space left on device"),
    ]
    assert classify_causes(causes)[0] == "no_space"


def test_the_root_says_it_and_what_to_do_is_said_in_our_words() -> None:
    lost = (
        "Some data may have been lost because they are not available in Kafka any more;\n"
        "either the data was aged out by Kafka.\n"
        "If you don't want your streaming query to fail on such cases, set the source option failOnDataLoss "
        "to false.\nReason: Partition t-0 offset was changed from 20 to 5. SQLSTATE: XXKST"
    )
    outer = f"[STREAM_FAILED] Query [id = 1] terminated with exception: {lost}\n=== Streaming Query ===\nplan"
    client = Cause("OffsetOutOfRangeException", "Fetch position FetchPosition{offset=20} is out of range")
    for causes in (
        [Cause("StreamingQueryException", outer)],
        [Cause("x", outer), Cause("y.Lost", lost)],
        [Cause("x", outer), Cause("y.Lost", lost), client],
    ):
        trouble, words = classify_causes(causes)
        assert trouble == "data_loss"
        then = "`fail_on_data_loss: false` of the input goes on without them"
        assert words.endswith(f"changed from 20 to 5. SQLSTATE: XXKST ({then})")
        assert "failOnDataLoss" not in words
    assert words.startswith("Lost: Some data may have been lost")
