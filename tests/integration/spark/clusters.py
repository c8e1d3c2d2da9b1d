"""Spark beyond this process, from pyspark's jars: a standalone master with a worker, a Connect server."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from pathlib import Path

import psutil

from kiwi_demo.loopback import HOST, free_port
from kiwi_spark.java.connector import connector_conf
from kiwi_spark.java.home import java_home
from tests.integration.spark.shared_classes import small_jvm

PATIENCE_SECONDS = 150
_DAEMONS = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"


class SparkProcess:
    """A process of Spark in a group of its own, which ends it with all that it started. lines: its log."""

    def __init__(self, command: Sequence[str], env: Mapping[str, str] | None = None) -> None:
        self.lines: list[str] = []
        self._more = threading.Condition()
        self._over = False
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env={**os.environ, **_environment(), **(env or {})},
            process_group=0,
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    @property
    def pid(self) -> int:
        return self._process.pid

    def said(self, pattern: str, count: int = 1) -> re.Match[str]:
        """Wait until so many lines match, and return the last of them. AssertionError with its log if not."""
        with self._more:
            self._more.wait_for(
                lambda: self._over or len(self._matches(pattern)) >= count, timeout=PATIENCE_SECONDS
            )
            found = self._matches(pattern)
        assert len(found) >= count, (pattern, "".join(self.lines[-40:]))
        return found[count - 1]

    def end(self) -> None:
        """Kill it, and all that is in its group."""
        with suppress(ProcessLookupError):  # it has ended by itself
            os.killpg(self.pid, signal.SIGKILL)
        self._process.wait()
        self._reader.join()
        assert self._process.stdout is not None
        self._process.stdout.close()

    def _matches(self, pattern: str) -> list[re.Match[str]]:
        return [found for line in self.lines if (found := re.search(pattern, line))]

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            with self._more:
                self.lines.append(line)
                self._more.notify_all()
        with self._more:
            self._over = True
            self._more.notify_all()


class Standalone:
    """A master and a worker with two executors' room. url: of the master."""

    def __init__(self, folder: Path) -> None:
        loopback = ["--host", HOST, "--port", "0", "--webui-port", "0"]
        self._master = SparkProcess(
            [_program("spark-class"), "org.apache.spark.deploy.master.Master", *loopback]
        )
        try:
            self.url = self._master.said(r"Starting Spark master at (spark://\S+)")[1]
            worker = [*loopback, "--cores", "2", "--memory", "1g", "--work-dir", str(folder), self.url]
            self._worker = SparkProcess(
                [_program("spark-class"), "org.apache.spark.deploy.worker.Worker", *worker]
            )
        except BaseException:
            self._master.end()
            raise
        try:
            self._worker.said("Successfully registered with master")
        except BaseException:
            self.end()
            raise

    def executors(self) -> list[int]:
        """Process ids of the executors that there are."""
        children = psutil.Process(self._worker.pid).children(recursive=True)
        return [one.pid for one in children if "CoarseGrainedExecutorBackend" in " ".join(_words(one))]

    def executor_started(self, count: int) -> None:
        """Wait until so many executors were started, all in all."""
        self._worker.said("ExecutorRunner: Launch command", count)

    def end(self) -> None:
        self._worker.end()
        self._master.end()


@contextmanager
def standalone(folder: Path) -> Iterator[Standalone]:
    cluster = Standalone(folder)
    try:
        yield cluster
    finally:
        cluster.end()


class ConnectServer:
    """A Spark Connect server that can be ended and started again at its port. remote: its address."""

    def __init__(self, folder: Path) -> None:
        self._port = free_port()
        self._folder = folder
        self.remote = f"sc://{HOST}:{self._port}"
        self.process = self._start()

    def _start(self) -> SparkProcess:
        conf = {
            **connector_conf(),
            "spark.connect.grpc.binding.address": HOST,
            "spark.connect.grpc.binding.port": str(self._port),
            "spark.driver.host": HOST,
            "spark.driver.bindAddress": HOST,
            "spark.ui.enabled": "false",
            "spark.sql.shuffle.partitions": "1",
            "spark.pyspark.python": sys.executable,
            "spark.local.dir": str(self._folder / "local"),
            "spark.sql.warehouse.dir": str(self._folder / "warehouse"),
        }
        options = [word for name, value in conf.items() for word in ("--conf", f"{name}={value}")]
        process = SparkProcess(
            [
                _program("spark-submit"),
                *("--class", "org.apache.spark.sql.connect.service.SparkConnectServer"),
                *("--master", "local[2]", "--driver-java-options", small_jvm()),
                *options,
                "spark-internal",
            ],
            {"SPARK_LOCAL_IP": HOST, "SPARK_DAEMON_MEMORY": "800m"},  # which goes before --driver-memory
        )
        try:
            process.said("Spark Connect server started at")
        except BaseException:
            process.end()
            raise
        return process

    def restart(self) -> None:
        """After `process.end()`."""
        self.process = self._start()


@contextmanager
def connect_server(folder: Path) -> Iterator[ConnectServer]:
    server = ConnectServer(folder)
    try:
        yield server
    finally:
        server.process.end()


def _environment() -> dict[str, str]:
    home = find_spec("pyspark")
    assert home is not None
    assert home.submodule_search_locations is not None
    return {
        "SPARK_HOME": home.submodule_search_locations[0],
        "JAVA_HOME": str(java_home()),
        "SPARK_DAEMON_MEMORY": "200m",  # of master and worker
        "SPARK_DAEMON_JAVA_OPTS": f"-Dspark.master.rest.enabled=false {_DAEMONS}",
        "PYSPARK_PYTHON": sys.executable,
    }


def _program(name: str) -> str:
    return str(Path(_environment()["SPARK_HOME"], "bin", name))


def _words(process: psutil.Process) -> list[str]:
    try:
        return list(process.cmdline())
    except psutil.NoSuchProcess:
        return []
