"""How a client learns the brokers of a cluster when it begins, and logs in."""

from __future__ import annotations

import base64
import hashlib
import hmac
from collections.abc import Callable
from typing import Any

import pytest
import trio
from aiokafka.protocol.admin import SaslAuthenticateRequest, SaslHandShakeRequest

from kiwi_kafka import KafkaSettings
from kiwi_kafka.client.factory import BrokerClientFactory
from kiwi_kafka.ports import UnreachableError
from tests.plugins.kafka import scripted_broker
from tests.plugins.kafka.scripted_broker import METADATA, SECONDS, Cluster, cluster_of

HANDSHAKE, AUTHENTICATE = SaslHandShakeRequest.API_KEY, SaslAuthenticateRequest.API_KEY


async def connect(settings: KafkaSettings) -> None:
    async with trio.open_nursery() as nursery:
        admin = await BrokerClientFactory(settings, nursery).admin()
        await admin.describe_topics([])
        await admin.close()


async def test_the_first_server_that_knows_brokers_is_believed() -> None:
    """One that was stopped for longer than its session lasts knows none until it is registered again. Who
    begins with its answer has no broker to ask, ever."""
    async with cluster_of(2) as cluster:
        cluster.nodes[1].knows_brokers = False
        await connect(cluster.settings())
        assert all(node.asked[METADATA] for node in cluster.nodes.values())


async def test_a_cluster_without_brokers_is_not_reached() -> None:
    async with cluster_of(2) as cluster:
        for node in cluster.nodes.values():
            node.knows_brokers = False
        with pytest.RaisesGroup(
            pytest.RaisesExc(
                UnreachableError, match=r"no broker is registered yet; .*: no broker is registered"
            )
        ):
            await connect(cluster.settings())


async def test_a_server_that_is_not_there_is_named_with_the_reason() -> None:
    async with cluster_of() as cluster:
        [listener] = await trio.open_tcp_listeners(0, host="127.0.0.1")
        gone = f"127.0.0.1:{listener.socket.getsockname()[1]}"
        await listener.aclose()
        with pytest.RaisesGroup(
            pytest.RaisesExc(UnreachableError, match=rf"^{gone}: .*[Cc]onnection refused")
        ):
            await connect(KafkaSettings(bootstrap_servers=gone))
        await connect(KafkaSettings(bootstrap_servers=[gone, *cluster.settings().servers]))


async def test_a_broker_that_said_nothing_is_not_asked_first_for_ever() -> None:
    """Who is to answer sooner than a request is given up, asks another one then."""
    async with cluster_of(2) as cluster, trio.open_nursery() as nursery:
        admin = await BrokerClientFactory(cluster.settings(), nursery).admin()
        node = cluster.nodes[1]
        node.awake = trio.Event()
        with trio.CancelScope() as scope:
            nursery.start_soon(cancel_when, cluster, node, scope)
            await admin.describe_topics([])
        assert scope.cancelled_caught
        with trio.fail_after(SECONDS):
            for _ in range(100):
                with trio.move_on_after(0.05):
                    await admin.describe_topics([])
                    break
            else:
                raise AssertionError("the same one is asked again and again")
        node.awake.set()
        await admin.close()


async def cancel_when(cluster: Cluster, node: scripted_broker.Node, scope: trio.CancelScope) -> None:
    asked = node.asked[METADATA]
    await cluster.until(lambda: node.asked[METADATA] > asked)
    scope.cancel()


@pytest.mark.parametrize("closes", [1, 2])
async def test_a_connection_that_the_broker_closed_is_opened_again_once(closes: int) -> None:
    async with cluster_of() as cluster, trio.open_nursery() as nursery:
        node = cluster.nodes[1]
        admin = await BrokerClientFactory(cluster.settings(), nursery).admin()
        left = closes

        async def close_first(stream: trio.SocketStream, api: int, answer: bytes) -> None:
            nonlocal left
            if api == METADATA and left:
                left -= 1
                await stream.aclose()
            else:
                await scripted_broker.whole(stream, api, answer)

        node.send = close_first
        if closes == 1:
            assert await admin.describe_topics([]) == {}
        else:
            with pytest.raises(UnreachableError, match="closed the connection"):
                await admin.describe_topics([])
        assert node.accepted == 2
        await admin.close()


async def test_a_client_that_is_closed_opens_no_connection_for_who_still_asks() -> None:
    async with cluster_of() as cluster, trio.open_nursery() as nursery:
        node = cluster.nodes[1]
        admin = await BrokerClientFactory(cluster.settings(), nursery).admin()
        asked = node.asked[METADATA]
        node.awake = trio.Event()

        async def ask() -> None:
            with pytest.raises(UnreachableError, match="the client is closed"):
                await admin.describe_topics([])

        nursery.start_soon(ask)
        await cluster.until(lambda: node.asked[METADATA] > asked)
        await admin.close()
    assert node.accepted == 1


# --- SASL ---


