"""A third-party plugin, found by its entry point and used through nothing but the contract."""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
import trio

from kiwi_gw.api import EventSchema, Identity, SourceInfo
from kiwi_gw.config import LoadedConfig, load, load_again
from kiwi_gw.errors import ConfigError, PluginError
from kiwi_gw.plugin_manager import PluginManager, available
from kiwi_gw.testing import MemoryPublisher, check_source

PROJECT = Path(__file__).parent / "example_plugin"


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The example, as an installer leaves it (PyPA, recording installed projects), but without one."""
    project = tomllib.loads((PROJECT / "pyproject.toml").read_text())["project"]
    info = tmp_path / f"{project['name'].replace('-', '_')}-{project['version']}.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(
        f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {project['version']}\n"
    )
    lines = []
    for group, points in project["entry-points"].items():
        lines.append(f"[{group}]")
        lines.extend(f"{name} = {value}" for name, value in points.items())
    (info / "entry_points.txt").write_text("\n".join(lines) + "\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.syspath_prepend(str(PROJECT))
    yield
    sys.modules.pop("kiwi_example", None)


def test_it_is_unknown_until_it_is_installed() -> None:
    with pytest.raises(PluginError, match="no plugin is called 'example'"):
        PluginManager().load("example")


@pytest.mark.usefixtures("installed")
def test_it_is_found_by_its_entry_point_and_imported_only_when_it_is_named() -> None:
    assert available()["example"].value == "kiwi_example"
    assert "kiwi_example" not in sys.modules
    manager = PluginManager()
    manager.load("example")
    assert set(manager.source_types()) == {"lines"}


@pytest.fixture
def manager(installed: None) -> PluginManager:
    manager = PluginManager()
    manager.load("example")
    return manager


async def test_its_source_keeps_the_contract(manager: PluginManager, tmp_path: Path) -> None:
    notes = tmp_path / "notes.txt"
    notes.write_bytes(b"".join(b"line %d\r\n" % number for number in range(40)))
    settings = {"type": "lines", "id": "notes", "path": notes}
    report = await check_source(manager.source_types()["lines"], settings, events=100, repeatable=True)
    assert report.finite
    assert (report.events, report.first, report.positions) == (40, {0: 0}, {0: 40})


async def test_its_hook_hides_comments_from_everybody_but_the_staff(
    manager: PluginManager, tmp_path: Path
) -> None:
    notes = tmp_path / "notes.txt"
    notes.write_text("one\n# hidden\ntwo")
    lines = manager.source_types()["lines"]
    settings = lines.settings.model_validate({"type": "lines", "id": "n", "path": notes})
    source = lines.build(settings, None)  # type: ignore[arg-type]
    out = MemoryPublisher(lines.description_of(settings).schema)
    with trio.fail_after(5):
        await source.run(out, None)

    def seen_by(identity: Identity, info: SourceInfo) -> list[object]:
        interceptors = manager.hook.intercept(identity=identity, source=info)
        records = [dict(record) for record in out.records]
        for interceptor in interceptors:
            records = [kept for record in records if (kept := interceptor.apply(record)) is not None]
        return [record["value"] for record in records]

    info = SourceInfo("n", "lines", EventSchema(()))
    assert seen_by(Identity("anyone"), info) == [b"one", b"two"]
    assert seen_by(Identity("boss", frozenset({"staff"})), info) == [b"one", b"# hidden", b"two"]
    assert seen_by(Identity("anyone"), SourceInfo("c", "counter", EventSchema(()))) == [
        b"one",
        b"# hidden",
        b"two",
    ]
    first, second = (
        manager.hook.intercept(identity=Identity(name), source=info)[0].key for name in ("first", "second")
    )
    assert first == second  # so they share the encoded bytes


SOURCES = "sources:\n  - {type: lines, id: notes, path: notes.txt}\n"


def load_text(folder: Path, text: str) -> LoadedConfig:
    path = folder / "kiwi.yml"
    path.write_text(text)
    return load(path, {})


def complaint(folder: Path, text: str) -> str:
    with pytest.raises(ConfigError) as caught:
        load_text(folder, text)
    (problem,) = caught.value.problems
    return str(problem).removeprefix(f"{folder}/")


@pytest.mark.usefixtures("installed")
def test_its_source_type_needs_no_mention_of_the_plugin(tmp_path: Path) -> None:
    """Though the plugin is called otherwise than its type."""
    loaded = load_text(tmp_path, SOURCES)
    assert loaded.settings.sources["notes"].type == "lines"
    assert loaded.plugins.names == ("example",), "and no other plugin has a say"
    assert load_again(loaded).plugins.find("example") is loaded.plugins.find("example")


@pytest.mark.usefixtures("installed")
def test_a_source_type_that_is_refused_is_never_suggested(tmp_path: Path) -> None:
    assert complaint(tmp_path, SOURCES.replace("lines", "example")) == (
        "kiwi.yml:2: sources[0].type: unknown source type 'example'; the plugin of that name provides "
        "the source type 'lines'"
    )
    assert complaint(tmp_path, SOURCES.replace("lines", "tokens")).endswith("provides the section 'tokens'")
    assert complaint(tmp_path, SOURCES.replace("lines", "linse")).endswith("'linse'; did you mean 'lines'?")


def plug(folder: Path, name: str, code: str) -> None:
    """Install a plugin of one module."""
    (folder / f"{name}.py").write_text(code)
    info = folder / f"{name}-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[kiwi_gw.plugins]\n{name} = {name}\n")


@pytest.mark.usefixtures("installed")
def test_a_broken_plugin_is_named_and_stops_only_what_needs_it(tmp_path: Path) -> None:
    plug(tmp_path, "a_broken_one", "raise RuntimeError('no licence')")
    assert load_text(tmp_path, SOURCES).settings.sources
    words = "plugin 'a_broken_one' failed while it was imported: RuntimeError: no licence"
    assert words in complaint(tmp_path, SOURCES.replace("lines", "rows"))


@pytest.mark.usefixtures("installed")
def test_of_two_plugins_with_one_source_type_somebody_must_choose(tmp_path: Path) -> None:
    plug(tmp_path, "other", "from kiwi_example import source_types")
    assert complaint(tmp_path, SOURCES) == (
        "kiwi.yml:2: sources[0].type: the plugins 'example' and 'other' provide the source type 'lines': "
        "name one of them in 'plugins'"
    )
    assert load_text(tmp_path, "plugins: [other]\n" + SOURCES).plugins.names == ("other",)


def test_looking_for_a_source_type_does_not_import_what_takes_long(tmp_path: Path) -> None:
    plug(tmp_path, "rows", "from kiwi_example import source_types")
    path = tmp_path / "kiwi.yml"
    path.write_text(SOURCES)
    code = (
        "import sys; from pathlib import Path; from kiwi_gw.config import load; load(Path(sys.argv[1]), {});"
        "print([name for name in ('kiwi_spark', 'pyspark', 'aiokafka') if name in sys.modules])"
    )
    environ = os.environ | {"PYTHONPATH": f"{tmp_path}{os.pathsep}{PROJECT}"}
    command = [sys.executable, "-c", code, str(path)]
    done = subprocess.run(command, env=environ, capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("[]\n", "")
