"""The Spark that all queries of a gateway share: in this process, with its master, or behind Connect."""

from __future__ import annotations

import contextlib
import logging
import os
import re
import shlex
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from msgspec import structs
from py4j.protocol import Py4JError
from pyspark.sql import SparkSession

from kiwi_spark.driver.connect_session import STATE_STORE, ConnectEngine
from kiwi_spark.protocol.query_spec import QuerySpec, SessionSpec

DEFAULTS: Final = {
    "spark.app.name": "kiwi-gw",
    "spark.scheduler.mode": "FAIR",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "WARN",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.shuffle.partitions": "4",
    # Spark's list of sinks for real time knows its own only; what it runs there is looked at in `real_time`.
    "spark.sql.streaming.realTimeMode.allowlistCheck": "false",
    **STATE_STORE,
}
"""What the user's configuration may say otherwise."""

AD_HOC: Final = {
    "spark.sql.ansi.enabled": "false",
    "spark.sql.caseSensitive": "true",
    "spark.sql.mapKeyDedupPolicy": "LAST_WIN",
    "spark.sql.session.timeZone": "UTC",
    # Without Kafka: read as a source of the old kind a task that is to end goes on to its last record.
    "spark.sql.sources.useV1SourceList": "avro,csv,json,orc,parquet,text",
    # No file is a table, whatever the query says.
    "spark.sql.runSQLOnFiles": "false",
}
"""Of sessions for queries that clients ask for, above the user's: as in `docs/reference/queries.md`."""

_LOCAL: Final = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    # Checkpoints in folders of this machine, by system calls: see `jvm/kiwigw/spark/DirectLocalFs.java`.
    "spark.hadoop.fs.AbstractFileSystem.file.impl": "kiwigw.spark.DirectLocalFs",
}
_JAVA_OPTIONS: Final = "spark.driver.extraJavaOptions"
_THREADS: Final = re.compile(r"local(\[(?P<cores>\d+|\*)(?P<failures>, *\d+)?\])?")
_TEMPORARY: Final = "-Djava.io.tmpdir="
_STACK: Final = "-Xss16m"
"""With the usual stack of 1 MB a query that is stopped within a batch may print a StackOverflowError."""
_SAY_TOO_MUCH: Final = (
    # Warns of every batch that takes longer than the time between two: here that is how it goes.
    "org.apache.spark.sql.execution.streaming.runtime.ProcessingTimeExecutor",
    # Warns of every query that it will not be planned anew while it runs. (With state none is, others are.)
    "org.apache.spark.sql.execution.streaming.runtime.ResolveWriteToStream",
    # Warns of every query that keeps state, and of every one in real time, that it is not planned anew.
    "org.apache.spark.sql.execution.streaming.runtime.MicroBatchExecution",
    # Warns of our sink, which is not Spark's own.
    "org.apache.spark.sql.execution.streaming.runtime.RealTimeModeAllowlist",
    # Warns of every pool that no file describes: here every batch has one (see `SchedulerPool.java`).
    "org.apache.spark.scheduler.FairSchedulableBuilder",
)
_SAY_TWICE: Final = (
    "org.apache.spark.sql.execution.datasources.v2.DataWritingSparkTask",
    "org.apache.spark.sql.execution.datasources.v2.WriteToDataSourceV2Exec",
    "org.apache.spark.util.Utils",
)
"""They log what ends a task, with its stack, also where it is only stopped, as one in real time always is:
that ends the query, too, which reports it."""
_OUT_OF_MEMORY: Final = "-XX:+ExitOnOutOfMemoryError"
"""A JVM without memory may lose any thread and stay; one that ends is started again."""


def configuration(session: SessionSpec) -> dict[str, str]:
    """Return all of the session's configuration: our defaults below the user's."""
    conf = {**DEFAULTS, **(_LOCAL if is_local(session.master) else {}), **session.conf}
    options = conf.get(_JAVA_OPTIONS, "")
    if "-Xss" not in options:
        options = f"{options} {_STACK}"
    if "OnOutOfMemoryError" not in options:
        options = f"{options} {_OUT_OF_MEMORY}"
    if _TEMPORARY not in options:
        # Where Spark, its libraries and its Python workers put files: all in one place, for who removes it.
        options = f"{options} {shlex.quote(_TEMPORARY + tempfile.gettempdir())}"
    conf[_JAVA_OPTIONS] = options.strip()
    if "spark.sql.catalogImplementation" not in conf:  # its tables are forgotten, so is their folder
        conf.setdefault("spark.sql.warehouse.dir", os.path.join(tempfile.gettempdir(), "spark-warehouse"))
    return conf


