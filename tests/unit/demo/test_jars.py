"""The broker's jars: where they are kept, when they are fetched, and what is not taken for them."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import pytest
import trio

from kiwi_gw.demo import jars
from kiwi_gw.demo.jars import (
    KAFKA_VERSION,
    FetchFailed,
    default_cache,
    differences,
    fetch_broker,
    locked_jars,
)

CONTENTS = {"a.jar": b"first", "b.jar": b"second"}
LOCK = {name: hashlib.sha256(content).hexdigest() for name, content in CONTENTS.items()}


def fill(folder: Path, contents: dict[str, bytes] = CONTENTS) -> None:
    folder.mkdir(parents=True)
    for name, content in contents.items():
        (folder / name).write_bytes(content)


@pytest.fixture
def java(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A `java` that does what the test writes into it, and counts its runs in `runs`. `$into`: the folder."""
    monkeypatch.setattr(jars, "locked_jars", lambda: LOCK)
    program = tmp_path / "java" / "bin" / "java"
    program.parent.mkdir(parents=True)
    monkeypatch.setattr(jars, "find_java", lambda: program)
    monkeypatch.delenv("SSL_CERT_FILE", raising=False)
    return program


def behave(java: Path, script: str) -> None:
    begin = f'echo run >> {java.parent}/runs\nfor into; do :; done\ninto=$(dirname "$into")'
    java.write_text(f"#!/bin/sh\n{begin}\n{script}\n")
    java.chmod(0o755)


def runs(java: Path) -> int:
    path = java.parent / "runs"
    return len(path.read_text().splitlines()) if path.exists() else 0


GOOD = (
    'mkdir "$into"; printf first > "$into/a.jar"; printf second > "$into/b.jar"; echo extra > "$into/c.jar";'
    " echo 'found x in y'; echo '\t[SUCCESSFUL ] org#a;1!a.jar (3ms)'"
)


def test_the_lock_names_kafka_and_its_log_binding() -> None:
    lock = locked_jars()
    assert len(lock) == 46
    assert {f"kafka_2.13-{KAFKA_VERSION}.jar", "slf4j-simple-1.7.36.jar"} <= lock.keys()
    assert all(len(digest) == 64 for digest in lock.values())


def test_the_cache_is_where_people_expect_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("KIWI_GW_CACHE", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    assert default_cache() == tmp_path / ".cache" / "kiwi-gw"
    monkeypatch.setenv("XDG_CACHE_HOME", "/xdg")
    assert default_cache() == Path("/xdg/kiwi-gw")
    monkeypatch.setenv("KIWI_GW_CACHE", "/own")
    assert default_cache() == Path("/own")


def test_differences_name_every_jar_that_is_not_right(tmp_path: Path) -> None:
    fill(tmp_path / "jars", {"a.jar": b"firsT"})
    wrong = differences(tmp_path / "jars", LOCK)
    assert wrong[0].startswith("a.jar is not the one that is locked")
    assert wrong[1] == "b.jar is missing"
    assert len(wrong) == 2


async def test_jars_that_are_there_need_neither_java_nor_network(java: Path, tmp_path: Path) -> None:
    fill(tmp_path / "cache" / f"kafka-{KAFKA_VERSION}")
    found = await fetch_broker(tmp_path / "cache")
    assert [jar.name for jar in found] == ["a.jar", "b.jar"]
    assert runs(java) == 0


async def test_they_are_fetched_once_with_progress(java: Path, tmp_path: Path) -> None:
    behave(java, GOOD)
    said: list[str] = []
    found = await fetch_broker(tmp_path / "cache", said.append)
    assert [jar.read_bytes() for jar in found] == [b"first", b"second"]
    assert sorted(os.listdir(found[0].parent)) == ["a.jar", "b.jar"]
    assert "  1: a.jar" in said
    await fetch_broker(tmp_path / "cache")
    assert runs(java) == 1
    assert sorted(os.listdir(tmp_path / "cache")) == ["fetch.lock", f"kafka-{KAFKA_VERSION}"]


async def test_two_who_need_them_fetch_them_once(java: Path, tmp_path: Path) -> None:
    behave(java, GOOD)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(fetch_broker, tmp_path / "cache")
        nursery.start_soon(fetch_broker, tmp_path / "cache")
    assert runs(java) == 1


async def test_an_incomplete_set_is_fetched_again(java: Path, tmp_path: Path) -> None:
    fill(tmp_path / "cache" / f"kafka-{KAFKA_VERSION}", {"a.jar": b"fir"})
    behave(java, GOOD)
    assert [jar.read_bytes() for jar in await fetch_broker(tmp_path / "cache")] == [b"first", b"second"]


async def test_other_jars_than_the_locked_are_refused_and_not_kept(java: Path, tmp_path: Path) -> None:
    behave(java, GOOD.replace("second", "changed"))
    with pytest.raises(FetchFailed, match=r"b\.jar is not the one that is locked"):
        await fetch_broker(tmp_path / "cache")
    assert os.listdir(tmp_path / "cache") == ["fetch.lock"]


async def test_a_download_that_ends_early_is_not_taken_for_done(java: Path, tmp_path: Path) -> None:
    behave(java, 'mkdir "$into"; printf first > "$into/a.jar"; kill -9 $$')
    with pytest.raises(FetchFailed):
        await fetch_broker(tmp_path / "cache")
    assert not (tmp_path / "cache" / f"kafka-{KAFKA_VERSION}").exists()
    behave(java, GOOD)
    await fetch_broker(tmp_path / "cache")


async def test_offline_it_says_what_is_needed(java: Path, tmp_path: Path) -> None:
    behave(java, "echo 'Server access error: UnknownHostException'; exit 1")
    with pytest.raises(FetchFailed, match="needed once, with a network") as caught:
        await fetch_broker(tmp_path / "cache")
    assert "UnknownHostException" in str(caught.value)


async def test_a_cancelled_fetch_ends_its_process_and_leaves_nothing(java: Path, tmp_path: Path) -> None:
    behave(java, "echo 'found x'; echo '\t[SUCCESSFUL ] org#a;1!a.jar (3ms)'; exec sleep 1000")
    with trio.CancelScope() as scope:
        await fetch_broker(tmp_path / "cache", lambda line: scope.cancel() if "a.jar" in line else None)
    assert scope.cancelled_caught
    assert os.listdir(tmp_path / "cache") == ["fetch.lock"]
