"""Runs what a page of the documentation prints, in its order, in a folder of its own."""

from __future__ import annotations

import json
import os
import re
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import websockets.sync.client

from tests.doc_snippets import ROOT, Snippet

_STAYS = re.compile(r"(kiwi-gw (--config|run)|python3? -m http\.server) ")
_PORT = re.compile(r"(?<=[: ])(8000|8001|8443|9092|9464)\b")
_CARRIED = ("export ", ". ")
"""Beginnings of commands whose effect later ones see."""
_ASKED_AGAIN = "kiwi-gw health --ready "
"""Beginning of a command that says no until the gateway has warmed up, which it does behind its start."""
_WITHIN = 150
"""Seconds for one command: some wait until Spark has started, beside everything else that a machine does."""


class Session:
    """A folder with what the page has made so far, and the processes that it has started.

    broker: "host:port" in place of 127.0.0.1:9092; topic: in place of `orders`.
    """

    def __init__(self, folder: Path, broker: str, topic: str, ends: ExitStack) -> None:
        free = (str(_free_port()) for _ in range(4))
        self._ports = dict(zip(("8000", "8001", "8443", "9464"), free, strict=True))
        self._ports["9092"] = broker.rpartition(":")[2]
        self._topic = topic
        self._folder = folder
        self._ends = ends
        self._carried: list[str] = []
        self._log = folder / "gateway.log"
        self._gateway: subprocess.Popen[bytes] | None = None
        self._environment = {
            **{key: value for key, value in os.environ.items() if not key.startswith("KIWI_GW_")},
            "PATH": f"{Path(sys.prefix) / 'bin'}{os.pathsep}{os.environ['PATH']}",
            "KIWI_GW_SERVER__ADMIN_ADDRESS": f"127.0.0.1:{self._ports['9464']}",
        }

    def text(self, printed: str) -> str:
        """What is printed, with the ports and the topic of this session."""
        return re.sub(r"\borders\b", self._topic, _PORT.sub(lambda port: self._ports[port[1]], printed))

    def clone(self) -> None:
        """Make the folder look like a clone: its configurations and its environment."""
        (self._folder / ".venv").symlink_to(sys.prefix)
        for path in (ROOT / "config").glob("*.yml"):
            self.file(f"config/{path.name}", path.read_text())

    def file(self, name: str, printed: str) -> None:
        """Write a file of the page. A gateway that runs with it takes it before this returns."""
        path = self._folder / name
        path.parent.mkdir(exist_ok=True)
        changed = path.exists() and name == "kiwi-gw.yml" and self._gateway is not None
        before = self._logged("configuration applied")
        path.write_text(self.text(printed))
        if changed:
            self._wait(lambda: self._logged("configuration applied") > before, "the file to be taken")

    def run(self, block: Snippet) -> None:
        """Do what one block says."""
        if block.title and not block.title.startswith("ws://"):
            self.file(block.title, block.text)
        elif block.language == "sh":
            for command in commands(block.text):
                self.command(command)
        elif block.language == "console":
            for command, shown in answers(block.text):
                said = self.command(command)
                assert re.fullmatch(pattern(self.text(shown)), said), f"{command}\n{said}"
        elif block.title.startswith("ws://"):
            self.talk(block)

    def command(self, printed: str) -> str:
        """Run one command, and return what it says. One that stays is waited for until it serves."""
        command = self.text(printed)
        if command.startswith("kiwi-gw broker"):
            return ""  # the broker of the tests is there
        if command.startswith(_CARRIED):
            self._carried.append(command)
        whole = "\n".join([*self._carried, ("exec " if _STAYS.match(command) else "") + command])
        if _STAYS.match(command):
            self._start(whole, "http.server" in command)
            return ""
        if command.startswith(_ASKED_AGAIN):
            self._wait(lambda: self._run(whole).returncode == 0, command)
        done = self._run(whole)
        assert done.returncode == 0, f"{command}\n{done.stdout.decode()}"
        return done.stdout.decode()

    def talk(self, block: Snippet) -> None:
        """Say the lines with > to the gateway, and hear those with <."""
        with websockets.sync.client.connect(
            self.text(block.title), close_timeout=0, max_queue=None
        ) as client:
            for mark, line in messages(self.text(block.text)):
                if mark == ">":
                    client.send(line)
                else:
                    said = str(client.recv(timeout=_WITHIN))
                    assert re.fullmatch(pattern(line), said), f"{line}\n{said}"

    def _run(self, command: str) -> subprocess.CompletedProcess[bytes]:
        return subprocess.run(
            ["sh", "-c", command],
            cwd=self._folder,
            env=self._environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=_WITHIN,
            check=False,
        )

    def _start(self, command: str, is_site: bool) -> None:
        if self._gateway is not None and not is_site:
            stop(self._gateway)
        with self._log.open("wb") as log:
            process = subprocess.Popen(
                ["sh", "-c", command], cwd=self._folder, env=self._environment, stderr=log, stdout=log
            )
        self._ends.callback(stop, process)
        if is_site:
            self._wait(lambda: _answers(int(self._ports["8001"])), "the site")
            return
        self._gateway = process
        self._wait(lambda: bool(self._logged("gateway listens")), "the gateway to listen")
        # Who asks over HTTP before a topic is there is told to come again; who reads a page is slower.
        self._wait(lambda: bool(self._logged("source runs")), "a source to run")

    def _logged(self, event: str) -> int:
        return self._log.read_text().count(f'"event": {json.dumps(event)}') if self._log.exists() else 0

    def _wait(self, condition: object, what: str) -> None:
        assert callable(condition)
        until = time.monotonic() + _WITHIN
        while not condition():
            assert time.monotonic() < until, f"waited for {what}: {self._log.read_text()}"
            time.sleep(0.02)


