"""A real Apache Kafka on loopback: one node (KRaft, broker and controller in one), or several.

    async with Broker(folder) as broker:
        ...  # broker.bootstrap is "127.0.0.1:PORT"
        await broker.kill()      # as a crash would (SIGKILL)
        await broker.start()     # the same port, the same data

The jars come from `fetch_broker`, the Java from `java_home`. The broker dies with us, however we end.
"""

from __future__ import annotations

import base64
import os
import shutil
import signal
import sys
import uuid
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

import trio

from kiwi_demo.jars import fetch_broker
from kiwi_demo.loopback import HOST, BrokerError, Node, answers, free_ports
from kiwi_demo.process import Child, ProcessError, tail
from kiwi_spark.java.home import java_home
from kiwi_spark.java.jar_set import default_cache

_READY_POLL = 0.1
_TRIES_FOR_A_PORT = 3

# A lone broker needs no second replica, and a restart should not wait for what only a cluster needs:
# after a kill -9 a node may register again only when its old session has run out (9 s by default).
_PROPERTIES = {
    "num.partitions": "1",
    "offsets.topic.num.partitions": "1",
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.num.partitions": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    "group.initial.rebalance.delay.ms": "0",
    "broker.session.timeout.ms": "2000",
    "broker.heartbeat.interval.ms": "500",
    "log.segment.delete.delay.ms": "1000",
    "controlled.shutdown.enable": "false",
}


class Broker:
    """Run one Kafka node in its process. Not started until `start`, or entered as a context manager.

    `folder` keeps its data, its `server.properties` and its `broker.log`; it is made if need be and
    never removed. `port` 0 takes a free one, which the broker then keeps over restarts. `heap` is
    Java's notation ("512m"). `properties` override any setting of the broker. `cluster` lists all
    nodes of a larger cluster, this one (`node_id`) among them; every node of it gets the same
    `cluster_id`.
    """

    def __init__(
        self,
        folder: Path,
        *,
        port: int = 0,
        heap: str = "512m",
        auto_create: bool = False,
        properties: Mapping[str, str] | None = None,
        java_options: Sequence[str] = (),
        node_id: int = 1,
        cluster: Sequence[Node] = (),
        cluster_id: str | None = None,
        cache_dir: Path | None = None,
        report: Callable[[str], None] = lambda line: None,
    ) -> None:
        self.folder = folder
        self._wanted_port = port
        self._heap = heap
        self._auto_create = auto_create
        self._properties = dict(properties or {})
        self._java_options = tuple(java_options)
        self._node_id = node_id
        self._cluster = tuple(cluster)
        self._cluster_id = cluster_id or new_cluster_id()
        self._cache_dir = cache_dir
        self._report = report
        self._node: Node | None = next((node for node in cluster if node.id == node_id), None)
        self._child: Child | None = None
        self._command: list[str | Path] = []

    # -- what it is

    @property
    def port(self) -> int:
        """Return the port for clients; known once the broker was started."""
        if self._node is None:
            raise BrokerError("the broker has no port before it is started")
        return self._node.port

    @property
    def bootstrap(self) -> str:
        """Return what a client wants as `bootstrap_servers`."""
        return f"{HOST}:{self.port}"

    @property
    def log(self) -> Path:
        return self.folder / "broker.log"

    @property
    def running(self) -> bool:
        return self._child is not None and self._child.returncode is None

    @property
    def pid(self) -> int | None:
        """Return the process id of the Java that runs; None while none does."""
        return self._child.pid if self._child is not None and self.running else None

    # -- what is done to it

    async def start(self, within: float = 60.0) -> None:
        """Start it and return when it answers clients; do nothing if it runs already.

        After `kill` or `stop` it comes back on the same port with the same data. Raises `BrokerError`,
        `FetchFailed`, `JavaNotFound`.
        """
        if self.running:
            return
        for tries_left in reversed(range(_TRIES_FOR_A_PORT)):
            chosen_here = self._node is None and self._wanted_port == 0
            try:
                await self._prepare()
                await self._spawn()
                await self.wait_ready(within)
            except BaseException as error:
                if self._child is not None:
                    await self._child.kill()
                taken = isinstance(error, BrokerError) and "Address already in use" in str(error)
                if not (taken and chosen_here and tries_left):
                    raise
                self._node = None  # another program was faster; take another port
            else:
                return

    async def wait_ready(self, within: float = 60.0) -> None:
        """Return when the broker answers a metadata request with itself in the list."""
        with trio.move_on_after(within):
            while not await answers(HOST, self.port):
                if not self.running:
                    raise BrokerError(f"the broker on port {self.port} ended; {self.log}:{tail(self.log)}")
                await trio.sleep(_READY_POLL)
            return
        raise BrokerError(
            f"the broker on port {self.port} does not answer after {within:g} s; {self.log}:{tail(self.log)}"
        )

    async def stop(self, grace: float = 20.0) -> None:
        """End it in order (SIGTERM), and by SIGKILL after `grace` seconds."""
        if self._child is not None:
            await self._child.end(grace)

    async def kill(self) -> None:
        """End it as a crash would: SIGKILL."""
        if self._child is not None:
            await self._child.kill()

    def freeze(self) -> None:
        """Stop it with SIGSTOP: the port still accepts, nothing answers."""
        self._running_child().signal(signal.SIGSTOP)

    def thaw(self) -> None:
        """Let it go on (SIGCONT)."""
        self._running_child().signal(signal.SIGCONT)

    async def wait(self) -> int:
        """Return the exit code when the broker has ended, for whatever reason."""
        return await self._running_child().wait()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # Its data has no reader after this: no need to wait for an orderly end.
        await self.kill()

    # -- how

    def _running_child(self) -> Child:
        if self._child is None:
            raise BrokerError("the broker was not started")
        return self._child

    async def _prepare(self) -> None:
        """Prepare jars, ports, properties and formatted storage, once."""
        if self._node is None:
            self._node = Node(self._node_id, *free_ports(2, self._wanted_port))
            self._command = []
        if self._command:
            return
        java = await trio.to_thread.run_sync(java_home, self._cache_dir) / "bin" / "java"
        jars = await fetch_broker(self._cache_dir, self._report)
        self.folder.mkdir(parents=True, exist_ok=True)
        properties = self.folder / "server.properties"
        properties.write_text("".join(f"{key}={value}\n" for key, value in self._all_properties().items()))
        classpath = os.pathsep.join(str(jar) for jar in jars)
        quiet = (
            "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
            "-Dorg.slf4j.simpleLogger.showDateTime=true",
            "-Dorg.slf4j.simpleLogger.dateTimeFormat=yyyy-MM-dd'T'HH:mm:ss.SSS",
        )
        if not (self.folder / "data" / "meta.properties").exists():
            self._report("  Kafka: formatting its storage")
            await self._format(
                [java, "-Xmx128m", "-XX:TieredStopAtLevel=1", *quiet, "-cp", classpath], properties
            )
        options = [f"-Xmx{self._heap}", f"-Xms{self._heap}", *quiet, *self._java_options]
        self._command = [java, *options, "-cp", classpath, "kafka.Kafka", properties]

    async def _format(self, java: list[str | Path], properties: Path) -> None:
        tool: list[str | Path] = ["kafka.tools.StorageTool", "format", "-t", self._cluster_id, "-c"]
        child = await Child.start([*java, *tool, properties], self.log)
        try:
            code = await child.wait()
        finally:
            await child.kill()
        if code != 0:
            raise BrokerError(f"the broker's storage could not be formatted; {self.log}:{tail(self.log)}")

    async def _spawn(self) -> None:
        self._report(f"  Kafka: starting its JVM, then waiting until it answers on {self.bootstrap}")
        for port in (self.port, self._controller_port):
            free_ports(1, port)  # BrokerError if another has it
        try:
            self._child = await Child.start(self._command, self.log)
        except ProcessError as error:
            raise BrokerError(str(error)) from error

    @property
    def _controller_port(self) -> int:
        return 0 if self._node is None else self._node.controller_port

    def _all_properties(self) -> dict[str, str]:
        node = self._node
        assert node is not None  # noqa: S101  (set by the caller)
        nodes = self._cluster or (node,)
        return {
            "process.roles": "broker,controller",
            "node.id": str(node.id),
            "controller.quorum.voters": ",".join(f"{one.id}@{HOST}:{one.controller_port}" for one in nodes),
            "listeners": f"PLAINTEXT://{HOST}:{node.port},CONTROLLER://{HOST}:{node.controller_port}",
            "advertised.listeners": f"PLAINTEXT://{HOST}:{node.port}",
            "controller.listener.names": "CONTROLLER",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
            "log.dirs": str(self.folder / "data"),
            "auto.create.topics.enable": str(self._auto_create).lower(),
            **_PROPERTIES,
            **self._properties,
        }


