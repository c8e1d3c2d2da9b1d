"""Class data sharing for Spark's JVM: used where it is there, and never what keeps a JVM from starting."""

from __future__ import annotations

import shlex
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest
import trio

from kiwi_spark.java import class_sharing
from kiwi_spark.java.class_sharing import archive_folder, make_archive, sharing_environment
from kiwi_spark.java.home import java_home


@pytest.fixture(scope="module")
def home() -> Path:
    return java_home()


def an_archive(home: Path, cache: Path, content: bytes) -> Path:
    folder = archive_folder(home, cache)
    assert folder is not None
    folder.mkdir(parents=True)
    for name in ("base.jsa", "spark.jsa"):
        (folder / name).write_bytes(content)
    (folder / "sizes").write_text(f"{len(content)} {len(content)}")
    return folder


def version(home: Path, options: str = "") -> subprocess.CompletedProcess[str]:
    command = [str(home / "bin" / "java"), *shlex.split(options), "-version"]
    return subprocess.run(command, capture_output=True, text=True, check=True)


def of_another_java(home: Path, work: Path) -> bytes:
    """Return an archive that says it is of another version."""
    own = work / "own.jsa"
    subprocess.run(
        [str(home / "bin" / "java"), "-Xshare:dump", f"-XX:SharedArchiveFile={own}"],
        capture_output=True,
        check=True,
    )
    content = own.read_bytes()
    version = content.index(b" for ", 0, 4096)  # OpenJDK 64-Bit Server VM (21.0.8+9) for linux-amd64 ...
    return content[: version - 2] + b"?)" + content[version:]


def test_it_is_named_before_the_options_of_the_user(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert sharing_environment(home, tmp_path) == {}
    folder = an_archive(home, tmp_path / "a cache", b"")
    monkeypatch.setenv("SPARK_SUBMIT_OPTS", "-Dtheirs=1")
    options = shlex.split(sharing_environment(home, tmp_path / "a cache")["SPARK_SUBMIT_OPTS"])
    assert options[0] == f"-XX:SharedArchiveFile={folder}/spark.jsa"
    assert options[-1] == "-Dtheirs=1"


@pytest.mark.parametrize("name", ["base.jsa", "spark.jsa", "sizes"])
def test_one_that_is_cut_short_or_not_finished_is_not_used(home: Path, tmp_path: Path, name: str) -> None:
    file = an_archive(home, tmp_path, b"archive") / name
    assert sharing_environment(home, tmp_path) != {}
    file.write_bytes(file.read_bytes()[:-1])
    assert sharing_environment(home, tmp_path) == {}
    file.unlink()
    assert sharing_environment(home, tmp_path) == {}


def test_where_there_is_no_java_it_is_left_out(tmp_path: Path) -> None:
    assert sharing_environment(tmp_path / "none", tmp_path) == {}


def test_another_jar_or_java_has_another_archive(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "home").symlink_to(home)
    folders = [archive_folder(home, tmp_path), archive_folder(tmp_path / "home", tmp_path)]
    monkeypatch.setattr(class_sharing, "spark_jars", lambda: [Path(__file__)])
    folders.append(archive_folder(home, tmp_path))
    assert len(set(folders)) == 3


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["empty", "garbage", "half", "another Java's"])
def test_a_jvm_ignores_what_does_not_fit_without_a_word(home: Path, tmp_path: Path, kind: str) -> None:
    other = of_another_java(home, tmp_path)
    content = {"empty": b"", "garbage": b"no archive" * 999, "half": other[:5000], "another Java's": other}
    an_archive(home, tmp_path / "cache", content[kind])
    started = version(home, sharing_environment(home, tmp_path / "cache")["SPARK_SUBMIT_OPTS"])
    assert started.stdout == ""
    assert started.stderr.replace(", sharing", "") == version(home).stderr.replace(", sharing", "")


@pytest.mark.slow
async def test_what_prevents_it_is_reported_and_leaves_nothing(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(class_sharing, "java_home", lambda cache: home)
    monkeypatch.setattr("sys.executable", "/bin/false")
    said: list[str] = []
    await make_archive(tmp_path, said.append)
    assert said[0].startswith("starting Spark once")
    assert said[1].startswith("Spark will start as without: ")
    assert sharing_environment(home, tmp_path) == {}


@pytest.mark.parametrize("taken", [True, False])
async def test_an_archive_is_kept_if_this_java_takes_it_and_is_made_once(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, taken: bool
) -> None:
    ran: list[str] = []

    async def run(command: list[str], env: Mapping[str, str]) -> None:
        ran.append(command[-1])
        for option in (*command, *shlex.split(env.get("SPARK_SUBMIT_OPTS", ""))):
            name, _, path = option.partition("=")
            if command[-1] == "--version" and name == "-Xlog:class+load:file":
                await trio.Path(path).write_text("shared objects file" + " (top)" * taken)
            elif name == "-XX:ArchiveClassesAtExit" or (
                "-Xshare:dump" in command and name == "-XX:SharedArchiveFile"
            ):
                await trio.Path(path).write_text("archive")

    monkeypatch.setattr(class_sharing, "java_home", lambda cache: home)
    monkeypatch.setattr(class_sharing, "_run", run)
    said: list[str] = []
    await make_archive(tmp_path, said.append)
    await make_archive(tmp_path, said.append)
    assert len(ran) == 3
    assert bool(sharing_environment(home, tmp_path)) is taken
    assert len(said) == (1 if taken else 2)
