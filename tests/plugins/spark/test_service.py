"""The driver's process: how it starts, ends and is kept running."""

from __future__ import annotations

import os
import signal
import sys
import tempfile
from pathlib import Path
from typing import Any

import psutil
import pytest
import structlog
import trio
from trio.testing import wait_all_tasks_blocked

from kiwi_gw.api import SourceFailed
from kiwi_spark.driver.__main__ import leave
from kiwi_spark.gateway.driver_process import DriverProcess
from kiwi_spark.gateway.driver_supervisor import DriverState
from kiwi_spark.gateway.query_run import Progress, RunEnd
from kiwi_spark.gateway.resolve import resolve
from kiwi_spark.protocol.messages import (
    Message,
    QueryAnalysed,
    QueryEnded,
    QueryStarted,
    StopQuery,
)
from kiwi_spark.protocol.query_spec import QuerySpec
from tests.plugins.spark.bench import context, fake_spark, settings

pytestmark = pytest.mark.slow

SECONDS = 50


def query(folder: Path, plan: dict[str, Any] | None = None, source_id: str = "s") -> QuerySpec:
    return resolve(settings(plan or {}, source_id), context(folder))


def _nothing(progress: Progress) -> None:
    """What is told of its batches."""


async def test_it_is_as_nice_as_configured_and_ends_with_the_service(tmp_path: Path) -> None:
    with trio.fail_after(SECONDS):
        async with fake_spark(nice=13) as spark:
            assert spark.driver.state is DriverState.STARTING
            await spark.driver.ready()
            assert spark.driver.spark == "4.2.0-fake"
            pid = spark.driver.pid
            assert os.getpriority(os.PRIO_PROCESS, pid) == max(13, os.getpriority(os.PRIO_PROCESS, 0))
            assert os.getpgid(pid) == pid
            environment = psutil.Process(pid).environ()
            assert "KIWI_SPARK_TOKEN" in environment
            assert not any(environment["KIWI_SPARK_TOKEN"] in word for word in psutil.Process(pid).cmdline())
            began = trio.current_time()
        assert trio.current_time() - began < 3
    assert not psutil.pid_exists(pid)


async def test_a_query_starts_when_the_one_with_its_checkpoint_is_over_in_every_driver(
    tmp_path: Path,
) -> None:
    """A reload may open a second driver while the first still runs it."""
    with trio.fail_after(SECONDS):
        async with fake_spark() as old, fake_spark() as new:
            await old.driver.ready()
            await new.driver.ready()
            async with old.run(query(tmp_path), _nothing) as first:
                await first.started()
                async with trio.open_nursery() as nursery:
                    over = []

                    async def second() -> None:
                        async with new.run(query(tmp_path), _nothing) as run:
                            over.append(first.over)
                            assert isinstance(await run.started(), QueryStarted)

                    nursery.start_soon(second)
                    async with new.run(query(tmp_path, source_id="other"), _nothing) as other:
                        assert isinstance(
                            await other.started(), QueryStarted
                        )  # one of another checkpoint does
                    assert over == []
                    old.driver.send(StopQuery(run=first.number))
            assert over == [RunEnd()]


async def test_its_temporary_files_are_gone_with_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also those of one that was killed, at once."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with trio.fail_after(SECONDS):
        async with fake_spark() as spark:
            await spark.driver.ready()
            pid = spark.driver.pid
            work = trio.Path(psutil.Process(pid).environ()["TMPDIR"])
            await (work / "blockmgr-1").mkdir()
            assert str(work).startswith(f"{tmp_path}/kiwi-spark-")
            os.kill(pid, signal.SIGKILL)
            await spark.driver.reach({DriverState.BACKOFF})
            assert os.listdir(tmp_path) == []  # nor is it there when nobody could remove it (`kill -9`)
            await spark.driver.ready()
            assert await trio.Path(psutil.Process(spark.driver.pid).environ()["TMPDIR"]).exists()
    assert os.listdir(tmp_path) == []


