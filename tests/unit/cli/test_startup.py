"""What a start does not do, as somebody waits for it. How long it takes, the benchmark `startup` measures."""

from __future__ import annotations

import http.client
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

OF_OTHER_SOURCES = {"aiokafka", "fastavro", "kiwi_kafka", "pyarrow", "kiwi_spark", "pyspark"}
OF_TOKENS = {"jwt", "cryptography", "kiwi_tokens"}
OF_CLIENTS = {
    "trio_websocket",
    "wsproto",
    "kiwi_gw.client",
    "kiwi_gw.testing",
    "kiwi_demo",
    "multiprocessing",
}
OF_QUERIES = {"re2", "kiwi_gw.query.sql", "kiwi_gw.query.caql", "kiwi_gw.query.compiler"}
OF_SERVING = {"kiwi_gw.edge.listener", "kiwi_gw.runtime", "kiwi_gw.addresses", "prometheus_client", "h11"}

_SOURCES_ARE_NOT_READ = (
    "import inspect\n"
    "def findsource(*_): raise AssertionError('reads the source of a module')\n"
    "inspect.findsource = findsource\n"
)
_STATE_WHEN_ASKED = (
    "import gc, json, signal, sys\n"
    "def tell(*_): print(json.dumps({'modules': [*sys.modules], 'gc': gc.isenabled()}), flush=True)\n"
    "signal.signal(signal.SIGUSR1, tell)\n"
)
_MAIN = "from kiwi_gw.cli import main\ncode = main(sys.argv[1:])\n"


@pytest.fixture
def config(tmp_path: Path) -> Path:
    counter = {"type": "counter", "id": "ticks", "min": 0, "interval_ms": 1_000}
    server = {"address": "127.0.0.1:0", "admin_address": "127.0.0.1:0"}
    file = tmp_path / "kiwi.yml"
    file.write_text(json.dumps({"sources": [counter], "server": server, "logging": {"format": "json"}}))
    return file


def environment() -> dict[str, str]:
    # Where coverage is measured it would be imported, and read sources.
    return {name: value for name, value in os.environ.items() if not name.startswith("COVERAGE")}


@contextmanager
def started(code: str, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    pipe = subprocess.PIPE
    command = [sys.executable, "-c", code, *arguments]
    with subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True, env=environment()) as child:
        try:
            yield child
        finally:
            child.kill()


def health(child: subprocess.Popen[str]) -> int:
    """Wait until it listens, and ask."""
    assert child.stderr is not None
    said: list[Any] = []
    for line in child.stderr:
        said.append(line)
        if line.startswith("{") and json.loads(line)["event"] == "gateway listens":
            connection = http.client.HTTPConnection(json.loads(line)["addresses"][0], timeout=30)
            connection.request("GET", "/health")
            status = connection.getresponse().status
            connection.close()
            return status
    raise AssertionError("".join(said))


def test_a_gateway_with_a_counter_alone_does_little_until_health_answers(config: Path) -> None:
    code = _SOURCES_ARE_NOT_READ + _STATE_WHEN_ASKED + _MAIN
    with started(code, "run", "--config", str(config)) as child:
        assert health(child) == 200
        child.send_signal(signal.SIGUSR1)
        assert child.stdout is not None
        state = json.loads(child.stdout.readline())
    modules = set(state["modules"])
    assert {"kiwi_counter", "kiwi_gw.runtime.gateway"} <= modules
    assert modules & (OF_OTHER_SOURCES | OF_TOKENS | OF_CLIENTS) == set()
    assert state["gc"]  # it was off for a while


def test_what_queries_need_is_not_there_before_health_is_answered() -> None:
    code = (
        "import sys, kiwi_gw.app\nfrom kiwi_gw.plugin_manager import PluginManager\n"
        "PluginManager()\nprint(' '.join(sys.modules))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment()
    )
    modules = set(done.stdout.split())
    assert "kiwi_gw.dialects.zetta.plugin" in modules
    assert modules & OF_QUERIES == set()


@pytest.mark.parametrize("verb", ["validate", "check"])
def test_checking_a_configuration_needs_nothing_of_a_server(verb: str, config: Path) -> None:
    code = f"import sys\n{_MAIN}print('\\n' + ' '.join(sys.modules))\nsys.exit(code)"
    done = subprocess.run(
        [sys.executable, "-c", code, verb, str(config)],
        capture_output=True,
        text=True,
        check=True,
        env=environment(),
    )
    modules = set(done.stdout.splitlines()[-1].split())
    assert "kiwi_counter" in modules
    assert modules & (OF_SERVING | OF_OTHER_SOURCES | OF_TOKENS | OF_CLIENTS) == set()
