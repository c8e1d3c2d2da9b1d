"""Checkpoint files on `DirectLocalFs` when the JVM is killed, and when several write the same one."""

from __future__ import annotations

import copy
import random
import subprocess
from itertools import islice
from pathlib import Path

import pytest

from tests.integration.spark.checkpoint_java import OURS, start
from tests.integration.spark.checkpoint_model import Model, differences, found, plant_old, steps
from tests.integration.spark.test_checkpoint_faults import ON_A_SMALL_DISK

pytestmark = [pytest.mark.integration, pytest.mark.timeout(900)]

_MORE = 400
"""Steps behind the one at which the JVM is killed: it does not come to their end before."""


def killed_at(seed: int, folder: Path) -> None:
    """One JVM that is killed; looks at what it leaves."""
    source = random.Random(seed)
    last = source.randrange(120)
    plan = steps(source, last + _MORE)
    root = folder / str(seed)
    model = plant_old(root)
    (root.with_suffix(".steps")).write_text("\n".join(plan))
    with start("CheckpointSteps", OURS, root, root.with_suffix(".steps"), folder=folder) as process:
        assert process.stdout is not None
        done = list(islice(process.stdout, last + 1))
        process.kill()
        done += [line for line in process.stdout if line.endswith("\n")]
    assert last < len(done) < len(plan), (folder / "stderr").read_text()[-4000:]
    compare(seed, plan, model, done, root)


def compare(seed: int, plan: list[str], model: Model, done: list[str], root: Path) -> None:
    for number, line in enumerate(done):
        assert line == f"{number} {model.apply(number, plan[number])}\n", f"seed {seed}: {plan[number]}"
    after = copy.deepcopy(model)
    after.apply(len(done), plan[len(done)])
    wrong = differences(model.files, after.files, found(root))
    assert not wrong, f"seed {seed}: killed in {plan[len(done)]}"


def test_a_killed_jvm_leaves_whole_files(tmp_path: Path) -> None:
    for seed in range(6):
        killed_at(seed, tmp_path)


@pytest.mark.extended
@pytest.mark.parametrize(
    "seeds", [range(6, 20), pytest.param(range(1000, 1060), marks=pytest.mark.long)], ids=str
)
def test_a_jvm_killed_again_and_again_leaves_whole_files(seeds: range, tmp_path: Path) -> None:
    for seed in seeds:
        killed_at(seed, tmp_path)


def test_a_full_disk_is_said_in_words(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    if request.config.getoption("without_namespaces"):
        pytest.skip("left out by --without-namespaces")
    plan = tmp_path / "steps"
    small = ["create offsets/0 10", "create offsets/1 40000"]
    plan.write_text("\n".join(["mkdirs offsets", *small, "create offsets/2 10"]))
    root = tmp_path / "small"
    root.mkdir()
    within = [*ON_A_SMALL_DISK, str(root)]
    with start("CheckpointSteps", OURS, root, plan, folder=tmp_path, within=within) as process:
        out, _ = process.communicate()
    assert out.splitlines() == ["0 done", "1 done"]
    assert "java.io.IOException: No space left on device" in (tmp_path / "stderr").read_text()


def test_of_four_that_write_a_file_one_does(tmp_path: Path) -> None:
    """Two processes with two threads each: the others are told that the file is there."""
    root = tmp_path / "raced"
    root.mkdir()
    with (
        start("RenameRace", OURS, root, "a", folder=tmp_path) as a,
        start("RenameRace", OURS, root, "b", folder=tmp_path) as b,
    ):
        winners = [_round(root, str(number), [a, b]) for number in range(300)]
        for process in (a, b):
            process.communicate()
    assert len({winner[0] for winner in winners}) == 2, "one process was first every time: that was no race"


def _round(root: Path, name: str, processes: list[subprocess.Popen[str]]) -> str:
    for process in processes:
        _say(process, name)
    assert [_answer(process) for process in processes] == [["prepared"]] * 2
    for process in processes:
        _say(process, "go")
    winners = [one for process in processes for one in _answer(process)[1:]]
    assert [(root / name).read_text()] == winners
    return winners[0]


def _say(process: subprocess.Popen[str], line: str) -> None:
    assert process.stdin is not None
    process.stdin.write(f"{line}\n")
    process.stdin.flush()


def _answer(process: subprocess.Popen[str]) -> list[str]:
    assert process.stdout is not None
    return process.stdout.readline().split()
