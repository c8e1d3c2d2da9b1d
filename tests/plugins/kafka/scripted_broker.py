"""A Kafka cluster in this process, on sockets of 127.0.0.1: as much of the protocol as the client speaks.

Fetch sessions are checked against KIP-227: what a client does wrong is in `Cluster.complaints`. The faults of
a node are its attributes; `send` decides how an answer goes out, see `faulty_answers.py`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from io import BytesIO
from typing import Any

import trio
from aiokafka.protocol.admin import ApiVersionRequest
from aiokafka.protocol.api import RequestHeader_v1
from aiokafka.protocol.fetch import FetchRequest
from aiokafka.protocol.offset import OffsetRequest

from kiwi_kafka import KafkaSettings
from kiwi_kafka.client.requests import ListGroupsRequest, TopicMetadataRequest
from kiwi_kafka.ports import TopicPartition
from tests.plugins.kafka.batches import batch

FETCH, OFFSETS, METADATA, GROUPS, VERSIONS, EPOCHS = 1, 2, 3, 16, 18, 23
OUT_OF_RANGE, UNKNOWN_TOPIC, NO_LEADER, NOT_LEADER, DENIED = 1, 3, 5, 6, 29
SESSION_UNKNOWN, SESSION_EPOCH = 70, 71

_REQUESTS: dict[tuple[int, int], Any] = {
    (struct.API_KEY, struct.API_VERSION): struct
    for kind in (FetchRequest, OffsetRequest, TopicMetadataRequest, ListGroupsRequest, ApiVersionRequest)
    for struct in kind._CLASSES
}

SECONDS = 60
"""Enough for anything, and on the clock of tests it is soon over."""

Send = Callable[[trio.SocketStream, int, bytes], Awaitable[None]]
"""Send an answer: the stream, which API it is of, and its bytes with their size."""


@dataclass
class Log:
    """One partition. rows: what a reader must get. code: what fetches are refused with. nearer: the replica
    that the leader sends clients with a rack to."""

    leader: int
    batches: list[tuple[int, int, bytes]] = field(default_factory=list)  # first and next offset
    rows: dict[int, bytes] = field(default_factory=dict)
    start: int = 0
    end: int = 0
    code: int = 0
    nearer: int = -1
    replica_from: int = 0  # the first offset that the nearer replica has


@dataclass
class Fetched:
    """A request, as it came. most: bytes of one partition. wait_ms: how long the broker may hold it."""

    version: int
    session: int
    epoch: int
    named: dict[TopicPartition, int]
    forgotten: set[TopicPartition]
    most: int
    wait_ms: int


@dataclass
class Session:
    epoch: int
    offsets: dict[TopicPartition, int]
    most: int  # of one partition in one answer
    told: dict[TopicPartition, tuple[int, int]] = field(default_factory=dict)


class Cluster:
    """Several nodes, numbered from 1, and the logs that they keep."""

    def __init__(self) -> None:
        self.nodes: dict[int, Node] = {}
        self.logs: dict[TopicPartition, Log] = {}
        self.denied: set[str] = set()
        self.complaints: list[str] = []
        self.may_name_again = False  # what was paused and resumed, or sought to and fro, between two fetches
        self.versions = {FETCH: (4, 11), OFFSETS: (0, 5), METADATA: (0, 12), VERSIONS: (0, 3)}
        self.sessions = 0  # made so far
        self.changed = trio.lowlevel.ParkingLot()
        self._happened = trio.lowlevel.ParkingLot()

    def create(self, topic: str, *leaders: int) -> list[TopicPartition]:
        """Make a topic with a partition for each of these leaders."""
        tps = [TopicPartition(topic, number) for number in range(len(leaders))]
        self.logs |= {tp: Log(leader) for tp, leader in zip(tps, leaders, strict=True)}
        return tps

    def append(
        self, tp: TopicPartition, count: int = 1, *, removed: Iterable[int] = (), size: int = 0
    ) -> None:
        """Append a batch of so many records, without those that compaction has removed."""
        log = self.logs[tp]
        offsets = range(log.end, log.end + count)
        values = [f"{tp.topic}-{tp.partition}-{offset}".encode().ljust(size, b".") for offset in offsets]
        gone = set(removed)
        log.batches.append((log.end, log.end + count, batch(log.end, values, removed=gone)))
        log.rows |= {offset: values[n] for n, offset in enumerate(offsets) if n not in gone}
        log.end += count
        self.notify()

    def move(self, tp: TopicPartition, node: int) -> None:
        """Have another node lead the partition."""
        self.logs[tp].leader = node
        self.notify()

    def notify(self) -> None:
        """Have fetches that wait look again."""
        self.changed.unpark_all()

    def happened(self) -> None:
        """A request has come, or a connection was opened or closed."""
        self._happened.unpark_all()

    async def until(self, condition: Callable[[], bool]) -> None:
        """Wait until what clients do has made it true."""
        with trio.fail_after(SECONDS):
            while not condition():
                await self._happened.park()

    def settings(self, **client: Any) -> KafkaSettings:
        servers = [f"127.0.0.1:{node.port}" for node in self.nodes.values()]
        return KafkaSettings(bootstrap_servers=servers, client=client)

    @property
    def fetches(self) -> int:
        return sum(len(node.fetches) for node in self.nodes.values())

    @property
    def requests(self) -> int:
        return sum(node.asked.total() for node in self.nodes.values())

    @property
    def open(self) -> list[int]:
        """How many connections each node has."""
        return [node.open for node in self.nodes.values()]


class Node:
    """One broker.

    awake: while it is not set nothing is answered. has_room: for sessions. forget: the error of the next
    fetch that goes on with a session. fetches: all that came. open: connections now.
    """

    def __init__(self, number: int, cluster: Cluster) -> None:
        self.number = number
        self.port = 0
        self.awake = trio.Event()
        self.awake.set()
        self.has_room = True
        self.forget = 0
        self.knows_brokers = True
        self.more: dict[int, Callable[[Any], tuple[Any, ...]]] = {}  # answers to further requests
        self.send: Send = whole
        self.fetches: list[Fetched] = []
        self.asked: Counter[int] = Counter()
        self.accepted = 0
        self.open = 0
        self._cluster = cluster
        self._sessions: dict[int, Session] = {}

    async def serve(self, stream: trio.SocketStream) -> None:
        """Answer one connection."""
        self.accepted += 1
        self.open += 1
        self._cluster.happened()
        try:
            async with stream:
                received = b""
                while data := await stream.receive_some():
                    received += data
                    while len(received) >= 4 and len(received) - 4 >= (size := int.from_bytes(received[:4])):
                        await self._answer(stream, received[4 : 4 + size])
                        received = received[4 + size :]
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            pass  # by the client, or by a fault that was asked for
        finally:
            self.open -= 1
            self._cluster.happened()

    async def _answer(self, stream: trio.SocketStream, message: bytes) -> None:
        buffer = BytesIO(message)
        api, version, correlation_id, _ = (field.decode(buffer) for field in RequestHeader_v1.SCHEMA.fields)
        self.asked[api] += 1
        self._cluster.happened()
        kind = _REQUESTS[api, version]
        if kind.FLEXIBLE_VERSION:
            buffer.read(1)  # no tags
        request = kind.decode(buffer)
        await self.awake.wait()
        if api == FETCH:
            fields = await self._fetch(request)
        else:
            known = {OFFSETS: self._offsets, METADATA: self._metadata, VERSIONS: self._versions}
            fields = (known | self.more)[api](request)
        await self.awake.wait()
        tags = b"\0" if kind.FLEXIBLE_VERSION else b""
        answer = kind.RESPONSE_TYPE(*fields[: len(kind.RESPONSE_TYPE.SCHEMA.fields)])
        body = correlation_id.to_bytes(4) + tags + answer.encode()
        await self.send(stream, api, len(body).to_bytes(4) + body)

    # --- metadata and offsets ---

    def _versions(self, request: Any) -> tuple[Any, ...]:
        return (0, [(key, *known) for key, known in self._cluster.versions.items()])

    def _metadata(self, request: Any) -> tuple[Any, ...]:
        flexible = request.FLEXIBLE_VERSION
        tags: tuple[Any, ...] = ({},) if flexible else ()
        brokers = [
            (node.number, "127.0.0.1", node.port, None, *tags) for node in self._cluster.nodes.values()
        ]
        brokers = brokers if self.knows_brokers else []
        topics = []
        for name in [topic[1] for topic in request.topics] if flexible else request.topics:
            logs = {tp.partition: log for tp, log in self._cluster.logs.items() if tp.topic == name}
            code = DENIED if name in self._cluster.denied else 0 if logs else UNKNOWN_TOPIC
            epoch = (0,) if flexible else ()
            parts = [
                (0 if log.leader > 0 else NO_LEADER, number, log.leader, *epoch, [1], [1], [], *tags)
                for number, log in logs.items()
                if not code
            ]
            about = (name.encode().ljust(16, b"\0"),) if flexible else ()
            topics.append((code, name, *about, False, parts, *((-(2**31), {}) if flexible else ())))
        return (0, brokers, "cluster", 1, topics, *tags)

    def _offsets(self, request: Any) -> tuple[Any, ...]:
        topics = []
        for topic, parts in request.topics:
            logs = [
                (number, self._cluster.logs[TopicPartition(topic, number)], at) for number, *_, at in parts
            ]
            topics.append(
                (topic, [(number, 0, -1, log.end if at == -1 else log.start) for number, log, at in logs])
            )
        return (0, topics)

    # --- fetches ---

    async def _fetch(self, request: Any) -> tuple[Any, ...]:
        version = request.API_VERSION
        sessions = version >= 7
        named = {
            TopicPartition(topic, part): offset
            for topic, parts in request.topics
            for part, *_, offset in [one[: 3 if version >= 9 else 2] for one in parts]
        }
        gone = request.forgotten_topics_data if sessions else []
        asked = Fetched(
            version,
            request.session_id if sessions else 0,
            request.session_epoch if sessions else -1,
            named,
            {TopicPartition(topic, part) for topic, parts in gone for part in parts},
            max((part[-1] for _, parts in request.topics for part in parts), default=0),
            request.max_wait_time,
        )
        self.fetches.append(asked)
        self._cluster.happened()
        session_id, session, code = self._session(asked)
        if code:
            return (0, code, 0, [])
        offsets = named if session is None else session.offsets
        if not offsets:
            self._complain(f"{asked} asks for nothing")
        told = session.told if session is not None and asked.epoch > 0 else None
        most = asked.most if session is None else session.most
        parts = self._read(request, offsets, told, most)
        with trio.move_on_after(request.max_wait_time / 1000):
            while not any(part[1] or part[-1] or part[-2] >= 0 for part in parts.values()):
                await self._cluster.changed.park()
                parts = self._read(request, offsets, told, most)
        if session is not None:
            for tp, part in parts.items():
                session.told[tp] = (part[1], part[2])
                if part[-1]:  # it had its turn
                    session.offsets[tp] = session.offsets.pop(tp)
        return (0, *((0, session_id) if sessions else ()), _by_topic(parts, version))

    def _session(self, asked: Fetched) -> tuple[int, Session | None, int]:
        """Return the session, its id, and the error if it is refused."""
        if asked.version < 7 or asked.epoch < 0:
            return 0, None, 0
        if asked.epoch == 0:
            if asked.session:
                self._complain(f"{asked} begins a session, and names one")
            if not self.has_room:
                return 0, None, 0
            self._cluster.sessions += 1
            session = Session(1, dict(asked.named), asked.most)
            self._sessions[self._cluster.sessions] = session
            return self._cluster.sessions, session, 0
        code, self.forget = self.forget, 0
        if code:
            self._sessions.pop(asked.session)
            return 0, None, code
        known = self._sessions.get(asked.session)
        if known is None or known.epoch != asked.epoch:
            self._complain(f"{asked} goes on with {known}")
            return 0, None, SESSION_UNKNOWN if known is None else SESSION_EPOCH
        known.epoch += 1
        for tp, offset in asked.named.items():
            if known.offsets.get(tp) == offset and not self._cluster.may_name_again:
                self._complain(f"{asked} names {tp} again")
        if asked.forgotten & asked.named.keys() or not asked.forgotten <= known.offsets.keys():
            self._complain(f"{asked} forgets what it does not have; the session has {known.offsets}")
        for tp in asked.forgotten:
            known.offsets.pop(tp, None)
            known.told.pop(tp, None)
        known.offsets |= asked.named
        return asked.session, known, 0

    def _read(
        self,
        request: Any,
        offsets: dict[TopicPartition, int],
        told: dict[TopicPartition, Any] | None,
        most: int,
    ) -> dict[TopicPartition, tuple[Any, ...]]:
        """Return the fields of the partitions in an answer, those of version 11. told: what the session was
        told of each; then partitions without news are left out."""
        left = request.max_bytes
        parts: dict[TopicPartition, tuple[Any, ...]] = {}
        for tp, offset in offsets.items():
            log, nearer, data = self._cluster.logs.get(tp), -1, b""
            code = UNKNOWN_TOPIC if log is None else DENIED if tp.topic in self._cluster.denied else log.code
            if log is not None and not code:
                is_near = self.number == log.nearer
                if log.leader != self.number and not is_near:
                    code = NOT_LEADER
                elif not (log.replica_from if is_near else log.start) <= offset <= log.end:
                    code = OUT_OF_RANGE
                elif log.nearer > 0 and not is_near and request.API_VERSION >= 11 and request.rack_id:
                    nearer = log.nearer
                else:
                    data = _cut(
                        [kept for _, end, kept in log.batches if end > offset], min(most, left), not parts
                    )
                    left -= len(data)
            end = -1 if log is None or code else log.end
            if told is None or code or data or nearer >= 0 or told.get(tp) != (code, end):
                parts[tp] = (tp.partition, code, end, end, 0, [], nearer, data)
        return parts

    def _complain(self, what: str) -> None:
        self._cluster.complaints.append(f"node {self.number}: {what}")


def _cut(batches: Sequence[bytes], most: int, at_least_one: bool) -> bytes:
    """So many bytes of the log, the last batch cut; the first one is whole, or nothing is sent."""
    if not batches or (most < len(batches[0]) and not at_least_one):
        return b""
    return b"".join(batches)[: max(most, len(batches[0]))]


def _by_topic(parts: dict[TopicPartition, tuple[Any, ...]], version: int) -> list[Any]:
    topics: dict[str, list[Any]] = {}
    for tp, (number, code, end, stable, start, aborted, nearer, data) in parts.items():
        fields = [number, code, end, stable, *([start] if version >= 5 else []), aborted]
        fields += [*([nearer] if version >= 11 else []), data]
        topics.setdefault(tp.topic, []).append(tuple(fields))
    return list(topics.items())


@asynccontextmanager
async def cluster_of(nodes: int = 1) -> AsyncIterator[Cluster]:
    """Run a cluster. At the end nobody may have done anything wrong."""
    cluster = Cluster()
    async with trio.open_nursery() as nursery:
        for number in range(1, nodes + 1):
            cluster.nodes[number] = node = Node(number, cluster)
            listeners = await trio.open_tcp_listeners(0, host="127.0.0.1")
            node.port = listeners[0].socket.getsockname()[1]
            nursery.start_soon(partial(trio.serve_listeners, node.serve, listeners, handler_nursery=nursery))
        yield cluster
        assert not cluster.complaints, cluster.complaints
        nursery.cancel_scope.cancel()


async def whole(stream: trio.SocketStream, api: int, answer: bytes) -> None:
    """Send an answer as it is."""
    await stream.send_all(answer)
