"""Sessions on a Spark Connect server.

Theory of operation. A query that was started over Connect goes on when its client is gone, for as long as
its session is there, and the server keeps a session while a query runs in it. So every source has a session
of its own whose id follows from its checkpoint: a driver that comes later is in the same session again,
finds there what an earlier one left, and stops it before it starts anything. (A query that goes on from the
same checkpoint Spark would stop by itself, but not one that left that checkpoint for a new generation.)

A session that was not used for an hour is closed by the server, which refuses its id from then on; what ran
in it was stopped with it. The next one has the next number in its id.

Sessions are left open here and only the connection is closed: to release one is to close it.
"""

from __future__ import annotations

import itertools
import os
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any, Final

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from kiwi_spark.protocol.query_spec import QuerySpec, SessionSpec

PROVIDER: Final = "spark.sql.streaming.stateStore.providerClass"
STATE_STORE: Final = {
    PROVIDER: "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider",
    "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
}
"""Below the user's, here as there: `transformWithState` needs it, and state may be larger than the heap. A
checkpoint that was made with another provider names that, and Spark keeps to it."""

CONF: Final = {
    **STATE_STORE,
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.streaming.numRecentProgressUpdates": "20",
}
"""Of every session, below the user's."""

_IDS: Final = uuid.UUID("5d0d2a0e-1f0f-4c3b-9d8a-3a1a3a7c9f52")
_USER: Final = "kiwi-gw"
_RETRIES: Final = 5
_CLOSED: Final = "SESSION_CLOSED"


def session_id(checkpoint: str, source: str, number: int = 0) -> str:
    """Return the id of the session of a source. number: how many of its sessions were closed before."""
    return str(uuid.uuid5(_IDS, f"{checkpoint}\n{source}\n{number}"))


def address_of(remote: str, session: str) -> str:
    """Write the address of a server with the session in it, and a user: sessions are looked up by both, and
    the user must not depend on who started the gateway."""
    base, _, words = remote.partition("/;")
    given = [word for word in words.split(";") if word]
    if not any(word.startswith("user_id=") for word in given):
        given.append(f"user_id={_USER}")
    return ";".join([f"{base.rstrip('/')}/", *given, f"session_id={session}"])


class ConnectEngine:
    """The server of a configuration. Making one needs no server: opening a session does."""

    distributed = True
    real_time_partitions = 0

    def __init__(self, session: SessionSpec) -> None:
        """Raise PySparkException where a package is missing that Connect needs."""
        os.environ["SPARK_CONNECT_MODE_ENABLED"] = "1"  # has `pyspark.sql.functions` make columns of Connect
        import pyspark.sql.connect.session

        self._kind: Any = pyspark.sql.connect.session.SparkSession
        self._remote = session.remote
        self._conf = {**CONF, **session.conf}

    @property
    def version(self) -> str:
        """Return the client's; the server's is a session's."""
        import pyspark

        return f"{pyspark.__version__} (client of Spark Connect)"

    @contextmanager
    def session(self, query: QuerySpec) -> Iterator[SparkSession]:
        """Open the session of a source, in which nothing runs any more. Raises what PySpark raises."""
        for number in itertools.count():
            spark = self._connect(session_id(query.checkpoint, query.source, number))
            try:
                self._prepare(spark)
            except PySparkException as error:
                _disconnect(spark)
                if _CLOSED in str(error):
                    continue
                raise
            break
        try:
            stop_all(spark)
            yield spark
        finally:
            _disconnect(spark)

    @contextmanager
    def temporary_session(self) -> Iterator[SparkSession]:
        """Open a session for a moment."""
        spark = self._connect(str(uuid.uuid4()))
        try:
            self._prepare(spark)
            try:
                yield spark
            finally:
                with suppress(PySparkException):  # a server that is away has none to release
                    spark.client.release_session()
        finally:
            _disconnect(spark)

    def _connect(self, session: str) -> Any:
        from pyspark.sql.connect.client.retries import DefaultPolicy

        spark = self._kind(connection=address_of(self._remote, session))
        # A session that is let go of ends the threads that all clients share, also those of the others.
        spark.client.close = lambda: None
        # Half a minute; by default it takes ten to learn that the server is away.
        spark.client.set_retry_policies([DefaultPolicy(max_retries=_RETRIES, max_backoff=10_000)])
        return spark

    def _prepare(self, spark: Any) -> None:
        self._kind._active_session.session = spark  # of this thread: types are parsed by it
        spark.conf._set_all(configs=self._conf, silent=True)  # some of a user's may be the server's alone
        spark.version  # noqa: B018  (asks the server)


def stop_all(spark: SparkSession) -> None:
    """Stop what runs in a session. Returns when it is over."""
    for one in spark.streams.active:
        print(f"a query of an earlier client is stopped: {one.name} {one.id}", flush=True)
        one.stop()


def _disconnect(spark: Any) -> None:
    spark.client._channel.close()
