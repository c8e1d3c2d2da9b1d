"""Whatever fits the OpenAPI document is answered as that says, and what does not is refused.

schemathesis says so, with all its checks and phases, of a gateway with a real Kafka.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import trio

from kiwi_demo.broker import Broker
from tests.integration.gateway import gateway
from tests.integration.test_pulsar import NewTopic
from tests.integration.test_pulsar_subscriptions import open_to_all
from tests.topics import Record, Topics

pytestmark = [pytest.mark.integration, pytest.mark.extended, pytest.mark.timeout(400)]

SETTINGS = """\
# So that most requests find what they are about.
[parameters]
tenant = "public"
namespace = "default"
topic = "{topic}"
partition = "0"
subscription = "s"

# A request may fit the document and still ask for what cannot be: a definition that is none, a place that is
# gone.
[checks.positive_data_acceptance]
expected-statuses = ["2xx", "401", "403", "404", "409", "422", "429", "503"]

# An id that is none looks like one; an integer is written without a fraction; a reset says where to.
[[operations]]
include-path-regex = "(messages|subscription}}|cursor)$"
checks.positive_data_acceptance.expected-statuses = ["2xx", "400", "404", "409", "422", "429", "503"]
"""
EXAMPLES = 50


@pytest.mark.parametrize("seed", [1, *(pytest.param(seed, marks=pytest.mark.long) for seed in (2, 3))])
async def test_what_is_described_is_what_is_answered(
    broker: Broker, topics: Topics, new_topic: NewTopic, tmp_path: Path, seed: int
) -> None:
    name = await topics.create(new_topic(), 1)
    await topics.produce(name, [Record(b'{"a": 1}', key=b"k"), Record(None, key=b"k"), Record(b"\xff")])
    (tmp_path / "schemathesis.toml").write_text(SETTINGS.format(topic=name))
    async with gateway(tmp_path, open_to_all(broker, name)) as running:
        await running.logged("source runs")
        command = [
            str(Path(sys.executable).with_name("schemathesis")),
            "--config-file=schemathesis.toml",
            "run",
            f"http://{running.address}/openapi.json",
            "--checks=all",
            f"--max-examples={EXAMPLES}",
            f"--seed={seed}",
            "--no-color",
        ]

        async def go_on_writing() -> None:
            """Let those who wait for messages have some."""
            while True:
                await topics.produce(name, [Record(b"0")])

        async with trio.open_nursery() as nursery:
            nursery.start_soon(go_on_writing)
            with trio.fail_after(300):
                done = await trio.run_process(
                    command, cwd=tmp_path, check=False, capture_stdout=True, stderr=subprocess.STDOUT
                )
            nursery.cancel_scope.cancel()
    said = done.stdout.decode()
    assert done.returncode == 0, said
    assert "Coverage" in said
    assert "Stateful" in said