@contextmanager
def session(folder: Path, broker: str, topic: str) -> Iterator[Session]:
    """A session whose processes are ended with it."""
    with ExitStack() as ends:
        yield Session(folder, broker, topic, ends)


def commands(text: str) -> list[str]:
    """The commands of a block: a line each, but for those that go on behind a backslash."""
    lines = text.replace("\\\n", "").splitlines()
    return [line.strip() for line in lines if line.strip() and not line.startswith("#")]


def answers(text: str) -> list[tuple[str, str]]:
    """The commands of a block with `$` before them, and what is shown of each."""
    parts = re.split(r"^\$ ", text, flags=re.MULTILINE)[1:]
    return [(command, shown) for command, _, shown in (part.partition("\n") for part in parts)]


def messages(text: str) -> list[tuple[str, str]]:
    """What is said (`>`) and heard (`<`); a message may go on in lines that are indented."""
    joined = re.sub(r"\n {2,}", "", text)
    return [(line[0], line[2:]) for line in joined.splitlines()]


def pattern(shown: str) -> str:
    """What is shown as a regular expression: `...` is anything, and numbers are any number."""
    parts = [re.sub(r"\d+", r"\\d+", re.escape(part)) for part in shown.split("...")]
    return "(?s:.*)".join(parts)


def stop(process: subprocess.Popen[bytes]) -> None:
    """End a process; it has to leave by itself."""
    process.terminate()
    process.wait(_WITHIN)


def needs(block: Snippet) -> set[str]:
    """Programs that this machine may lack."""
    return {name for name in ("curl", "openssl") if f"{name} " in block.text and shutil.which(name) is None}


def path_of(block: Snippet) -> str:
    return urlsplit(block.title).path


def _free_port() -> int:
    with closing(socket.socket()) as made:
        made.bind(("127.0.0.1", 0))
        return int(made.getsockname()[1])


def _answers(port: int) -> bool:
    with closing(socket.socket()) as made:
        return made.connect_ex(("127.0.0.1", port)) == 0
