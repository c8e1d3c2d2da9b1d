"""The documentation as a site: it is built without a warning, and a reader needs no other server for it."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

import kiwi_gw.api
import kiwi_gw.dialect_api
from tests.doc_snippets import ROOT, pages

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--config-file", ".mkdocs.yml"]
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    built = subprocess.run(
        [*command, "--site-dir", str(folder)],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert built.returncode == 0, built.stderr
    return folder


def test_llms_txt_has_every_page_with_a_sentence(site: Path) -> None:
    lines = (site / "llms.txt").read_text(encoding="utf-8").splitlines()
    listed = dict(re.findall(r"^- \[.+?\]\((.+?)\): (.+)$", "\n".join(lines), re.MULTILINE))
    assert {f"docs/{uri}" for uri in listed} == set(pages()) - {"README.md"}
    assert not [sentence for sentence in listed.values() if sentence.startswith(("|", "```", "<"))]
    assert not [uri for uri in listed if not (site / uri).exists()]


def test_nothing_is_loaded_from_elsewhere(site: Path) -> None:
    for page in site.rglob("*.html"):
        if "repository" not in page.parts:
            text = page.read_text(encoding="utf-8")
            loaded = re.findall(r"<(?:script|img|iframe)[^>]* src=\"?(https?:[^\" >]+)", text)
            loaded += re.findall(r"<link[^>]* rel=\"?(?:stylesheet|preconnect|icon)[^>]*https?:[^>]+>", text)
            assert loaded == [], page


@pytest.mark.parametrize("package", [kiwi_gw.api, kiwi_gw.dialect_api])
def test_every_class_that_a_plugin_may_import_is_described(package: ModuleType, site: Path) -> None:
    page = (site / "reference" / "plugin-api.html").read_text(encoding="utf-8")
    described = set(re.findall(r"id=\"kiwi_gw\.[\w.]*?(\w+)\"", page))
    ours = {name for name, it in vars(package).items() if isinstance(it, type) and "kiwi_gw" in it.__module__}
    assert len(ours) > 40
    assert ours - described == set()


def test_files_of_the_repository_are_there(site: Path) -> None:
    assert (site / "repository" / "config" / "monitoring" / "alerts.yml").exists()
    assert (site / "repository" / "benchmarks" / "results" / "throughput.svg").exists()
