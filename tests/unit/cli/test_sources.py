"""`kiwi-gw sources`, and what `tail` and the shell know of them, against a server of a few lines."""

from __future__ import annotations

import http.server
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kiwi_gw.cli import main
from kiwi_gw.cli.source_lists import not_among
from kiwi_gw.cli.sources import with_rates
from tests.unit.cli.test_health import serving


def item(name: str, events: int, **more: object) -> dict[str, Any]:
    return {"id": name, "type": "kafka", "state": "running", "events": events, "subscriptions": 2, **more}


class Gateway(http.server.HTTPServer):
    """answers: by path, the last one of a path again and again."""

    def __init__(self, answers: dict[str, list[tuple[int, object]]]) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.answers = answers
        self.headers: list[str | None] = []

    @property
    def place(self) -> str:
        return f"127.0.0.1:{self.server_port}"


class Handler(http.server.BaseHTTPRequestHandler):
    server: Gateway

    def do_GET(self) -> None:
        self.server.headers.append(self.headers["Authorization"])
        waiting = self.server.answers.get(self.path, [(404, {"title": "Not Found"})])
        status, value = waiting.pop(0) if len(waiting) > 1 else waiting[0]
        body = value if isinstance(value, bytes) else json.dumps(value).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args: object) -> None:
        pass


FIRST, NEXT = "/api/v1/sources?limit=1000&after=", "/api/v1/sources?limit=1000&after=0%3Aa"
OPERATORS: dict[str, list[tuple[int, object]]] = {
    FIRST: [
        (200, {"sources": [item("a", 10)], "next": NEXT}),
        (200, {"sources": [item("a", 30)], "next": NEXT}),
    ],
    NEXT: [(200, {"sources": [item("b\x1b", 5)], "next": None})],
}


@pytest.fixture
def gateway() -> Iterator[Gateway]:
    server = Gateway({})
    with serving(server):
        yield server


def test_names_types_and_rates(gateway: Gateway, capsys: pytest.CaptureFixture[str]) -> None:
    gateway.answers = {path: list(answers) for path, answers in OPERATORS.items()}
    assert main(["sources", gateway.place, "--seconds", "0.01", "--token", "abc"]) == 0
    head, a, b = (line.split() for line in capsys.readouterr().out.splitlines())
    assert head == ["SOURCE", "TYPE", "STATE", "EVENTS/S", "SUBSCRIPTIONS", "TROUBLE"]
    assert a[:3] == ["a", "kafka", "running"]
    assert 0 < float(a[3]) <= 2_000
    assert b == ["b\\x1b", "kafka", "running", "0", "2"]
    assert set(gateway.headers) == {"Bearer abc"}


WELL = {"trouble": None, "reloadRefused": None}


def test_what_is_wrong_is_shown(gateway: Gateway, capsys: pytest.CaptureFixture[str]) -> None:
    items = [
        item(
            "a", 1, error=None, degraded="Spark is started again", reloadRefused="kiwi.yml:3: no such column"
        ),
        item("b", 1, error="ValueError: x", degraded="the source has failed and is started again"),
    ]
    gateway.answers = {FIRST: [(200, {"sources": items, "next": None})]}
    assert main(["sources", gateway.place, "--seconds", "0.01"]) == 0
    _, a, refused, b = capsys.readouterr().out.splitlines()
    assert a.endswith("  Spark is started again")
    assert refused.strip() == "the last reload was refused: kiwi.yml:3: no such column"
    assert b.endswith("  ValueError: x")
    assert main(["sources", gateway.place, "--seconds", "0.01", "--json"]) == 0
    row = json.loads(capsys.readouterr().out)[0]
    assert (row["trouble"], row["reloadRefused"]) == ("Spark is started again", "kiwi.yml:3: no such column")


