"""Real brokers for faults: one behind a proxy, and three that replicate."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from kiwi_demo.broker import Broker, new_cluster_id
from kiwi_demo.loopback import Node, free_ports
from tests.faults.proxy import Proxy, proxy
from tests.integration.held_broker import HeldBroker

JAVA = ("-XX:TieredStopAtLevel=1",)
"""A broker that lives for minutes and is started often is up sooner so."""


class FaultyBroker:
    """Run one broker with two ways to it: `bootstrap` for producers, and one through a proxy for the gateway.

    A broker names the address by which a client is to come back, per listener; that of the second listener is
    the proxy's. `between` has to be open whenever a gateway is to reach it.
    """

    def __init__(self, folder: Path) -> None:
        port, controller, self._behind, self._near = free_ports(4)
        node = Node(1, port, controller)
        properties = {**_two_ways(node, self._behind, self._near), "message.max.bytes": str(16 * 2**20)}
        self.folder = folder
        self._held = HeldBroker(folder, cluster=(node,), properties=properties, java_options=JAVA)

    @property
    def bootstrap(self) -> str:
        """Return the way past the proxy."""
        return self._held.broker.bootstrap

    @property
    def proxied(self) -> str:
        """Return the way that faults can be put into."""
        return f"127.0.0.1:{self._near}"

    @asynccontextmanager
    async def between(self) -> AsyncIterator[Proxy]:
        async with proxy(self._behind, self._near) as one:
            yield one

    def open(self) -> None:
        """Start it, in a thread of its own, and wait for it."""
        self._held.start()

    def close(self) -> None:
        self._held.stop()

    async def kill(self) -> None:
        """Send SIGKILL."""
        await self._held.do(self._held.broker.kill)

    async def start(self) -> None:
        """Start it, and wait until it answers again."""
        await self._held.do(self._held.broker.start)

    async def freeze(self) -> None:
        """Send SIGSTOP."""
        self._held.broker.freeze()

    async def thaw(self) -> None:
        """Send SIGCONT."""
        self._held.broker.thaw()


_REPLICATED = {
    "min.insync.replicas": "2",
    "default.replication.factor": "3",
    "offsets.topic.replication.factor": "3",
    "transaction.state.log.replication.factor": "3",
    "transaction.state.log.min.isr": "2",
    "unclean.leader.election.enable": "false",
}


@dataclass(frozen=True, slots=True)
class Member:
    """Hold one broker of a cluster: `broker.bootstrap` leads past the proxy, `near` is the proxy's port."""

    broker: Broker
    behind: int
    near: int


def three_brokers(folder: Path) -> list[Member]:
    """Make three nodes of one cluster with 256 MiB of heap each, not started.

    They only answer together: start them at the same time.
    """
    ports = free_ports(12)
    nodes = tuple(Node(number + 1, *ports[4 * number : 4 * number + 2]) for number in range(3))
    cluster_id = new_cluster_id()
    members = []
    for node in nodes:
        behind, near = ports[4 * node.id - 2 : 4 * node.id]
        broker = Broker(
            folder / f"broker-{node.id}",
            node_id=node.id,
            cluster=nodes,
            cluster_id=cluster_id,
            heap="256m",
            java_options=JAVA,
            properties={**_REPLICATED, **_two_ways(node, behind, near)},
        )
        members.append(Member(broker, behind, near))
    return members


def _two_ways(node: Node, behind: int, near: int) -> dict[str, str]:
    """Configure a listener for all clients, and one at `behind` that sends its clients to `near`."""
    here = "127.0.0.1"
    return {
        "listeners": f"PLAINTEXT://{here}:{node.port},PROXIED://{here}:{behind},"
        f"CONTROLLER://{here}:{node.controller_port}",
        "advertised.listeners": f"PLAINTEXT://{here}:{node.port},PROXIED://{here}:{near}",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,PROXIED:PLAINTEXT,CONTROLLER:PLAINTEXT",
        "inter.broker.listener.name": "PLAINTEXT",
    }
