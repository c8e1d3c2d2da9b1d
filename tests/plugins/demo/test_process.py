"""Children that end when they are told to, and when nobody is left to tell them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from functools import partial
from pathlib import Path

import psutil
import pytest
import trio

from kiwi_demo.process import Child, ProcessError, tail

STUBBORN = "trap '' TERM; echo ready; while :; do sleep 0.1; done"


async def started(script: str, log: Path) -> Child:
    """A shell that runs `script`, once it has said "ready"."""
    child = await Child.start(["/bin/sh", "-c", script], log)
    with trio.fail_after(10):
        while "ready" not in tail(log):  # noqa: ASYNC110  (a file tells nobody)
            await trio.sleep(0.01)
    return child


async def test_output_and_exit_code(tmp_path: Path) -> None:
    child = await Child.start(["/bin/sh", "-c", "echo $WHAT; exit 3"], tmp_path / "log", {"WHAT": "this"})
    assert await child.wait() == 3
    assert child.returncode == 3
    assert (tmp_path / "log").read_text() == "this\n"


async def test_it_is_asked_first(tmp_path: Path) -> None:
    child = await started("trap 'exit 7' TERM; echo ready; while :; do sleep 0.1; done", tmp_path / "log")
    assert await child.end(grace=10) == 7


async def test_after_its_grace_it_is_killed(tmp_path: Path) -> None:
    child = await started(STUBBORN, tmp_path / "log")
    assert await child.end(grace=0.05) == -signal.SIGKILL


async def test_a_cancelled_end_kills_at_once(tmp_path: Path) -> None:
    child = await started(STUBBORN, tmp_path / "log")
    with trio.move_on_after(0.05):
        await child.end()
    assert child.returncode == -signal.SIGKILL


async def test_a_stopped_one_ends_too(tmp_path: Path) -> None:
    child = await started("echo ready; exec sleep 1000", tmp_path / "log")
    child.signal(signal.SIGSTOP)
    child.signal(signal.SIGSTOP)
    assert await child.end(grace=10) == -signal.SIGTERM


async def test_a_stopped_one_has_stopped(tmp_path: Path) -> None:
    child = await started("echo ready; while :; do :; done", tmp_path / "log")
    seen = psutil.Process(child.pid)
    for _ in range(100):
        child.signal(signal.SIGSTOP)
        assert seen.status() == psutil.STATUS_STOPPED
        child.signal(signal.SIGCONT)
    await child.kill()


async def test_its_own_children_go_with_it(tmp_path: Path) -> None:
    child = await started("sleep 1000 & echo $! ready; wait", tmp_path / "log")
    grandchild = int((tmp_path / "log").read_text().split()[0])
    await child.kill()
    await gone(grandchild)


async def test_ending_it_twice_is_harmless(tmp_path: Path) -> None:
    child = await Child.start(["/bin/sh", "-c", "exit 0"], tmp_path / "log")
    await child.kill()
    code = child.returncode
    assert await child.end() == code
    assert await child.kill() == code
    child.signal(signal.SIGTERM)


async def test_a_program_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(ProcessError, match="cannot start /no/such/program"):
        await Child.start(["/no/such/program"], tmp_path / "log")


OWNER = """
import sys, trio
from pathlib import Path
from kiwi_demo.process import Child
async def main():
    child = await Child.start(["/bin/sh", "-c", "sleep 1000"], Path(sys.argv[1]))
    print(child.pid, flush=True)
    await trio.sleep_forever()
trio.run(main)
"""


async def test_it_does_not_outlive_an_owner_that_is_killed(tmp_path: Path) -> None:
    run = partial(trio.run_process, stdout=subprocess.PIPE, check=False)
    async with trio.open_nursery() as nursery:
        owner = await nursery.start(run, [sys.executable, "-c", OWNER, str(tmp_path / "log")])
        pid = int(await owner.stdout.receive_some())
        owner.kill()
        await gone(pid)


async def gone(pid: int) -> None:
    """Returns when no process of that id runs. A zombie does not run: who inherits it may be slow to reap."""
    with trio.fail_after(10):
        while runs(pid):  # noqa: ASYNC110  (not our child: nobody tells us)
            await trio.sleep(0.01)


def runs(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    answer = subprocess.run(
        ["ps", "-o", "stat=", "-p", str(pid)], capture_output=True, text=True, check=False
    )
    return not answer.stdout.strip().startswith("Z")


def test_the_tail_of_a_log(tmp_path: Path) -> None:
    log = tmp_path / "log"
    assert tail(log) == ""
    log.write_text("".join(f"line {n}\n" for n in range(100)))
    assert tail(log, 2) == "\n    line 98\n    line 99"
