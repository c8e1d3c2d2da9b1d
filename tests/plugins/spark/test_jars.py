"""Locked jars: where they are kept, when they are fetched, what is not taken for them; and who needs them."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import pytest
import trio

from kiwi_gw.demo.jars import BROKER, KAFKA_VERSION
from kiwi_spark import ivy, jars
from kiwi_spark.cache import default_cache
from kiwi_spark.ivy import FetchFailed, JarSet, Module, differences
from kiwi_spark.jars import CONNECTOR, PACKAGES, SPARK_VERSION, connector_conf

CONTENTS = {"a.jar": b"first", "b.jar": b"second"}
LOCK = {name: hashlib.sha256(content).hexdigest() for name, content in CONTENTS.items()}
SET = JarSet("Two jars", "two", (Module("org", "a", "1"), Module("org", "b", "2", alone=True)), LOCK, 1)


def fill(folder: Path, contents: dict[str, bytes] = CONTENTS) -> None:
    folder.mkdir(parents=True)
    for name, content in contents.items():
        (folder / name).write_bytes(content)


@pytest.fixture
def java(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A `java` that does what the test writes into it, and counts its runs in `runs`. `$into`: the folder."""
    program = tmp_path / "java" / "bin" / "java"
    program.parent.mkdir(parents=True)
    monkeypatch.setattr(ivy, "java_home", lambda cache: tmp_path / "java")
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


@pytest.mark.parametrize(
    ("jars", "count", "some"),
    [
        (BROKER, 46, {f"kafka_2.13-{KAFKA_VERSION}.jar", "slf4j-simple-1.7.36.jar"}),
        (CONNECTOR, 5, {f"spark-sql-kafka-0-10_2.13-{SPARK_VERSION}.jar", "kafka-clients-3.9.0.jar"}),
    ],
)
def test_the_locks_name_what_is_asked_for(jars: JarSet, count: int, some: set[str]) -> None:
    assert len(jars.lock) == count
    assert some <= jars.lock.keys()
    assert {f"{one.name}-{one.version}.jar" for one in jars.modules} <= jars.lock.keys()
    assert all(len(digest) == 64 for digest in jars.lock.values())


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
    fill(tmp_path / "cache" / "two")
    found = await SET.fetch(tmp_path / "cache")
    assert [jar.name for jar in found] == ["a.jar", "b.jar"]
    assert runs(java) == 0


async def test_they_are_fetched_once_with_progress(java: Path, tmp_path: Path) -> None:
    behave(java, GOOD)
    said: list[str] = []
    found = await SET.fetch(tmp_path / "cache", said.append)
    assert [jar.read_bytes() for jar in found] == [b"first", b"second"]
    assert sorted(os.listdir(found[0].parent)) == ["a.jar", "b.jar"]
    assert "  1: a.jar" in said
    await SET.fetch(tmp_path / "cache")
    assert runs(java) == 1
    assert sorted(os.listdir(tmp_path / "cache")) == ["fetch.lock", "two"]


async def test_two_who_need_them_fetch_them_once(java: Path, tmp_path: Path) -> None:
    behave(java, GOOD)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(SET.fetch, tmp_path / "cache")
        nursery.start_soon(SET.fetch, tmp_path / "cache")
    assert runs(java) == 1


async def test_an_incomplete_set_is_fetched_again(java: Path, tmp_path: Path) -> None:
    fill(tmp_path / "cache" / "two", {"a.jar": b"fir"})
    behave(java, GOOD)
    assert [jar.read_bytes() for jar in await SET.fetch(tmp_path / "cache")] == [b"first", b"second"]


async def test_other_jars_than_the_locked_are_refused_and_not_kept(java: Path, tmp_path: Path) -> None:
    behave(java, GOOD.replace("second", "changed"))
    with pytest.raises(FetchFailed, match=r"b\.jar is not the one that is locked"):
        await SET.fetch(tmp_path / "cache")
    assert os.listdir(tmp_path / "cache") == ["fetch.lock"]


