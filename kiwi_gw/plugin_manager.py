"""Finds, loads and asks plugins. Nothing is loaded that the configuration does not name."""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from importlib.metadata import EntryPoint, entry_points
from types import ModuleType
from typing import Any, Protocol, TypeVar

import pluggy

from kiwi_gw import hookspecs
from kiwi_gw.api import ConfigSection, Section, ServiceType, SourceType
from kiwi_gw.dialect_api import DialectType
from kiwi_gw.errors import PluginError

ENTRY_POINT_GROUP = "kiwi_gw.plugins"
DISTRIBUTION = "kiwi-gw"


@dataclass(frozen=True, slots=True)
class _Extra:
    requirement: str
    modules: tuple[str, ...]


_EXTRAS = {
    "kafka": _Extra("kiwi-gw[kafka]", ("aiokafka",)),
    "spark": _Extra("kiwi-gw[spark]", ("pyarrow", "pyspark")),
}
"""Entry points of this distribution whose sources need an extra of it."""


_BUILT_IN = {name: f"kiwi_gw.dialects.{name}.plugin" for name in ("kiwi", "zetta", "lenses", "pulsar")}
"""Plugins that are always loaded, whatever the configuration names: modules by name."""


class MissingExtraError(PluginError):
    """Report a plugin whose extra is not installed. `requirement` is what pip wants to hear."""

    def __init__(self, name: str, requirement: str) -> None:
        self.requirement = requirement
        super().__init__(f"plugin {name!r} needs: pip install '{requirement}'")


class _Named(Protocol):
    @property
    def name(self) -> str: ...


N = TypeVar("N", bound=_Named)


class PluginManager:
    """Hold the loaded plugins, by the name under which the configuration knows them.

    known: plugins that this one has are taken from it as they are, not imported again (a reload gets a
    manager of its own, so that a wrong configuration leaves the running one alone).
    """

    def __init__(self, known: PluginManager | None = None) -> None:
        self._known = known
        self._pluggy = pluggy.PluginManager("kiwi_gw")
        self._pluggy.add_hookspecs(hookspecs)
        self.hook = self._pluggy.hook
        for name, module in _BUILT_IN.items():
            self.register(importlib.import_module(module), name)

    @cached_property
    def installed(self) -> Mapping[str, EntryPoint]:
        """Hold what `available` finds: looked for once, as that reads a file of every package there is."""
        return available()

    @property
    def names(self) -> tuple[str, ...]:
        """Those that were loaded, in this order, without those that always are."""
        names = (name for name, plugin in self._pluggy.list_name_plugin() if plugin is not None)
        return tuple(name for name in names if name not in _BUILT_IN)

    def register(self, plugin: object, name: str) -> None:
        """Add a plugin object: a module or an instance whose methods carry `@hookimpl`.

        Raises PluginError if it implements a hook that does not exist, or implements one wrongly; it is
        then not registered.
        """
        try:
            self._pluggy.register(plugin, name)
        except (pluggy.PluginValidationError, ValueError) as error:
            raise PluginError(f"plugin {name!r} does not fit: {error}") from error
        try:
            self._pluggy.check_pending()
        except pluggy.PluginValidationError as error:
            self._pluggy.unregister(name=name)
            raise PluginError(f"plugin {name!r} does not fit: {error}") from error

    def load(self, name: str) -> None:
        """Load a plugin by the name of an entry point (`kafka`) or as `module:object`; once.

        Raises MissingExtraError if it lacks an extra of the gateway. Raises PluginError, in words, if there
        is no such plugin or it cannot be imported, or if it or what it declares does not fit. It is then not
        loaded.
        """
        if self._pluggy.has_plugin(name):
            return
        plugin = self._known.find(name) if self._known is not None else None
        self.register(self._import(name) if plugin is None else plugin, name)
        try:
            self.source_types()
            self.dialect_types()
            self.service_types()
            self.config_sections()
        except PluginError:
            self._pluggy.unregister(name=name)
            raise

    def _import(self, name: str) -> object:
        if ":" in name:
            module_name, _, attribute = name.partition(":")
            return _attribute(_import_module(module_name, name), attribute, name)
        point = self.installed.get(name)
        if point is None:
            known = ", ".join(sorted(self.installed)) or "none"
            raise PluginError(
                f"no plugin is called {name!r} (installed: {known}); an own one is named as 'module:object'"
            )
        module = _import_module(point.module, name)
        return _attribute(module, point.attr, name) if point.attr else module

    def hooks_of(self, name: str) -> tuple[str, ...]:
        """Return the names of the hooks that this plugin implements."""
        callers: Sequence[pluggy.HookCaller] = self._pluggy.get_hookcallers(self.find(name)) or ()
        return tuple(sorted(caller.name for caller in callers))

    def find(self, name: str) -> object | None:
        """Return the plugin object of that name, if it is loaded."""
        return self._pluggy.get_plugin(name)

    def implements(self, hook: str) -> bool:
        """Return whether any plugin implements the hook."""
        caller: pluggy.HookCaller = getattr(self.hook, hook)
        return bool(caller.get_hookimpls())

    def each(self, hook: str) -> Iterator[tuple[str, Callable[..., object]]]:
        """Yield the plugins that implement the hook, each with a function that calls it, as registered."""
        caller: pluggy.HookCaller = getattr(self.hook, hook)
        for item in caller.get_hookimpls():
            yield item.plugin_name, partial(_ask_one, item)

    def source_types(self) -> dict[str, SourceType]:
        """Return the source types by `type`. Raises PluginError if two are alike, or a hook fails."""
        return self._declared("source_types", SourceType, "source type")

    def dialect_types(self, plugin: str | None = None) -> dict[str, DialectType[Any]]:
        """Return the dialects by name, of all plugins or one. Raises PluginError as `source_types`."""
        found: dict[str, DialectType[Any]] = self._declared("dialect_types", DialectType, "protocol", plugin)
        return found

    def source_blocks(self) -> dict[str, type[Section]]:
        """Return the models of what a source may say to single protocols, by key. Raise as `source_types`."""
        types = self.dialect_types().items()
        return {name: item.source_settings for name, item in types if item.source_settings is not None}

    def service_types(self) -> dict[str, ServiceType]:
        """Return the services by name. Raises PluginError as `source_types` does."""
        return self._declared("services", ServiceType, "service")

    def config_sections(self, plugin: str | None = None) -> dict[str, ConfigSection]:
        """Return the sections by key, of all plugins or of one, those of protocols last. Raises PluginError
        as `source_types` does."""
        found = self._declared("config_sections", ConfigSection, "configuration section", plugin)
        for name, dialect in self.dialect_types(plugin).items():
            if name in found:
                raise PluginError(f"the section {name!r} is that of a plugin and that of a protocol")
            found[name] = ConfigSection(name, dialect.settings)
        return found

    def _declared(self, hook: str, kind: type[N], word: str, plugin: str | None = None) -> dict[str, N]:
        found: dict[str, N] = {}
        owners: dict[str, str] = {}
        for owner, ask in self.each(hook):
            if plugin not in (None, owner):
                continue
            for item in _ask(owner, hook, ask):
                if not isinstance(item, kind):
                    raise PluginError(
                        f"plugin {owner!r}: {hook} must return {kind.__name__} objects, not {item!r}"
                    )
                if item.name in owners:
                    raise PluginError(
                        f"plugins {owners[item.name]!r} and {owner!r} both provide the {word} {item.name!r}"
                    )
                owners[item.name] = owner
                found[item.name] = item
        return found