class Login:
    """A broker's side of SASL, RFC 4616 and RFC 5802. liar: it answers as one that does not know the
    password either."""

    def __init__(
        self, mechanism: str, password: str, *, liar: bool = False, iterations: str = "4096"
    ) -> None:
        self.mechanism, self.password, self.liar = mechanism, password.encode(), liar
        self.iterations = iterations
        self.first = self.second = ""

    def handshake(self, request: Any) -> tuple[Any, ...]:
        return (0 if request.mechanism == self.mechanism else 33, [self.mechanism])

    def authenticate(self, request: Any) -> tuple[Any, ...]:
        token = request.sasl_auth_bytes
        step = self._plain if self.mechanism == "PLAIN" else self._scram
        said = step(token)
        if said is None:
            return (58, "wrong name or password", b"", 0)
        return (0, None, said, 0)

    def _plain(self, token: bytes) -> bytes | None:
        return b"!" * self.liar if token == b"\0".join([b"user", b"user", self.password]) else None

    def _scram(self, token: bytes) -> bytes | None:
        text = token.decode()
        if text.startswith("n,,"):
            self.first = text[3:]
            nonce = text.rpartition("r=")[2]
            salt = base64.b64encode(b"salt").decode()
            self.second = f"r={'' if self.liar else nonce}more,s={salt},i={self.iterations}"
            return self.second.encode()
        name = self.mechanism.removeprefix("SCRAM-").replace("-", "").lower()
        without, _, proof = text.rpartition(",p=")
        salted = hashlib.pbkdf2_hmac(name, self.password, b"salt", 4096)

        def mac(key: bytes, message: str) -> bytes:
            return hmac.digest(key, message.encode(), name)

        message = f"{self.first},{self.second},{without}"
        client_key = mac(salted, "Client Key")
        signature = mac(hashlib.new(name, client_key).digest(), message)
        if bytes(a ^ b for a, b in zip(client_key, signature, strict=True)) != base64.b64decode(proof):
            return None
        return b"v=" + base64.b64encode(mac(mac(salted, "Server Key"), message))


def with_login(cluster: Cluster, make: Callable[[], Login], monkeypatch: pytest.MonkeyPatch) -> None:
    """Have the cluster ask who it is. One client at a time."""
    login = make()
    for node in cluster.nodes.values():
        node.more = {HANDSHAKE: login.handshake, AUTHENTICATE: login.authenticate}
    cluster.versions |= {HANDSHAKE: (0, 1), AUTHENTICATE: (0, 1)}
    kinds = (SaslHandShakeRequest, SaslAuthenticateRequest)
    known = {(one.API_KEY, one.API_VERSION): one for kind in kinds for one in kind._CLASSES}
    monkeypatch.setattr(scripted_broker, "_REQUESTS", scripted_broker._REQUESTS | known)


def secured(cluster: Cluster, mechanism: str) -> KafkaSettings:
    security = {
        "protocol": "SASL_PLAINTEXT",
        "mechanism": mechanism,
        "username": "user",
        "password": "secret",
    }
    return KafkaSettings(
        bootstrap_servers=cluster.settings().servers, security=security, probe_timeout_ms=30_000
    )


MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")


@pytest.mark.parametrize("mechanism", MECHANISMS)
async def test_a_client_logs_in(mechanism: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async with cluster_of() as cluster:
        with_login(cluster, lambda: Login(mechanism, "secret"), monkeypatch)
        await connect(secured(cluster, mechanism))
        assert cluster.nodes[1].asked[AUTHENTICATE] == (1 if mechanism == "PLAIN" else 2)


@pytest.mark.parametrize("mechanism", MECHANISMS)
async def test_a_wrong_password_is_told(mechanism: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async with cluster_of() as cluster:
        with_login(cluster, lambda: Login(mechanism, "another"), monkeypatch)
        with pytest.RaisesGroup(pytest.RaisesExc(UnreachableError, match="wrong name or password")):
            await connect(secured(cluster, mechanism))
        assert cluster.nodes[1].asked[METADATA] == 0
        await cluster.until(lambda: cluster.open == [0])


async def test_a_mechanism_that_the_broker_does_not_take_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    async with cluster_of() as cluster:
        with_login(cluster, lambda: Login("SCRAM-SHA-512", "secret"), monkeypatch)
        with pytest.RaisesGroup(
            pytest.RaisesExc(UnreachableError, match="not take PLAIN; it takes: SCRAM-SHA-512")
        ):
            await connect(secured(cluster, "PLAIN"))


@pytest.mark.parametrize(("mechanism", "why"), [("SCRAM-SHA-256", "nonce"), ("PLAIN", "empty response")])
async def test_an_answer_that_proves_nothing_is_not_believed(
    mechanism: str, why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with cluster_of() as cluster:
        with_login(cluster, lambda: Login(mechanism, "secret", liar=True), monkeypatch)
        with pytest.RaisesGroup(pytest.RaisesExc(UnreachableError, match=f"cannot be read: .*{why}")):
            await connect(secured(cluster, mechanism))
        await cluster.until(lambda: cluster.open == [0])


@pytest.mark.parametrize("iterations", ["1000001", "9" * 5_000, "1,i=1000001", "1_000_001", "", "many"])
async def test_a_broker_cannot_have_us_count_for_minutes(
    iterations: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with cluster_of() as cluster:
        with_login(cluster, lambda: Login("SCRAM-SHA-256", "secret", iterations=iterations), monkeypatch)
        with pytest.RaisesGroup(
            pytest.RaisesExc(UnreachableError, match=r"more than 1,000,000 iterations|cannot be read")
        ):
            await connect(secured(cluster, "SCRAM-SHA-256"))
