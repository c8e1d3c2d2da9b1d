"""Fourteen queries in one gateway, all busy: `check` looks at all of them, and a stop ends them in order."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, Final

import pytest
import trio
import yaml

from tests.edge.admin import fetch
from tests.integration.gateway import gateway
from tests.integration.spark.held_gateway import HERE, WITHIN_TESTS, in_group
from tests.integration.spark.late_flights import patience, small

pytestmark = [pytest.mark.integration, pytest.mark.extended, pytest.mark.timeout(600)]

COUNT: Final = 14
FILES: Final = 2_000
IN_PYTHON: Final = {"transform": "stateful_apis:transform_with_state_in_pandas", "output_mode": "update"}
"""Only one, the first: Spark gives its Python 10 s to start, which is short beside so many others."""
KINDS: Final[list[dict[str, Any]]] = [
    {"sql": "SELECT k, n FROM events WHERE n > 1"},
    {"sql": "SELECT k, sum(n) AS total FROM events GROUP BY k", "output_mode": "update"},
    {"sql": "SELECT DISTINCT k, n FROM events", "output_mode": "update"},
]


def config(folder: Path) -> dict[str, object]:
    """More files than will be read, one for each batch."""
    (folder / "in").mkdir()
    for number in range(FILES):
        row = {"k": "ab"[number % 2], "n": number, "at": f"2013-01-01T{number // 100:02}:00:00Z"}
        (folder / "in" / f"{number}.json").write_text(json.dumps(row))
    schema = "k STRING, n INT, at TIMESTAMP"
    files = {
        "format": "json",
        "path": str(folder / "in"),
        "schema": schema,
        "stream": True,
        "options": {"maxFilesPerTrigger": 1},
    }
    sources = [
        {
            "type": "spark",
            "id": f"q{number}",
            "inputs": {"events": files},
            "trigger": {"processing_time": "1 ms"},
            **(KINDS[number % len(KINDS)] if number else IN_PYTHON),
        }
        for number in range(COUNT)
    ]
    spark = {
        "master": "local[2]",
        "checkpoint_dir": str(folder / "state"),
        "conf": small(),
        "python_path": [HERE],
        "nice": 0,
    }
    return {**WITHIN_TESTS, "spark": spark, "sources": sources}


async def test_checked_together_and_stopped_under_load(
    tmp_path: Path, temporary: Path, figure: Callable[[str, object], None]
) -> None:
    text = yaml.safe_dump(config(tmp_path))
    (tmp_path / "kiwi-gw.yml").write_text(text)
    began = time.monotonic()
    command = [sys.executable, "-m", "kiwi_gw", "check", "--config", str(tmp_path / "kiwi-gw.yml")]
    ask = partial(trio.run_process, capture_stdout=True, stderr=subprocess.STDOUT, check=False)
    answer = await ask(command, env={**os.environ, "TMPDIR": str(temporary)})
    figure("check of 14 queries, s", round(time.monotonic() - began, 1))
    said = answer.stdout.decode()
    assert all(f"spark source q{number}" in said for number in range(COUNT)), said
    assert (said.count("columns:"), answer.returncode) == (COUNT, 0), said
    assert os.listdir(temporary) == []

    async with gateway(tmp_path, text, env={"TMPDIR": str(temporary)}) as running:
        admin = (await running.logged("gateway listens"))["admin"]
        with patience(running):
            driver = (await running.logged("spark driver is ready"))["pid"]

            async def details() -> list[dict[str, Any]]:
                return [one["details"] for one in (await fetch(admin, "/sources"))["sources"]]

            while any("batch" not in one for one in await details()):  # noqa: ASYNC110
                await trio.sleep(0.2)
        began = time.monotonic()
        assert await running.stop() == 0
        figure("stop with 14 busy queries, s", round(time.monotonic() - began, 1))
        assert in_group(driver) == []
    assert os.listdir(temporary) == []
