"""The classes in the JVM that bring rows to the gateway, and tell how queries do (`jvm/kiwigw/spark`), as the
driver uses them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any, Final, cast

from py4j.protocol import Py4JError
from pyspark import SparkContext
from pyspark.sql import SparkSession

from kiwi_spark.driver.inputs import TIMEOUTS, client_options
from kiwi_spark.protocol.query_spec import SinkSpec

SINK: Final = "kiwigw.spark.GatewaySink"


def _classes() -> Any:
    jvm: Any = SparkContext._jvm
    return jvm.kiwigw.spark


class RowsLink:
    """The connection on which the rows of a run go from the JVM to the gateway. Any thread may close it: who
    waits in it then gets an error."""

    def __init__(self, socket: str, token: str, run: int) -> None:
        """Open it. Raises Py4JJavaError: the gateway is not there."""
        self._run = run
        _classes().GatewayLink.open(socket, token, run)

    @property
    def rows(self) -> int:
        """Return how many rows were sent in batches."""
        return int(_classes().GatewayLink.rows(self._run))

    def close(self) -> None:
        """Close it, if the JVM is still there."""
        with suppress(Py4JError):
            _classes().GatewayLink.close(self._run)

    def options(self, batch_bytes: int) -> dict[str, str]:
        """Return what the sink is told."""
        return {"run": str(self._run), "batchBytes": str(batch_bytes)}


class TopicLink:
    """The way of the rows of a run, which have places, from the JVM to a Kafka topic. Any thread may close
    it."""

    def __init__(
        self, run: int, sink: SinkSpec, begin: Mapping[str, Mapping[int, int]], checkpoint: str
    ) -> None:
        """Open it. begin: by the names of the inputs, in the query's order, the first records that it may
        read. checkpoint: its folder. Raises Py4JJavaError: Kafka's client cannot be made, or another process
        writes with this checkpoint (which is seen in folders of this machine)."""
        self._run = run
        self._options = client_options(sink.options)
        places = (f"{name}:{p} {offset}" for name, own in begin.items() for p, offset in own.items())
        _classes().TopicLink.open(
            run, self._options, sink.topic, ",".join(begin), ",".join(places), _on_this_machine(checkpoint)
        )

    def find(self, query: str, since: int) -> None:
        """Find what the topic has of a query, by Spark's id, since then (ms since the epoch): that is not
        written again. Raises Py4JJavaError."""
        options = {**client_options(TIMEOUTS), **self._options}
        _classes().TopicLink.find(self._run, options, query, since)

    def progress(self) -> int:
        """Return 0, or 1 when the query has begun to read, or 2 when it has written rows."""
        return int(_classes().TopicLink.progress(self._run))

    def failure(self) -> Exception | None:
        """Return why a row was not taken: then this is what has ended the run."""
        try:
            _classes().TopicLink.check(self._run)
        except (Py4JError, OSError) as error:  # or the JVM is gone
            return error
        return None

    def close(self) -> None:
        """Close it, if the JVM is still there: what is on its way is written first."""
        with suppress(Py4JError):
            _classes().TopicLink.close(self._run)

    def options(self, batch_bytes: int) -> dict[str, str]:
        """Return what the sink is told."""
        return {"run": str(self._run), "toTopic": "true"}


def _on_this_machine(folder: str) -> str:
    """Return the path of a folder, empty if it is not one of this machine (`hdfs://...`)."""
    if folder.startswith("file:"):
        return "/" + folder.removeprefix("file:").lstrip("/")
    return folder if folder.startswith("/") else ""


@contextmanager
def query_reports(spark: SparkSession) -> Iterator[Any]:
    """Collect, within the block, what Spark tells of the query of a session (`QueryReports.java`)."""
    reports, streams = _classes().QueryReports(), cast("Any", spark)._jsparkSession.streams()
    streams.addListener(reports)
    try:
        yield reports
    finally:
        with suppress(Py4JError):  # the JVM is gone
            streams.removeListener(reports)


@contextmanager
def scheduler_pool(context: SparkContext) -> Iterator[None]:
    """Serve what this thread runs in the block as one batch that has come now (`SchedulerPool.java`)."""
    java: Any = context._jsc.sc()
    pools = _classes().SchedulerPool
    name = pools.begin(java)
    try:
        yield
    finally:
        pools.end(java, name)
