"""Batches that fail and that Spark repeats, in another order: every row is in the sink's topic once."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
import trio

from kiwi_demo.broker import Broker
from tests.integration.spark.shared_classes import small_jvm
from tests.topics import Record, Topics

WRITER = Path(__file__).with_name("repeating_writer.py")

pytestmark = [pytest.mark.integration, pytest.mark.extended, pytest.mark.timeout(600)]


async def test_rows_of_batches_that_are_repeated_are_there_once(
    topics: Topics, broker: Broker, new_topic: Callable[[], str], tmp_path: Path
) -> None:
    source, sink = await topics.create(new_topic(), 2), await topics.create(new_topic(), 2)
    # Equal rows, within a batch and across batches, with a key and without one.
    produced = [
        Record(b'{"n":%d}' % (n % 40), None if n % 3 else b'{"k":%d}' % (n % 2), n % 2) for n in range(200)
    ]
    await topics.produce(source, produced)
    ended = await trio.run_process(
        [sys.executable, str(WRITER), broker.bootstrap, source, sink, str(tmp_path / "state"), small_jvm()],
        capture_stdout=True,
        stderr=subprocess.STDOUT,
        cwd=tmp_path,  # Spark leaves things there
        check=False,
    )
    said = ended.stdout.decode()
    assert ended.returncode == 0, said
    found = json.loads(said.splitlines()[-1])
    assert Counter((key, value) for key, value in found["rows"]) == Counter(
        (record.key and record.key.decode(), record.value and record.value.decode()) for record in produced
    )
    assert found["marks"] == {"0": 100, "1": 100}
