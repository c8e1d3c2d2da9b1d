"""Verbs, exit codes, and what the original server's users type."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import types
from collections.abc import Mapping
from importlib.metadata import EntryPoint, EntryPoints
from pathlib import Path

import click
import pytest
import trio

import kiwi_gw.app
from kiwi_gw import __version__
from kiwi_gw.cli import main, plugin_commands
from kiwi_gw.errors import ConfigError, KiwiError, Problem


class Served:
    """Stands in for the gateway: remembers what it was started with."""

    def __init__(self) -> None:
        self.config: Path | None = None
        self.environ: Mapping[str, str] = {}

    def __call__(self, config: Path, environ: Mapping[str, str]) -> int:
        self.config, self.environ = config, environ
        return 3


@pytest.fixture
def served(monkeypatch: pytest.MonkeyPatch) -> Served:
    for name in ("CONFIG", "KIWI_GW_CONFIG", "LOG_LEVEL", "KIWI_GW_LOG_LEVEL"):
        monkeypatch.delenv(name, raising=False)
    served = Served()
    monkeypatch.setattr(kiwi_gw.app, "serve", served)
    return served


@pytest.mark.parametrize(
    ("arguments", "config"),
    [
        (["run", "--config", "a.yml"], "a.yml"),
        (["run", "-c", "a.yml"], "a.yml"),
        (["--config", "a.yml"], "a.yml"),
        (["--config=a.yml"], "a.yml"),
        (["-c", "a.yml"], "a.yml"),
        (["run"], "/etc/kiwi/config/kiwi.yml"),
        ([], "/etc/kiwi/config/kiwi.yml"),
        (["--log-level", "debug", "--config", "a.yml"], "a.yml"),
    ],
)
def test_run_with_and_without_its_name(arguments: list[str], config: str, served: Served) -> None:
    assert main(arguments) == 3
    assert served.config == Path(config)


@pytest.mark.parametrize(
    ("arguments", "environ", "level"),
    [
        ([], {}, None),
        (["-v"], {}, "debug"),
        (["-q"], {}, "warning"),
        (["--log-level", "WARN"], {}, "warning"),
        (["-l", "TRACE"], {}, "debug"),
        ([], {"LOG_LEVEL": "error"}, "error"),
        ([], {"LOG_LEVEL": "error", "KIWI_GW_LOG_LEVEL": "info"}, "info"),
        (["-l", "debug"], {"KIWI_GW_LOGGING__LEVEL": "error"}, "debug"),
    ],
)
def test_the_log_level(
    arguments: list[str],
    environ: dict[str, str],
    level: str | None,
    served: Served,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    assert main(["run", *arguments]) == 3
    assert served.environ.get("KIWI_GW_LOGGING__LEVEL") == level


def test_the_originals_environment(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CONFIG", "original.yml")
    assert main([]) == 3
    assert served.config == Path("original.yml")


@pytest.mark.parametrize(
    "arguments", [["-q", "-v"], ["--nonsense"], ["nonsense"], ["-l", "loud"], ["run", "x"]]
)
def test_wrong_usage(arguments: list[str], served: Served, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(arguments) == 2
    assert "Usage: kiwi-gw" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("error", "code", "said"),
    [
        (KiwiError("no \x1b[31mway"), 1, "kiwi-gw: no \\x1b[31mway\n"),
        (ConfigError((Problem("f", 1, "a", "b"), Problem("f", 2, "", "c"))), 78, "f:1: a: b\nf:2: c\n"),
        (KeyboardInterrupt(), 130, ""),
        (BaseExceptionGroup("", [KeyboardInterrupt()]), 130, ""),
        (ExceptionGroup("", [ExceptionGroup("", [KiwiError("deep")])]), 1, "kiwi-gw: deep\n"),
    ],
)
def test_errors_become_exit_codes(
    error: BaseException,
    code: int,
    said: str,
    served: Served,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def fails(config: Path, environ: Mapping[str, str]) -> int:
        raise error

    monkeypatch.setattr(kiwi_gw.app, "serve", fails)
    assert main(["run"]) == code
    # On Ctrl-C click ends the line on which the terminal has shown "^C".
    assert capsys.readouterr().err.lstrip("\n") == said


def test_a_mistake_of_ours_is_not_hidden(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(config: Path, environ: Mapping[str, str]) -> int:
        raise ExceptionGroup("", [KiwiError("expected"), ZeroDivisionError()])

    monkeypatch.setattr(kiwi_gw.app, "serve", fails)
    with pytest.raises(ExceptionGroup):
        main(["run"])


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"kiwi-gw {__version__}\n"
    assert main(["version"]) == 0
    assert capsys.readouterr().out.startswith(f"kiwi-gw {__version__}\npython ")
    assert main(["version", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["kiwi-gw"] == __version__


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["completion", shell]) == 0
    script = capsys.readouterr().out
    assert "_KIWI_GW_COMPLETE" in script
    assert "kiwi-gw" in script


def test_completion_knows_the_verbs() -> None:
    environ = os.environ | {
        "_KIWI_GW_COMPLETE": "bash_complete",
        "COMP_WORDS": "kiwi-gw ta",
        "COMP_CWORD": "1",
    }
    done = subprocess.run(
        [sys.executable, "-m", "kiwi_gw"], env=environ, capture_output=True, text=True, check=False
    )
    assert done.stdout == "plain,tail\n"


HEAVY = {"pydantic", "aiokafka", "pyspark", "pluggy", "structlog", "msgspec", "yaml"}
TRIO = {"trio", "trio_websocket"}
LIBRARY = {"ssl", "http", "json", "email", "kiwi_demo"}
"""Email is what `importlib.metadata` imports: our own verbs look for no plugins' commands."""


