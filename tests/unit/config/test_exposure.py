"""Who may write to sources, where no plugin says it, and what protocols call the groups of sources."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType
from typing import Literal

import pytest

from kiwi_gw.api import (
    Action,
    Credential,
    Diagnostic,
    EventSchema,
    Field,
    FieldEncoding,
    Identity,
    Section,
    Source,
    SourceContext,
    SourceDescription,
    SourceInfo,
    SourceType,
    hookimpl,
)
from kiwi_gw.config import LoadedConfig, load
from kiwi_gw.config.exposure import exposure_warnings, writers

SHAPE = EventSchema((Field("sourceId", FieldEncoding.SOURCE_ID),))


class PadSettings(Section):
    type: Literal["pad"]
    id: str
    publish: bool = False


def _build(settings: PadSettings, context: SourceContext) -> Source:
    raise AssertionError("nothing runs here")


class Pads:
    @hookimpl
    def source_types(self) -> Sequence[SourceType]:
        return [
            SourceType(
                "pad", PadSettings, _build, SHAPE, lambda s: SourceDescription(SHAPE, publish=s.publish)
            )
        ]


class Authenticates:
    @hookimpl
    def authenticate(self, credential: Credential) -> Identity | None:
        return None


class Judges:
    @hookimpl
    def authorize(self, identity: Identity, action: Action, source: SourceInfo | None) -> None:
        return None


Configure = Callable[..., LoadedConfig]


@pytest.fixture
def configure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Configure:
    """Return what loads a configuration with two sources, one of which can be written to."""
    module = ModuleType("padding")
    vars(module).update(pads=Pads(), authenticates=Authenticates(), judges=Judges())
    monkeypatch.setitem(sys.modules, "padding", module)

    def make(*plugins: str, publish: str = "true", **sections: str) -> LoadedConfig:
        path = tmp_path / "kiwi.yml"
        names = [f"padding:{name}" for name in ("pads", *plugins)]
        more = "".join(f"{name}: {text}\n" for name, text in sections.items())
        path.write_text(
            f"plugins: {names}\n{more}sources:\n  - type: pad\n    id: a\n    publish: {publish}\n"
            "  - {type: pad, id: b, pulsar: {name: x/y/z}}\n"
        )
        return load(path, {})

    return make


@pytest.mark.parametrize(
    ("plugins", "address", "level", "words"),
    [
        ((), "127.0.0.1:8000", "ok", "by anyone who reaches 127.0.0.1:8000: no plugin authenticates"),
        ((), "0.0.0.0:8000", "warning", "by anyone who reaches 0.0.0.0:8000: no plugin authenticates"),
        (("authenticates",), "0.0.0.0:8000", "warning", "no plugin gives the right to"),
        (("authenticates", "judges"), "0.0.0.0:8000", "ok", "by the plugin padding:judges"),
        (("judges",), "127.0.0.1:8000", "ok", "by the plugin padding:judges"),
    ],
)
def test_who_may_write(
    plugins: tuple[str, ...], address: str, level: str, words: str, configure: Configure
) -> None:
    loaded = configure(*plugins, server=f"{{address: '{address}'}}")
    (finding,) = writers(loaded, ())
    assert (finding.level, finding.subject) == (level, "source a")
    assert words in finding.message
    place = loaded.place(finding)
    assert place is not None
    assert place[1] == 6
    # What a plugin says of it is enough.
    assert writers(loaded, [Diagnostic("ok", "", "", ("sources", "a", "publish"))]) == []


def test_a_source_that_cannot_be_written_to_is_not_spoken_of(configure: Configure) -> None:
    assert writers(configure(publish="false"), ()) == []


@pytest.mark.parametrize(("publish", "words"), [("true", "and write to those with"), ("false", "source: no")])
def test_the_warning_says_whether_anything_can_be_written(
    publish: str, words: str, configure: Configure
) -> None:
    (warning,) = exposure_warnings(configure(publish=publish, server="{address: '0.0.0.0:8000'}"))
    assert words in warning


def test_protocols_say_what_their_groups_begin_with(configure: Configure) -> None:
    assert configure().context().groups == {}
    assert configure(pulsar="{enabled: true, group_prefix: gw}").context().groups == {
        "a": ["gw/subscription/public/default/a/"],
        "b": ["gw/subscription/x/y/z/"],
    }