def new_cluster_id() -> str:
    """Return a random cluster id in Kafka's notation: 16 bytes, URL-safe base64 without padding.

    As Kafka's own, none begins with a dash, which its tools would take for an option.
    """
    while (text := base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")).startswith("-"):
        pass
    return text


async def run_broker(port: int = 9092, data_dir: Path | None = None, auto_create: bool = False) -> None:
    """Run a broker until Ctrl-C or SIGTERM, and say where it is (`kiwi-gw broker`).

    Without `data_dir` the data is of this run only and removed at its end. Raises `BrokerError`,
    `FetchFailed`, `JavaNotFound`.
    """
    folder = data_dir or default_cache() / "runs" / f"broker-{os.getpid()}"
    broker = Broker(folder, port=port, auto_create=auto_create, heap="1g", report=_say)
    try:
        with trio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
            async with broker, trio.open_nursery() as nursery:
                _say(f"Kafka answers on {broker.bootstrap} (log: {broker.log}); Ctrl-C ends it")
                nursery.start_soon(raise_when_ended, broker)
                async for _ in signals:
                    break
                nursery.cancel_scope.cancel()
                with trio.CancelScope(shield=True):
                    await broker.stop()
    finally:
        if data_dir is None:
            shutil.rmtree(folder, ignore_errors=True)


async def raise_when_ended(broker: Broker) -> None:
    """Wait for the end of the broker's process; raise `BrokerError` then."""
    code = await broker.wait()
    raise BrokerError(f"the broker ended with code {code}; {broker.log}:{tail(broker.log)}")


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