async def test_a_download_that_ends_early_is_not_taken_for_done(java: Path, tmp_path: Path) -> None:
    behave(java, 'mkdir "$into"; printf first > "$into/a.jar"; kill -9 $$')
    with pytest.raises(FetchFailed):
        await SET.fetch(tmp_path / "cache")
    assert not (tmp_path / "cache" / "two").exists()
    behave(java, GOOD)
    await SET.fetch(tmp_path / "cache")


async def test_ivy_is_asked_for_the_modules(java: Path, tmp_path: Path) -> None:
    behave(java, GOOD + f'\ncp "$into/../ivy.xml" {tmp_path}')
    await SET.fetch(tmp_path / "cache")
    asked = (tmp_path / "ivy.xml").read_text()
    assert '<dependency org="org" name="a" rev="1" conf="default"/>' in asked
    assert '<dependency org="org" name="b" rev="2" conf="default" transitive="false"/>' in asked


async def test_offline_it_says_what_is_needed(java: Path, tmp_path: Path) -> None:
    behave(java, "echo 'Server access error: UnknownHostException'; exit 1")
    with pytest.raises(FetchFailed, match="needed once, with a network") as caught:
        await SET.fetch(tmp_path / "cache")
    assert "UnknownHostException" in str(caught.value)


async def test_a_cancelled_fetch_ends_its_process_and_leaves_nothing(java: Path, tmp_path: Path) -> None:
    behave(java, "echo 'found x'; echo '\t[SUCCESSFUL ] org#a;1!a.jar (3ms)'; exec sleep 1000")
    with trio.CancelScope() as scope:
        await SET.fetch(tmp_path / "cache", lambda line: scope.cancel() if "a.jar" in line else None)
    assert scope.cancelled_caught
    assert os.listdir(tmp_path / "cache") == ["fetch.lock"]


def test_the_connector_in_the_cache_needs_no_network(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mine = JarSet("x", "connector", (), LOCK, 1)
    monkeypatch.setattr(jars, "CONNECTOR", mine)
    assert connector_conf(cache_dir=tmp_path) == {"spark.jars.packages": ",".join(PACKAGES)}
    fill(tmp_path / "connector")
    ours = f"{tmp_path}/connector/a.jar,{tmp_path}/connector/b.jar"
    assert connector_conf(cache_dir=tmp_path) == {"spark.jars": ours}
    (tmp_path / "connector" / "b.jar").write_bytes(b"changed")
    assert list(connector_conf(cache_dir=tmp_path)) == ["spark.jars.packages"]


def test_jars_and_packages_of_the_user_stay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given = {"spark.jars": "/x.jar, /y.jar", "spark.jars.packages": f"a:b:1,{PACKAGES[1]}", "spark.x": "1"}
    assert connector_conf(given, tmp_path) == {"spark.jars.packages": f"a:b:1,{PACKAGES[1]},{PACKAGES[0]}"}
    monkeypatch.setattr(jars, "CONNECTOR", JarSet("x", "connector", (), LOCK, 1))
    fill(tmp_path / "connector")
    ours = f"{tmp_path}/connector/a.jar,{tmp_path}/connector/b.jar"
    assert connector_conf({"spark.jars": "/x.jar, /y.jar"}, tmp_path) == {
        "spark.jars": f"/x.jar,/y.jar,{ours}"
    }


def test_a_connector_of_the_user_is_not_added_once_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = {"spark.jars.packages": "org.apache.spark:spark-sql-kafka-0-10_2.13:4.0.1"}
    added = f"{own['spark.jars.packages']},{PACKAGES[1]}"
    assert connector_conf(own, tmp_path) == {"spark.jars.packages": added}
    names = ("spark-sql-kafka-0-10_2.13-4.0.0.jar", "spark-avro_2.13-4.0.0.jar")
    lock = dict.fromkeys(names, LOCK["a.jar"])
    monkeypatch.setattr(jars, "CONNECTOR", JarSet("x", "connector", (), lock, 1))
    fill(tmp_path / "connector", dict.fromkeys(lock, b"first"))
    assert connector_conf(own, tmp_path) == {"spark.jars": f"{tmp_path}/connector/spark-avro_2.13-4.0.0.jar"}
    both = {"spark.jars": "/mine/spark-avro.jar,/mine/spark-sql-kafka-0-10.jar"}
    assert connector_conf(both, tmp_path) == both
