"""What kind of trouble an exception of Spark is, from chains of causes as Spark 4.0.0 gives them."""

from __future__ import annotations

import pytest

from kiwi_spark.driver.troubles import Cause, classify
from kiwi_spark.spec import Trouble

FAILED = Cause("org.apache.spark.SparkException", "Job aborted due to stage failure: Task 0 failed 1 times")
UDF = """Traceback (most recent call last):
  File "pipelines.py", line 4, in f
    raise ValueError("boom")
ValueError: boom
"""


PYTHON = """[PYTHON_STREAMING_DATA_SOURCE_RUNTIME_ERROR] Traceback (most recent call last):
  File "site-packages/kiwi_spark/driver/gateway_source.py", line 136, in read
    raise self._lost(refused) from refused
kiwi_spark.driver.bridge_client.{}
"""


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
                Cause(
                    "org.apache.spark.SparkException",
                    PYTHON.format("BridgeAway: the gateway does not answer"),
                )
            ],
            "unreachable",
            "BridgeAway: the gateway does not answer",
        ),
        (
            [Cause("org.apache.spark.SparkException", PYTHON.format("BridgeRefused: start: it has no past"))],
            "query",
            "BridgeRefused: start: it has no past",
        ),
        (
            [Cause("org.apache.spark.SparkException", PYTHON.format("BridgeRefused: denied: no"))],
            "gone",
            "BridgeRefused: denied: no",
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
    ],
)
def test_causes_are_a_kind_of_trouble_with_words(causes: list[Cause], trouble: Trouble, words: str) -> None:
    kind, message = classify(causes)
    assert kind == trouble
    assert words in message


def test_a_full_disk_counts_before_what_it_brought_about() -> None:
    causes = [
        Cause("org.apache.spark.api.python.PythonException", UDF),
        Cause("java.io.IOException", "No space left on device"),
    ]
    assert classify(causes)[0] == "no_space"
