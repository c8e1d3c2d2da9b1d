"""`kiwi-gw health` against a server of a few lines."""

from __future__ import annotations

import http.server
import json
import socketserver
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import trustme

from kiwi_gw.cli import main

ANSWERS = {"/health": (200, "OK"), "/readyz": (503, "starting"), "/own": (204, "")}


class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        status, text = ANSWERS.get(self.path, (404, "not found \x1b[31m"))
        self.send_response(status)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text.encode())

    def log_message(self, *args: object) -> None:
        pass


@contextmanager
def serving(server: socketserver.BaseServer) -> Iterator[None]:
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.fixture
def address() -> Iterator[str]:
    server = http.server.HTTPServer(("127.0.0.1", 0), Handler)
    with serving(server):
        yield f"127.0.0.1:{server.server_port}"


def test_well(address: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["health", address]) == 0
    assert capsys.readouterr().out == f"http://{address}/: HTTP 200: OK\n"
    assert main(["health", f"http://{address}/own"]) == 0


def test_the_address_may_be_in_the_environment(
    address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("KIWI_GW_URL", address)
    assert main(["health"]) == 0
    assert capsys.readouterr().out == f"http://{address}/: HTTP 200: OK\n"
    file = tmp_path / "kiwi.yml"
    file.write_text("server: {address: 'unix:/nowhere.sock'}")
    assert main(["health", "-c", str(file)]) == 1
    assert "/nowhere.sock" in capsys.readouterr().err


def test_not_well(address: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["health", "--ready", address]) == 1
    captured = capsys.readouterr()
    assert (captured.out, captured.err) == ("", f"http://{address}/: HTTP 503: starting\n")
    assert main(["health", f"{address}/no"]) == 1
    assert "not found \\x1b[31m" in capsys.readouterr().err


def test_for_scripts(address: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["health", address, "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {
        "healthy": True,
        "address": f"http://{address}/",
        "status": 200,
        "answer": "OK",
    }
    assert main(["health", "127.0.0.1:1", "--json"]) == 1
    answer = json.loads(capsys.readouterr().out)
    assert (answer["healthy"], answer["status"], answer["answer"]) == (False, None, "Connection refused")


def test_the_gateway_of_the_configuration(
    address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """As the HEALTHCHECK of a container: no argument, and the file may use every way to say it."""
    port = address.rpartition(":")[2]
    path = tmp_path / "kiwi.yml"
    monkeypatch.setenv("KIWI_GW_CONFIG", str(path))
    for text in (f"0.0.0.0:{port}", f"[{address}, 127.0.0.1:1]"):
        path.write_text(f"server:\n  address: {text}\n")
        assert main(["health"]) == 0, text
    path.write_text("server:\n  address: 127.0.0.1:1\n")
    assert main(["health"]) == 1
    monkeypatch.setenv("KIWI_GW_SERVER__ADDRESS", address)
    assert main(["health"]) == 0
    monkeypatch.delenv("KIWI_GW_SERVER__ADDRESS")
    capsys.readouterr()
    path.write_text("server:\n  address: ${HOST}:${PORT}\n")
    assert main(["health"]) == 1
    assert "give the address: kiwi-gw health URL" in capsys.readouterr().err
    path.unlink()
    assert main(["health"]) == 1
    assert "No such file or directory; give the address" in capsys.readouterr().err


def test_a_unix_socket(tmp_path: Path) -> None:
    path = tmp_path / "kiwi.sock"
    with serving(socketserver.UnixStreamServer(str(path), Handler)):
        assert main(["health", f"unix:{path}"]) == 0
    assert main(["health", f"unix:{path}.no"]) == 1


def test_tls(tmp_path: Path) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    trustme.CA().issue_cert("localhost").configure_cert(context)
    server = http.server.HTTPServer(("127.0.0.1", 0), Handler)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    with serving(server):
        url = f"https://localhost:{server.server_port}"
        assert main(["health", url]) == 1, "nobody vouches for this certificate"
        assert main(["health", "--insecure", url]) == 0
        config = tmp_path / "kiwi.yml"
        config.write_text(
            f"server: {{address: '127.0.0.1:{server.server_port}', tls: {{cert: a, key: b}}}}\n"
        )
        assert main(["health", "--config", str(config)]) == 0, "its own certificate is not for 127.0.0.1"


def test_wrong_usage(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["health", "ftp://x"]) == 2