async def test_it_is_never_less_nice_than_the_gateway() -> None:
    """Whose own niceness does not count on top of what is configured."""
    words = "import os, sys, trio; os.nice(7)\n"
    words += "from kiwi_spark.gateway.driver_process import DriverProcess\n"
    words += "async def main():\n"
    words += "    for nice in (2, 9):\n"
    words += "        process = await DriverProcess.start(['sleep', '60'], {}, nice)\n"
    words += "        print(os.getpriority(0, process.pid) - os.getpriority(0, 0))\n"
    words += "        await process.end()\n"
    words += "trio.run(main)\n"
    done = await trio.run_process([sys.executable, "-c", words], capture_stdout=True)
    own = os.getpriority(os.PRIO_PROCESS, 0) + 7
    assert done.stdout.decode().split() == ["0", str(max(0, 9 - own))]


async def test_a_driver_is_over_when_all_that_it_started_is(tmp_path: Path) -> None:
    """A JVM that is killed may take a while to die, and writes into the folder that is to be removed."""
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    words = f"import subprocess; subprocess.Popen(['cat', {str(fifo)!r}], process_group=0)"
    over = trio.Event()
    with trio.fail_after(SECONDS):
        process = await DriverProcess.start([sys.executable, "-c", words], {}, 0)
        await process.wait()

        async def end() -> None:
            await process.end()
            over.set()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(end)
            await wait_all_tasks_blocked(0.05)
            assert not over.is_set()
            async with await trio.open_file(fifo, "w"):
                pass  # `cat` has read all there is, and ends
            await over.wait()


def test_who_outlives_the_gateway_removes_its_folder(tmp_path: Path) -> None:
    folder = tmp_path / "kiwi-spark-x"
    (folder / "work").mkdir(parents=True)
    leave(folder, os.getppid())
    assert folder.exists()
    other = tmp_path / "other"
    other.mkdir()
    leave(other, -1)
    leave(folder, -1)
    assert list(tmp_path.iterdir()) == [other]


async def test_what_it_says_is_in_the_log(tmp_path: Path) -> None:
    with structlog.testing.capture_logs() as lines, trio.fail_after(SECONDS):
        async with fake_spark() as spark:
            await spark.driver.ready()
    assert any(line["event"] == "driver says" and "is there" in line["line"] for line in lines)


async def test_what_one_part_of_spark_repeats_does_not_keep_others_from_being_heard() -> None:
    """Lines of the log are limited by their problem."""
    said = [
        "26/11/22 WARN A: again",
        "26/11/22 ERROR B: java.lang.Error: no",
        "ERROR record 8",
        "all is well",
    ]
    with structlog.testing.capture_logs() as lines:
        process = await DriverProcess.start(["printf", "%s\\n", *said], {}, 0)
        with trio.fail_after(SECONDS):
            await process.log_output()
        await process.end()
    assert [(line["line"], line.get("problem"), line["log_level"]) for line in lines] == [
        (said[0], "WARN A", "warning"),
        (said[1], "ERROR B", "warning"),
        (said[2], "ERROR", "error"),
        (said[3], None, "info"),
    ]


@pytest.mark.parametrize(
    ("mode", "words"),
    [
        ("exit", "exit code 3"),
        ("import", "pip install 'kiwi-gw\\[spark\\]'"),
        ("silent", "not started within 0.3 s"),
    ],
)
async def test_one_that_cannot_start(mode: str, words: str) -> None:
    seconds = 0.3 if mode == "silent" else 30.0
    with trio.fail_after(SECONDS):
        async with fake_spark(mode, max_restarts=0, start_seconds=seconds) as spark:
            with pytest.raises(SourceFailed, match=words):
                await spark.driver.ready()
            assert spark.driver.state is DriverState.FAILED


async def test_no_pause_before_another_one_is_longer_than_configured() -> None:
    with structlog.testing.capture_logs() as lines, trio.fail_after(SECONDS):
        async with fake_spark("exit", max_restarts=3, longest_pause=0.1) as spark:
            with pytest.raises(SourceFailed):
                await spark.driver.ready()
    pauses = [line["pause"] for line in lines if "pause" in line]
    assert len(pauses) == 3
    assert max(pauses) <= 0.1


async def test_no_place_for_its_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "none"))
    with trio.fail_after(SECONDS):
        async with fake_spark() as spark:
            with pytest.raises(SourceFailed, match="no place for temporary files"):
                await spark.driver.ready()


