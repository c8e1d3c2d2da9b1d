"""Make settings of a file and the environment, or find every problem that they have."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType

from pydantic import ValidationError

from kiwi_gw.api import ConfigSection, Diagnostic, PluginContext, Section
from kiwi_gw.config.address import clash
from kiwi_gw.config.check import check
from kiwi_gw.config.document import Document, DocumentLocations, dotted, read
from kiwi_gw.config.error_wording import describe
from kiwi_gw.config.overrides import override
from kiwi_gw.config.schema import CoreSettings, Settings
from kiwi_gw.config.secret_files import read_secret_files
from kiwi_gw.config.selection import PluginSelection, named, select
from kiwi_gw.config.server import ServerSettings
from kiwi_gw.config.sources import SourceSettingsReader
from kiwi_gw.config.substitution import Substitution
from kiwi_gw.errors import ConfigError, Problem
from kiwi_gw.plugin_manager import PluginManager, missing_extra


@dataclass(frozen=True, slots=True)
class LoadedConfig:
    """Hold a valid configuration with the plugins it needs, and no others.

    text_hash: SHA-256 of the file's text. files: what was read besides it (secrets): if one of them
    changes, the configuration may have changed. places: where everything in it stands.
    """

    settings: Settings
    plugins: PluginManager
    path: Path
    text_hash: str
    files: tuple[Path, ...] = ()
    environ: Mapping[str, str] = field(default_factory=dict, repr=False)
    places: DocumentLocations | None = field(default=None, repr=False, compare=False)

    def context(self, worker: int = 0, workers: int = 1) -> PluginContext:
        """Return what plugins get of this configuration in one of the `workers` processes that run it."""
        found = self.settings.sources.values()
        protocols = [
            (kind, self.settings.dialects[name]) for name, kind in self.plugins.dialect_types().items()
        ]
        groups = {
            source.id: [
                begins
                for kind, settings in protocols
                if (begins := kind.groups(settings, source.id, source.blocks)) is not None
            ]
            for source in found
        }
        return PluginContext(
            MappingProxyType({**self.settings.sections, **self.settings.dialects}),
            self.settings.name,
            MappingProxyType({source.id: source.settings for source in found}),
            worker,
            workers,
            MappingProxyType({source.id: source.blocks for source in found}),
            self.settings.written,
            frozenset(column for kind, settings in protocols for column in kind.columns(settings)),
            MappingProxyType({source_id: begins for source_id, begins in groups.items() if begins}),
        )

    def place(self, finding: Diagnostic) -> tuple[str, int] | None:
        """Return the file and the line that a finding is about; None where it is about no place."""
        if not finding.where or self.places is None:
            return None
        return self.places.of(self._path(finding), finding.line)

    def problem(self, finding: Diagnostic) -> Problem:
        """Return a diagnostic as a mistake in the file."""
        file, line = self.place(finding) or (str(self.path), 0)
        return Problem(file, line, dotted(self._path(finding)), finding.message)

    def _path(self, finding: Diagnostic) -> tuple[str | int, ...]:
        """Return where it stands: a finding names a source by its id."""
        where = finding.where
        if len(where) > 1 and where[0] == "sources" and isinstance(where[1], str):
            ids = list(self.settings.sources)
            return ("sources", ids.index(where[1]), *where[2:]) if where[1] in ids else ("sources",)
        return tuple(where)


def load(
    path: str | os.PathLike[str],
    environ: Mapping[str, str] = os.environ,
    known: PluginManager | None = None,
) -> LoadedConfig:
    """Read a configuration file. Raises ConfigError with every problem, sorted by line. The only I/O is
    reading files.

    known: plugins that are taken from there where the file names them, not imported (as tests do).
    """
    return _load(Path(path), environ, PluginManager(known))


def load_again(previous: LoadedConfig) -> LoadedConfig:
    """Read it again, for a reload. `previous` stays as it is, whatever happens.

    The result has a plugin manager of its own, in which the plugins that were loaded before are the same
    objects: code that changed meanwhile is not imported again. Raises ConfigError as `load` does.
    """
    return _load(previous.path, previous.environ, PluginManager(known=previous.plugins))


def _load(path: Path, environ: Mapping[str, str], plugins: PluginManager) -> LoadedConfig:
    try:
        text = path.read_bytes().decode("utf-8-sig")
    except OSError as error:
        problem = Problem(str(path), 0, "", f"cannot be read: {error.strerror}")
        raise ConfigError((problem,), unreadable=True) from error
    except UnicodeDecodeError as error:
        problem = Problem(str(path), 0, "", f"is not UTF-8 text (byte {error.start})")
        raise ConfigError((problem,)) from error
    files = Substitution(environ)
    document = read(text, str(path), files.expand)
    settings = (
        _settings(document, environ, plugins, files) if not document.problems or document.data else None
    )
    if settings is None or document.problems:
        problems = dict.fromkeys(document.problems)
        ordered = tuple(sorted(problems, key=lambda item: (not item.line, item.line, item.path)))
        raise ConfigError(ordered, unreadable=files.unreadable)
    digest = hashlib.sha256(text.encode()).hexdigest()
    return LoadedConfig(settings, plugins, path, digest, tuple(files.files), environ, document.places)


def _settings(
    document: Document, environ: Mapping[str, str], plugins: PluginManager, files: Substitution
) -> Settings | None:
    if document.data is None:
        document.complain(
            (), "is empty: a gateway needs `sources`; `kiwi-gw config init` prints a file to start from"
        )
        return None
    if not isinstance(document.data, dict):
        document.complain((), f"must be a mapping of keys, not {describe(document.data, False)}")
        return None
    override(document, environ, plugins.dialect_types())
    data = document.data
    for key, value in data.items():
        if value is None and key not in ("sources", "name", "plugins"):
            data[key] = {}  # a section of which everything is commented out
    selection = select(document, data, plugins)
    own = {key: value for key, value in data.items() if key in CoreSettings.model_fields}
    core = check(CoreSettings, own, (), document)
    basis = core or CoreSettings()
    _refuse_clashes(basis.server, document)
    blocks = plugins.source_blocks()
    reader = SourceSettingsReader(document, selection.types, files, basis.subscriber, basis.window, blocks)
    sources = reader.read(data.get("sources"))
    sections = _sections(document, data, selection, files)
    sections.update(_defaults(document, data, selection, plugins, reader.needed))
    if core is None or document.problems:
        return None
    dialects = plugins.dialect_types()
    return Settings(
        name=core.name,
        plugins=plugins.names,
        server=core.server,
        subscriber=core.subscriber,
        window=core.window,
        logging=core.logging,
        metrics=core.metrics,
        sources=MappingProxyType(sources),
        sections=MappingProxyType({key: value for key, value in sections.items() if key not in dialects}),
        dialects=MappingProxyType({key: value for key, value in sections.items() if key in dialects}),
        written=frozenset(key for key in sections if key in data),
    )


def _refuse_clashes(server: ServerSettings, document: Document) -> None:
    """Report addresses of which only one could be listened on. (The default admin address may be missing.)"""
    taken = list(server.addresses)
    for index, address in enumerate(taken):
        for before in taken[:index]:
            if clash(before, address):
                words = f"{address} cannot be listened on beside {before}"
                document.complain(("server", "address", index), words)
    for address in taken:
        if server.admin_wanted and server.admin is not None and clash(address, server.admin):
            words = f"{server.admin} cannot be listened on beside server.address {address}"
            document.complain(("server", "admin_address"), words)
    if server.admin is not None and server.admin_wanted:
        taken.append(server.admin)
    for own in (own for worker in range(server.workers) for own in server.worker_addresses(worker)):
        if any(clash(own, address) for address in taken):
            words = f"a worker cannot listen on {own}: it is taken by another address of the gateway"
            document.complain(("server", "worker_port"), words)


def _sections(
    document: Document, data: Mapping[str, object], selection: PluginSelection, files: Substitution
) -> dict[str, Section]:
    """Check the sections that the file has."""
    found: dict[str, Section] = {}
    for name, section in selection.sections.items():
        if name in data:
            read_secret_files(section.settings, data[name], (name,), document, files)
            settings = check(section.settings, data[name], (name,), document)
            if settings is not None:
                found[name] = settings
    return found


def _defaults(
    document: Document,
    data: Mapping[str, object],
    selection: PluginSelection,
    plugins: PluginManager,
    needed: Mapping[str, Mapping[str, tuple[str | int, ...]]],
) -> dict[str, Section]:
    """Make the sections that the file does not have of their defaults. needed: as in
    `SourceSettingsReader`."""
    found: dict[str, Section] = {}
    for name, section in selection.sections.items():
        if name in data:
            continue
        default = _default(section)
        if default is not None:
            found[name] = default
            continue
        for used, where in needed.get(name, {}).items():
            document.complain((*where, "type"), f"source type {used!r} needs the section {name!r}")
        for index, plugin in named(data):
            if name in plugins.config_sections(plugin):
                document.complain(("plugins", index), f"plugin {plugin!r} needs the section {name!r}")
    for name in needed.keys() - selection.sections.keys():
        # No loaded plugin declares it: the file does not have it, or its plugin lacks something.
        requirement = missing_extra(name)
        more = f", and that: pip install '{requirement}'" if requirement is not None else ""
        for used, where in needed[name].items():
            document.complain((*where, "type"), f"source type {used!r} needs the section {name!r}{more}")
    return found


def _default(section: ConfigSection) -> Section | None:
    if section.required:
        return None
    try:
        return section.settings()
    except ValidationError:
        return None