def test_a_row_for_every_source_of_several_workers() -> None:
    first = [item("a", 100, worker=0), item("a", 0, worker=1), item("new", 7, worker=0)]
    second = [item("a", 300, worker=0), item("a", 100, worker=1), item("new", 2, worker=0)]
    assert with_rates(first, second, 2.0) == [
        {"id": "a", "type": "kafka", "state": "running", "rate": 100.0, "subscriptions": 4, **WELL},
        {"id": "new", "type": "kafka", "state": "running", "rate": 0.0, "subscriptions": 2, **WELL},
    ]


def test_where_clients_connect(gateway: Gateway, capsys: pytest.CaptureFixture[str]) -> None:
    shown = [{"id": "a", "type": "counter", "state": "running", "message": "Kafka is away"}]
    gateway.answers = {"/readyz?verbose": [(503, {"ready": False, "sources": shown})]}
    assert main(["sources", gateway.place, "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == [
        {"id": "a", "type": "counter", "state": "running", "trouble": "Kafka is away"}
    ]
    assert main(["sources", gateway.place]) == 0
    printed = capsys.readouterr()
    assert printed.out == "SOURCE  TYPE     STATE    TROUBLE\na       counter  running  Kafka is away\n"
    assert "admin address" in printed.err
    gateway.answers = {"/readyz?verbose": [(200, {"ready": True})]}
    assert main(["sources", gateway.place]) == 0
    assert "no sources are shown here" in capsys.readouterr().err


def test_what_cannot_be_asked(gateway: Gateway, capsys: pytest.CaptureFixture[str]) -> None:
    gateway.answers = {FIRST: [(401, {"detail": "who are you?"})]}
    assert main(["sources", gateway.place]) == 1
    assert capsys.readouterr().err == f"kiwi-gw: http://{gateway.place}/: HTTP 401: who are you?\n"
    gateway.answers = {FIRST: [(403, b"forbidden: this needs the right\nand more")]}
    assert main(["sources", gateway.place]) == 1
    told = f"kiwi-gw: http://{gateway.place}/: HTTP 403: forbidden: this needs the right\n"
    assert capsys.readouterr().err == told
    gateway.answers = {FIRST: [(502, b"<html>of a proxy</html>")]}
    assert main(["sources", gateway.place]) == 1
    assert capsys.readouterr().err == f"kiwi-gw: http://{gateway.place}/: HTTP 502\n"
    assert main(["sources", "unix:/nowhere.sock"]) == 1
    assert capsys.readouterr().err == "kiwi-gw: unix:/nowhere.sock: No such file or directory\n"


def test_a_name_that_is_not_there() -> None:
    known = {"flights": "kafka", "ticks": "counter"}
    assert not_among("flights", known) == ""
    assert not_among("flights", {}) == ""
    assert not_among("flihgts", known) == "did you mean 'flights'? There is: flights (kafka), ticks (counter)"
    assert not_among("prices", known) == "There is: flights (kafka), ticks (counter)"
    many = not_among("prices", {f"s{number}": "" for number in range(20)})
    assert many.endswith("s11 and 8 more")


@pytest.mark.parametrize("words", ["tail localhost o", "explain o"])
def test_the_shell_completes_names_from_the_configuration(words: str, tmp_path: Path) -> None:
    file = tmp_path / "kiwi.yml"
    file.write_text(
        "sources: [{type: kafka, topic: orders}, {type: x, id: other}, {type: x, id: z}, 5, {a: b}]"
    )
    environ = os.environ | {
        "_KIWI_GW_COMPLETE": "bash_complete",
        "COMP_WORDS": f"kiwi-gw {words}",
        "COMP_CWORD": str(len(words.split())),
        "KIWI_GW_CONFIG": str(file),
    }
    done = subprocess.run(
        [sys.executable, "-m", "kiwi_gw"], env=environ, capture_output=True, text=True, check=False
    )
    assert done.stdout.splitlines() == ["plain,orders", "plain,other"]
    environ["KIWI_GW_CONFIG"] = str(tmp_path / "none.yml")
    done = subprocess.run(
        [sys.executable, "-m", "kiwi_gw"], env=environ, capture_output=True, text=True, check=False
    )
    assert (done.stdout.strip(), done.stderr) == ("", "")
