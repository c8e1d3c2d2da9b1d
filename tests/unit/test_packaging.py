"""What the wheel and the sdist carry, and what they say of themselves."""

from __future__ import annotations

import re
import shutil
import subprocess
import tomllib
import zipfile
from email.message import Message
from email.parser import Parser
from pathlib import Path

import pytest
from hatchling.builders.sdist import SdistBuilder
from hatchling.builders.wheel import WheelBuilder

from kiwi_gw import __version__
from kiwi_gw.config.examples import examples

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
PACKAGES = ("kiwi_gw", "kiwi_counter", "kiwi_demo", "kiwi_kafka", "kiwi_spark", "kiwi_tokens")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> zipfile.ZipFile:
    """The wheel, packed from the sdist, that is packed from what git would clone."""
    folder = tmp_path_factory.mktemp("packed")
    files = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    for name in files.stdout.splitlines():
        if (ROOT / name).is_file() and not name.startswith(("tests/", "benchmarks/")):
            (folder / "clone" / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, folder / "clone" / name)
    (sdist,) = SdistBuilder(str(folder / "clone")).build(directory=str(folder), versions=["standard"])
    shutil.unpack_archive(sdist, folder, filter="data")
    unpacked = folder / Path(sdist).name.removesuffix(".tar.gz")
    (made,) = WheelBuilder(str(unpacked)).build(directory=str(folder), versions=["standard"])
    return zipfile.ZipFile(made)


@pytest.fixture(scope="module")
def metadata(wheel: zipfile.ZipFile) -> Message:
    (name,) = (name for name in wheel.namelist() if name.endswith(".dist-info/METADATA"))
    return Parser().parsestr(wheel.read(name).decode())


def test_it_says_what_it_is(metadata: Message) -> None:
    assert metadata["Name"] == "kiwi-gw"
    assert metadata["Version"] == __version__
    assert metadata["License-Expression"] == "Apache-2.0"
    assert metadata["Author"]
    assert metadata["Keywords"]
    assert "Typing :: Typed" in metadata.get_all("Classifier", ())
    assert len(metadata.get_all("Project-URL", ())) == len(PROJECT["urls"])


def test_links_of_its_readme_lead_to_files_of_this_version(metadata: Message) -> None:
    text = metadata.get_payload()
    assert isinstance(text, str)
    assert re.findall(r"\]\((?!https?://|#)", text) == []
    source = re.escape(f"{PROJECT['urls']['Source']}/")
    links = re.findall(rf"\]\({source}(blob|raw)/v{re.escape(__version__)}/([^)#]+)[^)]*\)", text)
    assert ("blob", "docs/index.md") in links
    assert [path for _, path in links if not (ROOT / path).exists()] == []


def test_all_packages_are_typed_and_nothing_else_is_there(wheel: zipfile.ZipFile) -> None:
    names = wheel.namelist()
    assert {f"{package}/py.typed" for package in PACKAGES} <= set(names)
    assert {name.partition("/")[0] for name in names} == {*PACKAGES, f"kiwi_gw-{__version__}.dist-info"}
    assert not [name for name in names if "__pycache__" in name]


def test_every_example_is_in_it(wheel: zipfile.ZipFile) -> None:
    names = set(wheel.namelist())
    assert {"kafka", "secured", "spark", "zetta", "watch.html", "alerts.yml", "grafana.json"} <= set(
        examples()
    )
    for path in examples().values():
        packed = f"kiwi_gw/examples/{path.relative_to(ROOT / 'config')}"
        assert packed in names
        assert wheel.read(packed) == path.read_bytes()
