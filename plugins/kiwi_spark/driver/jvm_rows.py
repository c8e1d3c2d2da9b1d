"""The classes in the JVM that bring rows to the gateway, and tell how queries do (`jvm/kiwigw/spark`), as the
driver uses them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any, Final, cast

from py4j.protocol import Py4JError
from pyspark import SparkContext
from pyspark.sql import SparkSession

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
