"""The brokers of a cluster, and connections for asking them."""

from __future__ import annotations

import random
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from typing import Any

import structlog
import trio
from aiokafka import errors as kafka_errors

from kiwi_kafka.client.connection import BrokerConnection, open_connection
from kiwi_kafka.client.errors import readable
from kiwi_kafka.client.options import ConnectionOptions
from kiwi_kafka.client.requests import RIGHTS_UNKNOWN, Request, TopicMetadataRequest
from kiwi_kafka.ports import NO_ID, MissingTopic, TopicDescription, UnreachableError

log = structlog.get_logger("kiwi_kafka")

_READ_RIGHT, _WRITE_RIGHT = 1 << 3, 1 << 4  # Kafka's AclOperation.READ and WRITE


class Brokers:
    """Ask brokers, over one connection to each, which is opened when it is needed.

    servers: `host:port`, where to learn of the brokers. Every request has `options.timeout`.
    """

    def __init__(self, servers: Collection[str], options: ConnectionOptions) -> None:
        self._servers = [_host_and_port(server) for server in servers]
        self._options = options
        self._addresses: dict[int, tuple[str, int]] = {}
        self._connections: dict[int, _Shared] = {}
        self._answered: int | None = None
        self._is_closed = False

    @property
    def nodes(self) -> Collection[int]:
        """Return the ids of those that are known."""
        return tuple(self._addresses)

    async def bootstrap(self, within: float) -> None:
        """Learn the brokers from the first server that answers; each has so many seconds. UnreachableError:
        none did, and why."""
        problems = []
        for host, port in self._servers:
            try:
                with _limited(within):
                    connection = await open_connection(host, port, self._options)
                    try:
                        answer = await connection.ask(TopicMetadataRequest([]))
                    except BaseException:
                        connection.close()
                        raise
            except (UnreachableError, kafka_errors.IncompatibleBrokerVersion) as error:
                problems.append(f"{host}:{port}: {error}")
            else:
                self._learn(answer)
                node = next((n for n, address in self._addresses.items() if address == (host, port)), None)
                if node is None:
                    connection.close()
                else:
                    self._connections[node] = _Shared(connection)
                    self._answered = node
                if self._addresses:
                    return
                # It was stopped for a while and has to register anew. A client without brokers asks none.
                problems.append(f"{host}:{port}: no broker is registered yet")
        raise UnreachableError("; ".join(problems))

    async def connect(self, node: int) -> BrokerConnection:
        """Open a connection of its own to a broker. UnreachableError: it does not answer, or is not known."""
        if node not in self._addresses:
            raise UnreachableError(f"broker {node} is not known")
        return await open_connection(*self._addresses[node], self._options)

    async def ask(self, node: int, request: Request[Any]) -> Any:
        """Return the answer of this broker. UnreachableError: it gives none. IncompatibleBrokerVersion: it
        does not know such requests."""
        shared = self._connections.setdefault(node, _Shared())
        with _limited(self._options.timeout):  # for all: others may be waiting for this broker, too
            return await self._ask(node, shared, request)

    async def _ask(self, node: int, shared: _Shared, request: Request[Any]) -> Any:
        async with shared.turn:
            connection, now = shared.connection, trio.current_time()
            idle, shared.used = now - shared.used, now
            if connection is not None and idle > self._options.max_idle:
                connection.close()
            if connection is not None and connection.is_open:
                try:
                    return await connection.ask(request)
                except UnreachableError as error:
                    # Brokers close what is idle for them. If it is anything else, it comes again.
                    log.debug("kafka connection lost", node=node, error=str(error))
            self._check_open()
            shared.connection = await self.connect(node)
            if self._is_closed:
                shared.connection.close()
            self._check_open()
            return await shared.connection.ask(request)

    async def ask_any(self, request: Request[Any]) -> Any:
        """Return the answer of the first broker that gives one; the last one that did is asked first."""
        nodes = list(self._addresses)
        random.shuffle(nodes)
        nodes.sort(key=lambda node: node != self._answered)
        problem: Exception = UnreachableError("no broker is known")
        for node in nodes:
            try:
                answer = await self.ask(node, request)
            except (UnreachableError, kafka_errors.KafkaError) as error:
                problem = error  # the next one may answer
            except trio.Cancelled:
                if self._answered == node:
                    self._answered = None  # it may be silent: who comes next begins with any
                raise
            else:
                self._answered = node
                return answer
        raise problem

    async def describe(
        self, topics: Collection[str], rights: bool = False
    ) -> dict[str, TopicDescription | MissingTopic]:
        """Look at topics, and at who the brokers are. UnreachableError: nobody tells."""
        answer = await self.ask_any(TopicMetadataRequest(list(topics), rights))
        with readable():
            self._learn(answer)
            infos = dict(map(_info, answer.to_object()["topics"]))
        if missing := set(topics) - infos.keys():
            raise UnreachableError(f"an answer says nothing about {', '.join(missing)}")
        return infos

    def locate(self, node: int, host: str, port: int) -> None:
        """Take note where a broker is to be found from now on, as another one says."""
        self._addresses[node] = host, port

    def close(self) -> None:
        """Close all connections, and those that are being opened."""
        self._is_closed = True
        for shared in self._connections.values():
            if shared.connection is not None:
                shared.connection.close()

    def _check_open(self) -> None:
        if self._is_closed:
            raise UnreachableError("the client is closed")

    def _learn(self, answer: Any) -> None:
        # While it registers anew a broker names none.
        if answer.brokers:
            self._addresses = {node: (host, port) for node, host, port, *_ in answer.brokers}


@contextmanager
def _limited(seconds: float) -> Iterator[None]:
    try:
        with trio.fail_after(seconds):
            yield
    except trio.TooSlowError:
        raise UnreachableError(f"no answer within {seconds:g} s") from None


class _Shared:
    """Hold the connection to one broker, and whose turn it is to use it."""

    def __init__(self, connection: BrokerConnection | None = None) -> None:
        self.turn = trio.Lock()
        self.connection = connection
        self.used = trio.current_time()


def _host_and_port(server: str) -> tuple[str, int]:
    host, colon, port = server.rpartition(":")
    if not colon or server.endswith("]"):
        host, port = server, "9092"
    return host.strip("[]"), int(port)


def _info(topic: dict[str, Any]) -> tuple[str, TopicDescription | MissingTopic]:
    name, code = topic["topic"], topic["error_code"]
    error = kafka_errors.for_code(code)
    parts = topic["partitions"]
    if error in (kafka_errors.NoError, kafka_errors.LeaderNotAvailableError) and parts:
        leaders = {part["partition"]: part["leader"] for part in parts}
        rights = topic.get("operations", RIGHTS_UNKNOWN)
        known = rights != RIGHTS_UNKNOWN
        readable = bool(rights & _READ_RIGHT) if known else None
        writable = bool(rights & _WRITE_RIGHT) if known else None
        epochs = {part["partition"]: part["leader_epoch"] for part in parts if "leader_epoch" in part}
        topic_id = topic.get("topic_id", NO_ID)
        return name, TopicDescription(
            name, topic_id, dict(sorted(leaders.items())), readable, epochs, writable
        )
    return name, MissingTopic(name, denied=error is kafka_errors.TopicAuthorizationFailedError)