@pytest.mark.parametrize(
    ("arguments", "banned"),
    [
        (
            ["--help"],
            HEAVY | TRIO | {"ssl", "http", "kiwi_spark"},
        ),  # the list of plugins' commands needs email
        (["tail", "--help"], HEAVY | TRIO | LIBRARY),
        (["health", "127.0.0.1:1"], HEAVY | TRIO | LIBRARY - {"ssl", "http", "email"}),
        # The messages of the protocol are structs of msgspec.
        (["tail", "127.0.0.1:1", "x"], (HEAVY | {"kiwi_demo"}) - {"msgspec"}),
        (["run", "--nonsense"], HEAVY | TRIO | LIBRARY),
    ],
)
async def test_quick_verbs_import_little(arguments: list[str], banned: set[str]) -> None:
    code = (
        "import sys\nfrom kiwi_gw.cli import main\n"
        f"main({arguments!r})\nsys.stderr.write('\\n' + ' '.join(sys.modules))"
    )
    # Where coverage is measured it would be imported, too.
    environ = {name: value for name, value in os.environ.items() if not name.startswith("COVERAGE")}
    done = await trio.run_process(
        [sys.executable, "-c", code], capture_stdout=True, capture_stderr=True, check=False, env=environ
    )
    imported = {name.partition(".")[0] for name in done.stderr.decode().rpartition("\n")[2].split()}
    assert "kiwi_gw" in imported
    assert imported & banned == set()


def test_a_signal_before_the_start_leaves_at_once(tmp_path: Path) -> None:
    """As the first process of a container would, that gets SIGTERM while it is still importing."""
    code = (
        "import os, signal, sys, types\n"
        "class Loader:\n"
        "    def find_spec(self, name, *rest):\n"
        "        if name == 'kiwi_gw.app': os.kill(os.getpid(), signal.SIGTERM)\n"
        "sys.meta_path.insert(0, Loader())\n"
        "from kiwi_gw.cli import main\n"
        "sys.exit(main(['run', '--config', 'nowhere.yml']))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=False)
    assert (done.returncode, done.stderr) == (0, b"")


def test_plugins_add_commands(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    @click.command()
    def greet() -> None:
        """Say hello."""
        click.echo("hello")

    module = types.ModuleType("greetings")
    monkeypatch.setitem(sys.modules, "greetings", module)
    vars(module).update(greet=greet, word="hello", run=greet)
    values = {
        "greet": "greetings:greet",
        "away": "no_such_module:x",
        "word": "greetings:word",
        "run": "greetings:run",
    }
    points = EntryPoints(
        EntryPoint(name, value, plugin_commands.COMMANDS_GROUP) for name, value in values.items()
    )
    monkeypatch.setattr(plugin_commands, "installed", lambda: points)
    assert main(["greet"]) == 0
    assert capsys.readouterr().out == "hello\n"
    assert main(["--help"]) == 0
    listed = capsys.readouterr().out
    assert re.search(r"^  greet +Say hello\.$", listed, re.MULTILINE)
    assert re.search(r"^  run +Run the gateway\.$", listed, re.MULTILINE)  # the gateway's own come first
    assert re.search(r"^  away +\(cannot be loaded: ModuleNotFoundError: No module", listed, re.MULTILINE)
    assert main(["away", "--loud"]) == 1
    assert main(["word"]) == 1
    said = capsys.readouterr().err.splitlines()
    assert said[0].startswith(
        "kiwi-gw: command 'away' cannot be loaded: ModuleNotFoundError: No module named"
    )
    assert said[1] == "kiwi-gw: command 'word' cannot be loaded: greetings:word is no command"


@pytest.mark.parametrize("name", ["broker", "demo"])
def test_the_demo_is_a_plugin_with_commands(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([name, "--help"]) == 0
    assert f"Usage: kiwi-gw {name} [OPTIONS]" in capsys.readouterr().out
