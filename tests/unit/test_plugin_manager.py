from __future__ import annotations

import importlib
import importlib.metadata
import sys
from collections.abc import Sequence
from importlib.metadata import EntryPoints
from pathlib import Path
from types import ModuleType
from typing import Literal

import pytest

from kiwi_gw import plugin_manager
from kiwi_gw.api import ConfigSection, EventSchema, Section, Source, SourceContext, SourceType, hookimpl
from kiwi_gw.config import load, load_again
from kiwi_gw.errors import PluginError
from kiwi_gw.plugin_manager import MissingExtraError, PluginManager, available, missing_extra, shipped


class TickSettings(Section):
    type: Literal["tick"]


def _build(settings: Section, context: SourceContext) -> Source:
    raise AssertionError("nothing is built here")


TICK = SourceType("tick", TickSettings, _build, EventSchema(()))


class Ticks:
    @hookimpl
    def source_types(self) -> Sequence[SourceType]:
        return (TICK,)

    @hookimpl
    def config_sections(self) -> Sequence[ConfigSection]:
        return (ConfigSection("ticks", TickSettings),)


class MoreTicks(Ticks):
    pass


class UnknownHook:
    @hookimpl
    def source_tipes(self) -> Sequence[SourceType]:
        return ()


class WrongArguments:
    @hookimpl
    def configure(self, kontext: object) -> None: ...


class Raises:
    @hookimpl
    def source_types(self) -> Sequence[SourceType]:
        raise RuntimeError("no types today")


class ReturnsOne:
    @hookimpl
    def source_types(self) -> object:
        return TICK


class ReturnsOther:
    @hookimpl
    def source_types(self) -> object:
        return (ConfigSection("a", TickSettings),)


@pytest.fixture
def module(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    module = ModuleType("some_plugins")
    vars(module).update(
        ticks=Ticks(),
        more=MoreTicks(),
        raises=Raises(),
        one=ReturnsOne(),
        other=ReturnsOther(),
        inside=type("Inside", (), {"deep": Ticks()}),
    )
    monkeypatch.setitem(sys.modules, "some_plugins", module)
    return module


def test_what_comes_with_the_gateway() -> None:
    assert {"counter", "kafka", "spark", "tokens"} <= set(available())
    assert set(shipped().names) == {"counter", "kafka", "spark", "tokens"}
    assert set(shipped().source_types()) == {"counter", "kafka", "spark"}
    assert set(shipped().config_sections()) == {
        "kafka",
        "spark",
        "tokens",
        "kiwi",
        "zetta",
        "lenses",
        "pulsar",
    }
    assert "kafka" in shipped().service_types()


def test_nothing_is_loaded_unasked() -> None:
    manager = PluginManager()
    assert manager.names == ()
    assert manager.source_types() == {}
    assert manager.service_types() == {}
    assert (
        list(manager.dialect_types())
        == list(manager.config_sections())
        == ["kiwi", "zetta", "lenses", "pulsar"]
    )


def test_loads_entry_points_and_objects_once(module: ModuleType) -> None:
    manager = PluginManager()
    for name in ("counter", "some_plugins:ticks", "counter", "some_plugins:ticks"):
        manager.load(name)
    assert manager.names == ("counter", "some_plugins:ticks")
    assert list(manager.source_types()) == ["counter", "tick"]
    assert manager.find("some_plugins:ticks") is module.ticks
    assert manager.find("other") is None
    assert list(manager.config_sections()) == ["ticks", "kiwi", "zetta", "lenses", "pulsar"]
    assert list(manager.config_sections("some_plugins:ticks")) == ["ticks"]
    assert manager.config_sections("counter") == {}


def test_installed_packages_are_looked_through_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    looked = list[str]()

    def entry_points(group: str) -> EntryPoints:
        looked.append(group)
        return importlib.metadata.entry_points(group=group)

    monkeypatch.setattr(plugin_manager, "entry_points", entry_points)
    file = tmp_path / "kiwi.yml"
    file.write_text(
        "sources: [{type: counter, id: a, min: 0, interval_ms: 1}]\ntokens: {anonymous: {roles: []}}\n"
    )
    loaded = load(file, {})
    assert looked == ["kiwi_gw.plugins"]
    load_again(loaded)
    assert looked == ["kiwi_gw.plugins"] * 2  # another may have been installed meanwhile


def test_an_object_may_be_deep_inside(module: ModuleType) -> None:
    manager = PluginManager()
    manager.load("some_plugins:inside.deep")
    assert list(manager.source_types()) == ["tick"]


@pytest.mark.parametrize(
    ("name", "message"),
    [
        (
            "kafak",
            "no plugin is called 'kafak' (installed: counter, kafka, spark, tokens); an own one is named as "
            "'module:object'",
        ),
        ("not_there:plugin", "plugin 'not_there:plugin' cannot be imported: No module named 'not_there'"),
        ("some_plugins:nothing", "plugin 'some_plugins:nothing': some_plugins has no 'nothing'"),
        (
            "some_plugins:raises",
            "plugin 'some_plugins:raises': source_types failed: RuntimeError: no types today",
        ),
    ],
)
@pytest.mark.usefixtures("module")
def test_says_what_is_wrong(name: str, message: str) -> None:
    manager = PluginManager()
    with pytest.raises(PluginError) as caught:
        manager.load(name)
    assert str(caught.value) == message
    assert manager.names == ()


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("some_plugins:one", "source_types must return a sequence, not SourceType"),
        ("some_plugins:other", "source_types must return SourceType objects, not ConfigSection"),
    ],
)
@pytest.mark.usefixtures("module")
def test_wrong_answers_are_refused(name: str, message: str) -> None:
    with pytest.raises(PluginError) as caught:
        PluginManager().load(name)
    assert message in str(caught.value)


