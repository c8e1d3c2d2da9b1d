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
    EventSchema,
    Field,
    FieldEncoding,
    Milliseconds,
    Section,
    Source,
    SourceContext,
    SourceDescription,
    SourceType,
    hookimpl,
)
from kiwi_gw.config import LoadedConfig, load
from kiwi_gw.errors import ConfigError

SHAPE = EventSchema((Field("sourceId", FieldEncoding.SOURCE_ID),))


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


def _describe_topic(settings: TopicSettings) -> SourceDescription:
    return SourceDescription(SHAPE, id=settings.topic, sections=("cluster",))


def _describe_join(settings: JoinSettings) -> SourceDescription:
    if settings.bad:
        raise ZeroDivisionError
    sections = ("cluster", *settings.sections) if settings.kept else settings.sections
    return SourceDescription(SHAPE, sections=sections, replayable=settings.kept, depends=settings.of)


def _validate_join(settings: JoinSettings, sources: Mapping[str, Section]) -> Mapping[tuple[str, ...], str]:
    """Let a source whose text is `no ticks` join none."""
    if settings.text == "fail":
        raise ZeroDivisionError
    ticks = [other for other in settings.of if isinstance(sources.get(other), TickSettings)]
    return {("of",): f"{ticks} tick"} if ticks and settings.text == "no ticks" else {}


class TickPlugin:
    @hookimpl
    def source_types(self) -> Sequence[SourceType]:
        return (
            SourceType("tick", TickSettings, _build, SHAPE),
            SourceType(
                "topic",
                TopicSettings,
                _build,
                SourceDescription(SHAPE, sections=("cluster",)),
                _describe_topic,
            ),
            SourceType("plain", PlainSettings, _build, SHAPE),
            SourceType(
                "join",
                JoinSettings,
                _build,
                SHAPE,
                _describe_join,
                _validate_join,
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

Loader = Callable[..., LoadedConfig]
Complaints = Callable[..., list[str]]


@pytest.fixture
def load_text(tmp_path: Path) -> Loader:
    """Loads text as a file, with `tail` (the test plugin and the section it requires) behind it."""

    def load_it(text: str, environ: Mapping[str, str] | None = None, tail: str = TAIL) -> LoadedConfig:
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
