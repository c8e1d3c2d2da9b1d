"""A plugin that is installed as a stranger's would be: a module and an entry point, found on sys.path."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

_MODULE = """
from typing import Literal
import structlog
import trio
from kiwi_gw.api import Diagnostic, EventSchema, Field, FieldEncoding, KiwiError, Section, SourceType
from kiwi_gw.api import hookimpl


class Settings(Section):
    type: Literal["example"]
    id: str
    how: str = "well"


SHAPE = EventSchema((Field("sourceId", FieldEncoding.SOURCE_ID),))


class Example:
    async def run(self, out, start):
        await out.ready({0: 0})


@hookimpl
def source_types():
    return [SourceType("example", Settings, lambda settings, context: Example(), SHAPE)]


@hookimpl
def check(context, sources):
    async def connect():
        found = []
        structlog.get_logger("example").warning("a line of the log")
        for source in sources:
            if source.how == "raises":
                raise RuntimeError("no such host")
            if source.how == "slow":
                await trio.sleep_forever()
            level = "ok" if source.how == "well" else "error"
            if "\\n" in source.how:
                where = ("sources", source.id, "how")
                found.append(Diagnostic(level, f"example {source.id}", "no such word\\nsaid it", where, 1))
            else:
                found.append(Diagnostic(level, f"example {source.id}", source.how))
        return found
    return connect


@hookimpl
def explain(context, sources, source_id):
    async def say():
        how = context.sources[source_id].how
        if how == "raises":
            raise RuntimeError("no such host")
        if how == "refused":
            raise ExceptionGroup("", [KiwiError("it is too cold")])
        if how == "slow":
            await trio.sleep_forever()
        return f"worker {context.worker} of {context.workers}:\\n  {how}\\x1b\\n"
    return None if context.sources[source_id].how == "badly" else say
"""

_ENTRY_POINTS = """[kiwi_gw.plugins]
example = example_plugin_of_a_test
broken = example_plugin_that_is_not_there
"""


@pytest.fixture
def example_plugin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Installs the plugins `example` (a source type and a `check`) and `broken` (cannot be imported)."""
    site = tmp_path / "site"
    info = site / "example_plugin-1.2.3.dist-info"
    info.mkdir(parents=True)
    (site / "example_plugin_of_a_test.py").write_text(_MODULE)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: example-plugin\nVersion: 1.2.3\n")
    (info / "entry_points.txt").write_text(_ENTRY_POINTS)
    monkeypatch.syspath_prepend(str(site))
    yield
    sys.modules.pop("example_plugin_of_a_test", None)