def _ask_one(item: pluggy.HookImpl, **arguments: object) -> object:
    answer: object = item.function(**{name: arguments[name] for name in item.argnames})
    return answer


def available() -> dict[str, EntryPoint]:
    """Return every plugin that is installed, by name, without importing any."""
    return {point.name: point for point in entry_points(group=ENTRY_POINT_GROUP)}


@dataclass(frozen=True, slots=True)
class InstalledPlugin:
    """Say what the installed plugins provide: their names by source type and by section of the configuration.

    broken: of those that cannot be loaded, why, each with its name.
    """

    source_types: Mapping[str, Sequence[str]]
    sections: Mapping[str, Sequence[str]]
    broken: Sequence[str]


def installed(known: PluginManager, *, ours: bool) -> InstalledPlugin:
    """Import every plugin that is installed, to see what it provides. Each is loaded into a
    manager of its own, so that none is in use afterwards. Those that `known` has are taken from there.

    ours: whether to import those that come with the gateway, too, which takes half a second. (Each of their
    source types is called like its plugin.)
    """
    types: dict[str, list[str]] = {}
    sections: dict[str, list[str]] = {}
    broken: list[str] = []
    for name, point in sorted(available().items()):
        if not ours and _is_ours(point):
            continue
        alone = PluginManager(known)
        try:
            alone.load(name)
        except MissingExtraError:
            continue  # one of ours
        except PluginError as error:
            broken.append(str(error))
            continue
        for provided, found in ((alone.source_types(), types), (alone.config_sections(name), sections)):
            for item in provided:
                found.setdefault(item, []).append(name)
    return InstalledPlugin(types, sections, broken)


def shipped() -> PluginManager:
    """Load all plugins that come with the gateway itself. Raise PluginError as `load` does."""
    manager = PluginManager()
    for name, point in sorted(available().items()):
        if _is_ours(point):
            manager.load(name)
    return manager


def _is_ours(point: EntryPoint) -> bool:
    return point.dist is not None and point.dist.name == DISTRIBUTION


def missing_extra(name: str) -> str | None:
    """Return what pip should install before sources of this plugin can run (`kiwi-gw[kafka]`), or None."""
    extra = _EXTRAS.get(name)
    if extra is None or all(importlib.util.find_spec(module) is not None for module in extra.modules):
        return None
    return extra.requirement


def _ask(owner: str, hook: str, ask: Callable[[], object]) -> Sequence[object]:
    try:
        answer = ask()
    except Exception as error:  # a plugin's own code: any error of it is a configuration error here
        raise PluginError(f"plugin {owner!r}: {hook} failed: {type(error).__name__}: {error}") from error
    if not isinstance(answer, Sequence):
        raise PluginError(f"plugin {owner!r}: {hook} must return a sequence, not {answer!r}")
    return answer


def _import_module(module_name: str, name: str) -> ModuleType:
    try:
        return importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        extra = _EXTRAS.get(name)
        if extra is not None and error.name is not None and error.name.split(".")[0] in extra.modules:
            raise MissingExtraError(name, extra.requirement) from error
        raise PluginError(f"plugin {name!r} cannot be imported: {error}") from error
    except Exception as error:  # as in _ask
        raise PluginError(
            f"plugin {name!r} failed while it was imported: {type(error).__name__}: {error}"
        ) from error


def _attribute(module: ModuleType, attribute: str, name: str) -> object:
    found: object = module
    for part in attribute.split("."):
        try:
            found = getattr(found, part)
        except AttributeError:
            raise PluginError(f"plugin {name!r}: {module.__name__} has no {attribute!r}") from None
    return found
