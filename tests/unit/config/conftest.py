"""A plugin to configure, and a way to load text as a file."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Literal

import pytest
from pydantic import SecretStr, field_validator

from kiwi_gw.api import (
    ConfigSection,
    Field,
    Kind,
    Milliseconds,
    Section,
    Shape,
    Source,
    SourceContext,
    SourceType,
    hookimpl,
)
from kiwi_gw.config import Loaded, load
from kiwi_gw.errors import ConfigError

SHAPE = Shape((Field("sourceId", Kind.SOURCE_ID),))


class TickSettings(Section):
    type: Literal["tick"]
    id: str
    """The name under which clients subscribe."""
    min: int = 0
    interval_ms: Milliseconds = 1000
    lazy: bool = False
    password: SecretStr | None = None
    labels: list[str] | str | None = None


class TopicSettings(Section):
    type: Literal["topic"]
    id: str | None = None
    topic: str


class PlainSettings(Section):
    type: Literal["plain"]


class ClusterUser(Section):
    name: str
    password: SecretStr


class ClusterSettings(Section):
    hosts: list[str]
    port: int = 1
    users: tuple[ClusterUser, ...] = ()
    groups: dict[str, ClusterUser] | None = None

    @field_validator("hosts")
    @classmethod
    def _not_there(cls, hosts: list[str]) -> list[str]:
        if "mars" in hosts:
            raise ValueError("'mars' is too far away")
        return hosts


class JoinSettings(Section):
    type: Literal["join"]
    id: str
    of: tuple[str, ...] = ()
    text: str = ""
    kept: bool = False
    bad: bool = False
    sections: tuple[str, ...] = ()


class OptionSettings(Section):
    colour: Literal["red", "green"] = "red"


def _build(settings: Section, context: SourceContext) -> Source:
    raise AssertionError("the configuration builds no sources")


def _depends(settings: Section) -> tuple[str, ...]:
    assert isinstance(settings, JoinSettings)
    if settings.bad:
        raise ZeroDivisionError
    return settings.of


def _sections(settings: Section) -> tuple[str, ...]:
    assert isinstance(settings, JoinSettings)
    return ("cluster", *settings.sections) if settings.kept else settings.sections


def _kept(settings: Section) -> bool:
    assert isinstance(settings, JoinSettings)
    return settings.kept


class TickPlugin:
    @hookimpl
    def source_types(self) -> Sequence[SourceType]:
        return (
            SourceType("tick", TickSettings, _build, SHAPE),
            SourceType(
                "topic",
                TopicSettings,
                _build,
                SHAPE,
                sections=("cluster",),
                source_id=lambda settings: str(settings.model_dump()["topic"]),
            ),
            SourceType("plain", PlainSettings, _build, SHAPE),
            SourceType(
                "join",
                JoinSettings,
                _build,
                SHAPE,
                sections=_sections,
                replayable=_kept,
                depends=_depends,
            ),
        )

    @hookimpl
    def config_sections(self) -> Sequence[ConfigSection]:
        return (
            ConfigSection("cluster", ClusterSettings, required=True),
            ConfigSection("option", OptionSettings),
        )


class SecondPlugin:
    @hookimpl
    def source_types(self) -> Sequence[SourceType]:
        return (SourceType("second", PlainSettings, _build, SHAPE),)


class ClashingPlugin:
    @hookimpl
    def source_types(self) -> Sequence[SourceType]:
        return (SourceType("tick", TickSettings, _build, SHAPE),)


@pytest.fixture(autouse=True)
def test_plugins(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """A module `ticking` with plugins to name."""
    module = ModuleType("ticking")
    vars(module).update(plugin=TickPlugin(), second=SecondPlugin(), clashing=ClashingPlugin())
    monkeypatch.setitem(sys.modules, "ticking", module)
    return module


PLUGINS = "plugins: ['ticking:plugin']\n"
TAIL = PLUGINS + "cluster: {hosts: [earth]}\n"

Loader = Callable[..., Loaded]
Complaints = Callable[..., list[str]]


@pytest.fixture
def load_text(tmp_path: Path) -> Loader:
    """Loads text as a file, with `tail` (the test plugin and the section it requires) behind it."""

    def load_it(text: str, environ: Mapping[str, str] | None = None, tail: str = TAIL) -> Loaded:
        path = tmp_path / "kiwi.yml"
        path.write_text(f"{text}\n{tail}")
        return load(path, environ or {})

    return load_it


@pytest.fixture
def complaints(load_text: Loader, tmp_path: Path) -> Complaints:
    """The problems of a text as `line: path: message`, the file's name left out."""

    def complain(text: str, environ: Mapping[str, str] | None = None, tail: str = TAIL) -> list[str]:
        with pytest.raises(ConfigError) as caught:
            load_text(text, environ, tail)
        return [str(problem).removeprefix(f"{tmp_path / 'kiwi.yml'}:") for problem in caught.value.problems]

    return complain