@pytest.mark.usefixtures("module")
def test_two_plugins_cannot_provide_the_same() -> None:
    manager = PluginManager()
    manager.load("some_plugins:ticks")
    with pytest.raises(PluginError) as caught:
        manager.load("some_plugins:more")
    assert str(caught.value) == (
        "plugins 'some_plugins:ticks' and 'some_plugins:more' both provide the source type 'tick'"
    )
    assert manager.names == ("some_plugins:ticks",)
    assert list(manager.source_types()) == ["tick"]


@pytest.mark.parametrize("plugin", [UnknownHook(), WrongArguments()])
def test_a_plugin_that_does_not_fit_is_not_registered(plugin: object) -> None:
    manager = PluginManager()
    with pytest.raises(PluginError, match=r"^plugin 'bad' does not fit: "):
        manager.register(plugin, "bad")
    assert not manager.names
    manager.register(Ticks(), "good")
    assert list(manager.names) == ["good"]
    with pytest.raises(PluginError, match=r"^plugin 'good' does not fit: "):
        manager.register(Ticks(), "good")


def test_a_module_that_breaks_on_import(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "breaks_on_import.py").write_text("1 / 0\n")
    (tmp_path / "lacks_a_module.py").write_text("import not_there_either\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(PluginError) as caught:
        PluginManager().load("breaks_on_import:plugin")
    assert str(caught.value) == (
        "plugin 'breaks_on_import:plugin' failed while it was imported: ZeroDivisionError: division by zero"
    )
    with pytest.raises(PluginError, match="cannot be imported: No module named 'not_there_either'"):
        PluginManager().load("lacks_a_module:plugin")


def test_a_missing_extra_has_its_own_error(monkeypatch: pytest.MonkeyPatch) -> None:
    assert missing_extra("kafka") is None
    assert missing_extra("counter") is None
    monkeypatch.setitem(sys.modules, "aiokafka", None)
    assert missing_extra("kafka") == "kiwi-gw[kafka]"

    manager = PluginManager()

    def import_nothing(name: str) -> ModuleType:
        raise ModuleNotFoundError("No module named 'aiokafka.abc'", name="aiokafka.abc")

    monkeypatch.setattr(importlib, "import_module", import_nothing)
    with pytest.raises(MissingExtraError) as caught:
        manager.load("kafka")
    assert str(caught.value) == "plugin 'kafka' needs: pip install 'kiwi-gw[kafka]'"
    assert caught.value.requirement == "kiwi-gw[kafka]"


def test_a_reload_takes_known_plugins_as_they_are(module: ModuleType) -> None:
    running = PluginManager()
    running.load("some_plugins:ticks")
    before = module.ticks
    vars(module)["ticks"] = Ticks()
    fresh = PluginManager(known=running)
    fresh.load("some_plugins:ticks")
    assert fresh.find("some_plugins:ticks") is before
    fresh.load("counter")
    assert running.names == ("some_plugins:ticks",)