class LocalEngine:
    """The session of this process, whose queries come back to it. distributed: whether their Python functions
    run on other machines than this one. cores: threads that are meant to compute here; 0 where it is done
    elsewhere. real_time_partitions: that may be read in real time at a time."""

    def __init__(self, session: SessionSpec) -> None:
        """Start the JVM. Raises what PySpark raises."""
        self.distributed = not is_local(session.master)
        master, self.real_time_partitions = threads(session)
        self.cores = _threads(session.master)
        self._root = open_session(structs.replace(session, master=master))
        self._sessions: dict[str, tuple[QuerySpec, SparkSession]] = {}
        self._spare: list[SparkSession] = []

    @property
    def version(self) -> str:
        """Return Spark's."""
        return str(self._root.version)

    @contextmanager
    def session(self, query: QuerySpec) -> Iterator[SparkSession]:
        """Open a session for the query of a source alone. Raises what PySpark raises."""
        # Spark never lets go of a session. A query that is started again, while Kafka is away all night, has
        # the one that it had; an altered one must not see what the one before it left there.
        same = structs.replace(query, fresh=False)
        known, spark = self._sessions.get(query.source, (None, None))
        if spark is None or known != same:
            spark = self._root.newSession()
            self._sessions[query.source] = same, spark
        yield spark

    @contextmanager
    def temporary_session(self) -> Iterator[SparkSession]:
        """Open a session for a moment."""
        yield self._root.newSession()

    @contextmanager
    def lent_session(self) -> Iterator[SparkSession]:
        """Open a session for a query over ranges of topics alone, with no views in it. It means what the
        gateway's own queries mean. Raises what PySpark raises.

        Spark never lets go of a session, and there may be many such queries: the next one has it again.
        """
        try:
            spark = self._spare.pop()
        except IndexError:
            spark = self._root.newSession()
            for name, value in AD_HOC.items():
                spark.conf.set(name, value)
        try:
            yield spark
        finally:
            for view in spark.catalog.listTables():
                spark.catalog.dropTempView(view.name)
            self._spare.append(spark)


Engine = LocalEngine | ConnectEngine
"""Where queries run."""


def open_engine(session: SessionSpec) -> Engine:
    """Return where queries of this configuration run. Raises what PySpark raises."""
    if not session.remote:
        return LocalEngine(session)
    _let_import(session, os.environ)
    return ConnectEngine(session)


def threads(session: SessionSpec) -> tuple[str, int]:
    """Return the master with a thread more for every partition that may be read in real time, and how many
    those
    are: none where the executors are elsewhere, as they do not reach the gateway."""
    found = _THREADS.fullmatch(session.master or "local[*]")
    if found is None:
        return session.master, 0
    own = _threads(session.master)
    return (
        f"local[{own + session.real_time_partitions}{found['failures'] or ''}]",
        session.real_time_partitions,
    )


def _threads(master: str) -> int:
    """Return how many threads a master in this process has, as the user has said; 0 where it is none."""
    found = _THREADS.fullmatch(master or "local[*]")
    if found is None:
        return 0
    cores = found["cores"] or "1"
    return (os.cpu_count() or 1) if cores == "*" else int(cores)


def is_local(master: str) -> bool:
    """Return whether all of Spark is on this machine."""
    return not master or master.startswith("local")


def open_session(session: SessionSpec) -> SparkSession:
    """Make the session of this process; starts its JVM. Raises what PySpark raises.

    Functions of the user are imported from `python_path`, here and in Spark's Python workers, which take
    their folders and their Python from the environment.
    """
    _let_import(session, os.environ)
    conf = configuration(session)
    if is_local(session.master):  # other machines have neither these folders nor our Python
        conf.setdefault("spark.executorEnv.PYTHONPATH", os.environ["PYTHONPATH"])
    builder = SparkSession.builder.master(session.master or "local[*]")
    for name, value in conf.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    _keep_quiet(spark)
    _forget_artifacts(spark)
    return spark


def _keep_quiet(spark: SparkSession) -> None:
    """Leave out what Spark warns of with every batch, and what it says twice."""
    logging_of_java: Any = getattr(spark, "_jvm").org.apache.logging.log4j  # noqa: B009
    for names, level in ((_SAY_TOO_MUCH, "ERROR"), (_SAY_TWICE, "OFF")):
        for name in names:
            logging_of_java.core.config.Configurator.setLevel(name, logging_of_java.Level.getLevel(level))


def _forget_artifacts(spark: SparkSession) -> None:
    """Remove the folder `artifacts`, which Spark makes where the gateway was started, and which a killed JVM
    leaves there. Nothing is put there here; it is made anew when it is needed."""
    java: Any = spark._jsparkSession
    try:
        folder = Path(str(java.artifactManager().artifactRootPath().toAbsolutePath()))
    except Py4JError as error:  # another Spark, which has them elsewhere
        print(f"the folder for artifacts is not known: {error}", file=sys.stderr, flush=True)
        return
    shutil.rmtree(folder, ignore_errors=True)
    with contextlib.suppress(OSError):  # it is another driver's, too
        folder.parent.rmdir()


def _let_import(session: SessionSpec, environment: os._Environ[str] | dict[str, str]) -> None:
    # PySpark logs what it also raises; the gateway gets the exception.
    logging.getLogger("SQLQueryContextLogger").setLevel(logging.CRITICAL)
    folders = session.python_path
    for folder in reversed(folders):
        if folder not in sys.path:
            sys.path.insert(0, folder)
    there = [one for one in environment.get("PYTHONPATH", "").split(os.pathsep) if one]
    environment["PYTHONPATH"] = os.pathsep.join(dict.fromkeys([*folders, *there]))
    python = session.conf.get("spark.pyspark.python")
    if python:  # PySpark heeds it only where spark-submit has started it
        environment["PYSPARK_PYTHON"] = python
    elif is_local(session.master) and not session.remote:
        environment.setdefault("PYSPARK_PYTHON", sys.executable)
