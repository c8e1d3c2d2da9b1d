"""What a driver writes, as records of the log."""

from __future__ import annotations

import sys

import pytest
import structlog
import trio

from kiwi_spark.gateway.driver_process import LONGEST, DriverProcess, OutputRecords

STACK = """26/11/22 WARN TaskSetManager: Lost task 0.0: java.lang.IllegalStateException: no

\tat a.B.c(B.scala:1)
\t... 3 more
Caused by: java.io.IOException: disk
\tat d.E.f(E.java:2)
\tSuppressed: java.lang.Error: x"""
BELOW = """26/11/22 WARN KafkaOffsetReaderAdmin: Error in attempt 1 getting Kafka offsets:
java.util.concurrent.ExecutionException: org.apache.kafka.common.errors.UnknownTopicOrPartitionException: no
\tat java.base/java.util.concurrent.CompletableFuture.get(CompletableFuture.java:2073)"""
PYTHON = """Traceback (most recent call last):
  File "x.py", line 1, in <module>
    f()
ValueError: it is 50"""


def records(text: str, step: int = 1_000_000) -> list[str]:
    found: list[str] = []
    reader, data = OutputRecords(), text.encode()
    for at in range(0, len(data), step):
        found += reader.feed(data[at : at + step])
    return [*found, *reader.close()]


@pytest.mark.parametrize("step", [1, 7, 1000])
def test_a_stack_is_one_record_with_the_line_above_it(step: int) -> None:
    stack = STACK.replace("\n\n", "\n")
    assert records(f"one\n{STACK}\ntwo\n\nthree\n{PYTHON}\nfour\n", step) == [
        "one",
        stack,
        "two",
        f"three\n{PYTHON}",
        "four",
    ]
    assert records(f"{PYTHON}\nfour", step) == [PYTHON, "four"]
    assert records(f"one\n{BELOW}\ntwo", step) == ["one", BELOW, "two"]


def test_a_record_is_bounded_and_says_what_is_left_out() -> None:
    lines = [f"\tat {'x' * 95}"] * 1_000
    (found,) = records("\n".join(["E", *lines]), 4096)
    assert found.startswith("E\n\tat ")
    assert len(found) < LONGEST + 40
    assert found.endswith(f"({1 + 100 * 1_000 - LONGEST} bytes more)")
    (found,) = records("y" * 5 * LONGEST, 100)
    assert found == f"{'y' * LONGEST} ... ({4 * LONGEST} bytes more)"


def test_a_record_is_whole_when_nothing_comes_for_a_while() -> None:
    reader = OutputRecords()
    assert list(reader.feed(b"one\n")) == []
    assert list(reader.idle()) == ["one"]
    assert list(reader.feed(b"half")) == []
    assert list(reader.idle()) == []
    assert list(reader.feed(b" a line\n\tat x\n")) == []
    assert list(reader.idle()) == ["half a line\n\tat x"]


SAID = {
    "WARNING: Using incubator modules: jdk.incubator.vector": "debug",
    "Using Spark's default log4j profile: org/apache/spark/log4j2-defaults.properties": "debug",
    "26/11/25 18:52:01 WARN Utils: Your hostname, vm, resolves to a loopback address: 127.0.0.1": "debug",
    "26/11/25 18:52:01 WARN Utils: Set SPARK_LOCAL_IP if you need to bind to another address": "debug",
    "26/11/25 18:52:01 WARN NativeCodeLoader: Unable to load native-hadoop library": "debug",
    'Setting default log level to "WARN".': "debug",
    "26/11/25 18:52:02 INFO SparkContext: Running Spark version 4.2.0": "debug",
    "26/11/25 18:52:09 WARN TaskSetManager: [queryId = 77f49] [batchId = 0] Lost task 0.0 in stage 3.0 "
    "(TID 7) (127.0.0.1 executor driver): "
    "TaskKilled (Stage cancelled: Job 3 cancelled part of cancelled job group 9)": "debug",
    "26/11/25 18:52:09 WARN TaskSetManager: Lost task 0.0 in stage 3.0: java.io.IOException: disk": "warning",
    "26/11/25 18:52:09 WARN Utils: Service 'x' could not bind on port 4040": "warning",
    "26/11/25 18:52:10 ERROR SparkContext: Failed to add a jar": "warning",
    "ERROR the JVM has ended (SIGKILL)": "error",
    "anything else": "info",
}


async def test_what_every_start_and_stop_says_is_for_debugging_and_the_end_of_the_jvm_an_error() -> None:
    text = "\n".join(SAID)
    process = await DriverProcess.start([sys.executable, "-c", f"print({text!r})"], {}, 0)
    with trio.fail_after(20), structlog.testing.capture_logs() as lines:
        await process.log_output()
        await process.end()
    assert {line["line"]: line["log_level"] for line in lines} == SAID
    assert "anything else" in process.last_lines
    assert not [line for line in process.last_lines if SAID[line] == "debug"]
