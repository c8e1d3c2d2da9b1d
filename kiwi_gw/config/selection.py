"""Which plugins a configuration needs: those it names, and those of the source types and sections it uses."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from kiwi_gw.api import ConfigSection, SourceType
from kiwi_gw.config import error_wording
from kiwi_gw.config.document import Document
from kiwi_gw.config.schema import CoreSettings
from kiwi_gw.errors import PluginError
from kiwi_gw.plugin_manager import (
    InstalledPlugin,
    MissingExtraError,
    PluginManager,
    installed,
    missing_extra,
)

EXTENSION = "x-"
"""Top-level keys that begin so are ignored: a place for anchors."""

OWN_KEYS = (*CoreSettings.model_fields, "sources")
_NO_HOOKS = (
    "WASM hooks do not run here; write Python hooks of these names (kiwi_gw/hookspecs.py) and name them in "
    "plugins: [module:object]"
)
"""The answer to the section `hooks` of the original server."""


@dataclass(frozen=True, slots=True)
class PluginSelection:
    """Hold the source types and the sections that the loaded plugins provide, by name."""

    types: Mapping[str, SourceType]
    sections: Mapping[str, ConfigSection]


def select(document: Document, data: Mapping[str, object], plugins: PluginManager) -> PluginSelection:
    """Load what `data` needs into `plugins`; what cannot be loaded becomes problems of the document."""
    _load_named(document, data, plugins)
    search = _Search(plugins)
    _load_for_sources(document, data, plugins, search)
    _load_for_sections(document, data, plugins, search)
    return PluginSelection(plugins.source_types(), plugins.config_sections())


class _Search:
    """Look through the installed plugins, once, and only if no plugin of that name declares what is sought:
    importing them takes time."""

    def __init__(self, plugins: PluginManager) -> None:
        self._plugins = plugins

    @cached_property
    def others(self) -> InstalledPlugin:
        """Those that do not come with the gateway."""
        return installed(self._plugins, ours=False)

    @cached_property
    def all(self) -> InstalledPlugin:
        return installed(self._plugins, ours=True)

    def load(self, what: str, owners: Sequence[str]) -> None:
        """Load the plugin that provides it, if one does. Raises PluginError if several do."""
        if len(owners) > 1:
            names = " and ".join(map(repr, owners))
            raise PluginError(f"the plugins {names} provide the {what}: name one of them in 'plugins'")
        for name in owners:
            self._plugins.load(name)

    def hint(self, name: str, known: Iterable[str]) -> str:
        """Return for an unknown name one like it, or what the plugin of that name provides instead; and
        which plugins could not be asked."""
        hint = error_wording.did_you_mean(name, [item for item in known if item != name])
        if not hint and name in self._plugins.installed:
            owned = (self.all.source_types, "source type"), (self.all.sections, "section")
            provided = [
                f"the {word} {item!r}" for items, word in owned for item in items if name in items[item]
            ]
            hint = f"; the plugin of that name provides {', '.join(provided) or 'neither types nor sections'}"
        return hint + "".join(f"; {reason}" for reason in self.all.broken)


def used_types(data: Mapping[str, object]) -> Iterator[tuple[int, str]]:
    """Yield the source types that are used, each with the index of its first source."""
    seen: set[str] = set()
    sources = data.get("sources")
    for index, item in enumerate(sources if isinstance(sources, list) else ()):
        name = item.get("type") if isinstance(item, dict) else None
        if isinstance(name, str) and name not in seen:
            seen.add(name)
            yield index, name


def named(data: Mapping[str, object]) -> Iterator[tuple[int, str]]:
    """Yield the items of `plugins`, each with its index."""
    names = data.get("plugins")
    for index, name in enumerate(names if isinstance(names, list) else ()):
        if isinstance(name, str):
            yield index, name


def _load_named(document: Document, data: Mapping[str, object], plugins: PluginManager) -> None:
    for index, name in named(data):
        try:
            plugins.load(name)
        except PluginError as error:
            document.spoil(("plugins", index), str(error))


def _load_for_sources(
    document: Document, data: Mapping[str, object], plugins: PluginManager, search: _Search
) -> None:
    for index, name in used_types(data):
        where = ("sources", index, "type")
        requirement = missing_extra(name)
        if name not in plugins.source_types() and name in plugins.installed:
            try:
                plugins.load(name)
            except MissingExtraError as error:
                requirement = error.requirement
            except PluginError as error:
                document.spoil(where, str(error))
        if requirement is not None:
            document.spoil(where, f"source type {name!r} needs: pip install '{requirement}'")
            continue
        if name not in plugins.source_types():
            try:
                search.load(f"source type {name!r}", search.others.source_types.get(name, ()))
            except PluginError as error:
                document.spoil(where, str(error))
        if name not in plugins.source_types():
            hint = search.hint(name, {*plugins.source_types(), *search.all.source_types})
            hint = hint or "; `kiwi-gw plugins` lists what is installed"
            document.spoil(where, f"unknown source type {name!r}{hint}")


def _load_for_sections(
    document: Document, data: Mapping[str, object], plugins: PluginManager, search: _Search
) -> None:
    for name in data:
        if name in OWN_KEYS or name.startswith(EXTENSION):
            continue
        if name not in plugins.config_sections() and name in plugins.installed:
            try:
                plugins.load(name)
            except MissingExtraError:
                continue  # a source that needs it has said so; without one the section has no use
            except PluginError as error:
                document.spoil((name,), str(error))
                continue
        if name == "hooks":
            document.spoil((name,), _NO_HOOKS)
            continue
        if name not in plugins.config_sections():
            try:
                search.load(f"section {name!r}", search.others.sections.get(name, ()))
            except PluginError as error:
                document.spoil((name,), str(error))
        if name not in plugins.config_sections():
            known = dict.fromkeys([*OWN_KEYS, *plugins.config_sections(), *search.all.sections])
            document.spoil((name,), "unknown key" + search.hint(name, known))
