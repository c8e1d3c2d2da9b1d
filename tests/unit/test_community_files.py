"""What .github, .ci and the changelog say is so."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest
import yaml

from kiwi_gw import __version__

ROOT = Path(__file__).parents[2]
GITHUB = ROOT / ".github"
MAKEFILE = (ROOT / "Makefile").read_text()
PARTS = re.findall(r"^    (\w+)\) (.*) ;;$", (ROOT / ".ci" / "run").read_text(), re.MULTILINE)


def test_the_parts_of_ci_are_targets_of_make() -> None:
    assert len(PARTS) >= 5
    targets = {target for _, command in PARTS for target in re.findall(r"make ([\w-]+)", command)}
    assert targets
    assert [target for target in targets if not re.search(rf"^{target}:", MAKEFILE, re.MULTILINE)] == []


def test_a_part_that_there_is_not() -> None:
    done = subprocess.run(
        ["bash", ".ci/run", "nosuch"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == f"no part is called nosuch: {', '.join(name for name, _ in PARTS)}\n"


def test_the_workflow_runs_all_parts_and_nothing_else() -> None:
    workflow = yaml.safe_load((GITHUB / "workflows" / "ci.yml").read_text())
    jobs = workflow["jobs"]
    steps = [step for job in jobs.values() for step in job["steps"]]
    ran = [step["run"] for step in steps if "run" in step]
    assert sorted(ran) == sorted(f".ci/run {name}" for name, _ in PARTS)
    assert workflow["permissions"] == {"contents": "read"}
    for job in jobs.values():
        assert job["timeout-minutes"] <= 120
        assert set(job.get("needs", "check").split()) <= set(jobs)
    assert all(re.fullmatch(r"actions/[\w-]+@v\d+", step["uses"]) for step in steps if "uses" in step)


def test_hooks_before_a_commit_are_the_projects_own_tools() -> None:
    hooks = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())["repos"]
    assert [repository["repo"] for repository in hooks] == ["local"]
    for hook in hooks[0]["hooks"]:
        assert hook["language"] == "system"
        program = Path(hook["entry"].split()[0])
        assert program.parent == Path(".venv/bin")
        assert f"$(BIN)/{program.name}" in MAKEFILE, "a tool that `make check` uses, too"


@pytest.mark.parametrize("name", ["CONTRIBUTING.md", "SECURITY.md"])
def test_what_its_pages_name_exists(name: str) -> None:
    text = (GITHUB / name).read_text()
    for link in re.findall(r"\]\((?!https?:)([^)#]+)", text):
        assert (GITHUB / link).exists(), link
    for path in re.findall(r"`((?:kiwi_gw|plugins|tests|config)/[\w./-]+)`", text):
        assert (ROOT / path).exists(), path
    for target in re.findall(r"`make ([\w-]+)", text):
        assert re.search(rf"^{target}:", MAKEFILE, re.MULTILINE), target
    for module in re.findall(r"python -m (tests\.\w+)", text):
        assert (ROOT / f"{module.replace('.', '/')}.py").exists(), module


@pytest.mark.parametrize("name", ["bug.yml", "idea.yml"])
def test_issue_forms(name: str) -> None:
    form = yaml.safe_load((GITHUB / "ISSUE_TEMPLATE" / name).read_text())
    assert form["name"]
    assert form["description"]
    fields = [item for item in form["body"] if item["type"] != "markdown"]
    assert len({item["id"] for item in fields}) == len(fields) >= 3
    assert all(item["attributes"]["label"] for item in fields)


def test_the_changelog_begins_with_this_version() -> None:
    releases = re.findall(r"^## (\d+\.\d+\.\d+)", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert releases[0] == __version__
    assert releases == sorted(releases, reverse=True)