@pytest.mark.usefixtures("short_pauses")
async def test_who_is_told_that_it_is_ready_can_use_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where it is gone the moment after somebody has looked."""
    with trio.fail_after(SECONDS):
        async with fake_spark() as spark:
            driver = spark.driver
            await driver.ready()
            before, real = driver.pid, trio.lowlevel.checkpoint

            async def gone_meanwhile() -> None:
                if driver.pid == before and driver.state is DriverState.READY:
                    driver._become(DriverState.BACKOFF)
                    os.kill(before, signal.SIGKILL)
                    driver._become(DriverState.STARTING)
                await real()

            monkeypatch.setattr(trio.lowlevel, "checkpoint", gone_meanwhile)
            await driver.ready()
            assert driver.pid != before


async def test_a_stranger_is_refused(tmp_path: Path) -> None:
    with structlog.testing.capture_logs() as lines, trio.fail_after(SECONDS):
        async with fake_spark() as spark:
            await spark.driver.ready()
            (path,) = [word for word in psutil.Process(spark.driver.pid).cmdline() if word.endswith(".sock")]
            assert os.stat(os.path.dirname(path)).st_mode & 0o77 == 0
            async with await trio.open_unix_socket(path) as stream:
                await stream.send_all(b"GET / HTTP/1.1\r\n\r\n")
                assert await stream.receive_some() == b""
    assert any("refused" in line["event"] for line in lines)


async def test_runs(tmp_path: Path) -> None:
    with trio.fail_after(SECONDS):
        async with fake_spark() as spark:
            async with spark.run(query(tmp_path), lambda progress: None) as run:
                started = await run.started()
                assert isinstance(started, QueryStarted)
                assert started.next_batch == 0
                assert await run.rows() is not None
            over = await run.ended()
            assert (over.lost, over.error_kind) == (False, None)
            assert spark.driver.state is DriverState.READY


async def test_a_query_waits_for_the_one_that_its_source_had_before(tmp_path: Path) -> None:
    order: list[str] = []
    with trio.fail_after(SECONDS):
        async with fake_spark() as spark:
            listen = spark.driver._message

            def heard(message: Message) -> None:
                order.append(type(message).__name__)
                listen(message)

            spark.driver._message = heard
            for _ in range(3):
                async with spark.run(query(tmp_path), lambda progress: None) as run:
                    await run.started()
            await run.ended()
    assert order == ["QueryStarted", "QueryEnded"] * 3


@pytest.mark.usefixtures("short_pauses")
async def test_everything_is_lost_with_the_driver_and_it_comes_back(tmp_path: Path) -> None:
    with trio.fail_after(SECONDS):
        async with fake_spark() as spark:
            async with (
                spark.run(query(tmp_path), lambda progress: None) as one,
                spark.run(query(tmp_path, source_id="t"), lambda progress: None) as other,
            ):
                await other.started()
                first = spark.driver.pid
                os.kill(first, signal.SIGKILL)
                assert (await one.ended()).lost
                assert (await other.ended()).lost
                assert "SIGKILL" in (await one.ended()).message
            await spark.driver.ready()
            assert spark.driver.pid != first
            assert spark.driver.deaths == 1


async def test_a_child_of_the_driver_does_not_survive_it(tmp_path: Path) -> None:
    """The JVM is such a child."""
    with trio.fail_after(SECONDS):
        async with fake_spark("child") as spark:
            await spark.driver.ready()
            driver = psutil.Process(spark.driver.pid)
            (child,) = driver.children()
            ended = os.pidfd_open(child.pid)
            os.kill(driver.pid, signal.SIGKILL)
            await trio.lowlevel.wait_readable(ended)
            os.close(ended)


async def test_analyses(tmp_path: Path) -> None:
    with trio.fail_after(SECONDS):
        async with fake_spark() as spark:
            right = await spark.analyse(query(tmp_path), explain=True)
            assert isinstance(right, QueryAnalysed)
            assert (right.error, right.plan) == ("", "a plan")
            wrong = await spark.analyse(query(tmp_path, {"nonsense": 1}))
            assert isinstance(wrong, QueryAnalysed)
            assert (wrong.line, "PARSE" in wrong.error) == (2, True)
            assert spark.driver.state is DriverState.READY


def test_ended_is_for_everybody() -> None:
    assert QueryEnded(run=1).error_kind is None
