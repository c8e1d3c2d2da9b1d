"""TLS, client certificates, user and password, against a broker that asks for them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import trio
import trustme
from cryptography.hazmat.primitives import serialization

from kiwi_demo.broker import Broker
from kiwi_demo.loopback import HOST, Node, free_ports
from kiwi_gw.api import Outgoing, PluginError, Published
from kiwi_kafka import KafkaSettings
from kiwi_kafka.diagnostics import check_kafka
from tests.integration.kafka.support import kafka_on, running
from tests.topics import Record, Topics

pytestmark = [pytest.mark.integration, pytest.mark.extended]

_LOGIN = "org.apache.kafka.common.security.plain.PlainLoginModule"


@dataclass(frozen=True)
class Secured:
    """A broker with an open listener (for producing), one for user and password, one for certificates."""

    broker: Broker
    sasl: str
    mtls: str
    files: Path

    def file(self, name: str) -> str:
        return str(self.files / name)


def write_files(folder: Path) -> None:
    authority, stranger = trustme.CA(), trustme.CA()
    authority.cert_pem.write_to_path(str(folder / "ca.pem"))
    stranger.cert_pem.write_to_path(str(folder / "stranger.pem"))
    for name, cert in (
        ("client", authority.issue_cert("kiwi@example.org")),
        ("broker", authority.issue_cert(HOST, "localhost")),
        ("unknown", stranger.issue_cert("eve@example.org")),
    ):
        # Kafka wants PKCS #8, and certificate and key in one file; trustme writes neither.
        key = serialization.load_pem_private_key(cert.private_key_pem.bytes(), None)
        plain = (serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8)
        locked = serialization.BestAvailableEncryption(b"opensesame")
        pem = key.private_bytes(*plain, serialization.NoEncryption())
        chain = b"".join(part.bytes() for part in cert.cert_chain_pems)
        (folder / f"{name}-key.pem").write_bytes(pem)
        (folder / f"{name}-locked-key.pem").write_bytes(key.private_bytes(*plain, locked))
        (folder / f"{name}-cert.pem").write_bytes(chain)
        (folder / f"{name}.pem").write_bytes(pem + chain)


@pytest.fixture
async def secured(tmp_path: Path) -> AsyncIterator[Secured]:
    write_files(tmp_path)
    port, controller, sasl, mtls = free_ports(4)
    (node,) = nodes = (Node(1, port, controller),)
    ports = {"PLAINTEXT": port, "SASL": sasl, "MTLS": mtls}
    clients = [f"{name}://{HOST}:{port}" for name, port in ports.items()]
    properties = {
        "listeners": ",".join([*clients, f"CONTROLLER://{HOST}:{node.controller_port}"]),
        "advertised.listeners": ",".join(clients),
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,SASL:SASL_SSL,MTLS:SSL",
        "inter.broker.listener.name": "PLAINTEXT",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(tmp_path / "broker.pem"),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(tmp_path / "ca.pem"),
        "listener.name.mtls.ssl.client.auth": "required",
        "sasl.enabled.mechanisms": "PLAIN",
        "listener.name.sasl.plain.sasl.jaas.config": f'{_LOGIN} required user_kiwi="fruit";',
    }
    async with Broker(
        tmp_path / "broker",
        node_id=1,
        cluster=nodes,
        properties=properties,
        java_options=("-XX:TieredStopAtLevel=1",),
    ) as broker:
        yield Secured(broker, f"{HOST}:{ports['SASL']}", f"{HOST}:{ports['MTLS']}", tmp_path)


async def test_user_and_certificate(secured: Secured, new_topic: Callable[[], str]) -> None:
    topics = Topics(secured.broker.bootstrap)
    name = await topics.create(new_topic(), 3)
    await topics.produce(name, [Record(b"%d" % n, partition=n % 2) for n in range(100)])
    user = {"protocol": "SASL_SSL", "username": "kiwi", "password": "fruit", "ca": secured.file("ca.pem")}
    certificate = {
        "protocol": "SSL",
        "ca": secured.file("ca.pem"),
        "cert": secured.file("client-cert.pem"),
        "key": secured.file("client-locked-key.pem"),
        "key_password": "opensesame",
    }
    for server, security in ((secured.sasl, user), (secured.mtls, certificate)):
        async with (
            kafka_on(server, security=security) as kafka,
            running(kafka, name, start={0: 0, 1: 0, 2: 0}) as source,
        ):
            with trio.fail_after(10):
                await source.out.wait_until(
                    lambda: sum(len(source.out.offsets.get(p, ())) for p in (0, 1)) >= 100
                )
            assert {p: source.out.offsets[p] for p in (0, 1)} == {p: list(range(50)) for p in (0, 1)}
            (written,) = await source.source.produce([Outgoing(None, b"v", partition=2)], 10)
            assert isinstance(written, Published)
            await source.source.commit(f"by {server}", {0: (50, "")})
            assert await source.source.committed(f"by {server}") == {0: (50, "")}

    async def message(server: str, **changes: Any) -> str:
        security = (user if server == secured.sasl else certificate) | changes
        settings = KafkaSettings(bootstrap_servers=server, security=security)
        first, *_ = await check_kafka(settings, [name])
        assert first.level == "error"
        assert "fruit" not in first.message
        return first.message

    assert "Authentication failed" in await message(secured.sasl, password="wrong")
    assert "certificate verify failed" in await message(secured.sasl, ca=secured.file("stranger.pem"))
    unknown = {"cert": secured.file("unknown-cert.pem"), "key": secured.file("unknown-key.pem")}
    assert await message(secured.mtls, **unknown, key_password=None)
    # One who cannot come in is told so, and tried again: the password may be mended at the broker.
    async with kafka_on(secured.sasl, security=user | {"password": "wrong"}) as kafka:
        await trio.sleep(1)
        assert not kafka.up


async def test_files_that_cannot_be_read() -> None:
    for security in (
        {"protocol": "SSL", "ca": "/nowhere/ca.pem"},
        {"protocol": "SSL", "cert": "/nowhere/c.pem", "key": "/nowhere/k.pem"},
    ):
        with pytest.raises(PluginError, match=r"kafka\.security"):
            async with kafka_on("127.0.0.1:1", security=security):
                pass
