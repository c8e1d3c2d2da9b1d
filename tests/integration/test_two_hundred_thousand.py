"""200,000 records, 20 push and 20 pull subscribers at once, over TCP, TLS and a Unix socket.

Every client's set and order of (partition, offset) is compared with what the topic holds. The window holds
all of it, so nobody may be told of a loss either.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import trustme

from kiwi_demo.broker import Broker
from tests.faults.checker import Verdict, judge, produced
from tests.integration.crowd import crowd
from tests.integration.gateway import gateway, kafka_config
from tests.integration.recording import Reader
from tests.topics import Topics

pytestmark = pytest.mark.integration

RECORDS = 200_000
PARTITIONS = 4
WINDOW = {"events": 250_000, "bytes": "256MiB", "memory_bytes": "1GiB", "encodings_bytes": "256MiB"}
CREDIT = 5_000
VALUE_BYTES = 32


@pytest.mark.parametrize(
    "transport", ["tcp", *(pytest.param(other, marks=pytest.mark.extended) for other in ("tls", "unix"))]
)
async def test_everyone_gets_everything_in_order(
    broker: Broker,
    topics: Topics,
    new_topic: Callable[[], str],
    tmp_path: Path,
    transport: str,
    figure: Callable[[str, object], None],
) -> None:
    topic = await topics.create(new_topic(), partitions=PARTITIONS)
    config = kafka_config(broker.bootstrap, topic, window=WINDOW)
    ca = None
    if transport == "tls":
        authority = trustme.CA()
        certificate = authority.issue_cert("localhost")
        ca = str(tmp_path / "ca.pem")
        authority.cert_pem.write_to_path(ca)
        certificate.private_key_pem.write_to_path(tmp_path / "key.pem")
        certificate.cert_chain_pems[0].write_to_path(tmp_path / "cert.pem")
        tls = {"cert": str(tmp_path / "cert.pem"), "key": str(tmp_path / "key.pem")}
        config["server"] = {"address": "127.0.0.1:0", "tls": tls}
    elif transport == "unix":
        config["server"] = {"address": f"unix:{tmp_path}/socket"}

    async with gateway(tmp_path, config) as running:
        (address,) = running.addresses

        def readers(mode: str, count: int) -> list[Reader]:
            return [Reader(f"{mode} {n}", address, topic, mode, CREDIT, ca) for n in range(count)]

        fast = [*readers("push", 19), *readers("pull", 19)]
        careful = [*readers("push", 1), *readers("pull", 1)]
        async with crowd("raw", fast, RECORDS) as many, crowd("library", careful, RECORDS) as few:
            await topics.fill(topic, RECORDS, PARTITIONS, size=VALUE_BYTES)
            recordings = [*await many.finished(), *await few.finished()]
        _, peak = running.memory()
        used = running.cpu_seconds()

    everything = produced(await topics.end_offsets(topic))
    assert sum(map(len, everything.values())) == RECORDS
    assert len(recordings) == 40
    for recording in recordings:
        assert recording.faults == [], recording.name
        assert judge(recording.history, everything) == Verdict(), recording.name
        assert recording.events == RECORDS, recording.name
    seconds = max(r.last_at for r in recordings[:38]) - min(r.first_at for r in recordings[:38])
    figure(f"{transport}: deliveries/s to 38 fast readers", round(38 * RECORDS / seconds))
    figure(f"{transport}: CPU seconds of the gateway", round(used, 1))
    figure(f"{transport}: largest resident size of the gateway, MiB", round(peak / 2**20))
