"""The `sources` of a configuration."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import TypeVar

from kiwi_gw.api import Section, SourceDescription, SourceType
from kiwi_gw.config.check import check
from kiwi_gw.config.dependencies import check_dependencies
from kiwi_gw.config.document import Document, Path
from kiwi_gw.config.error_wording import describe
from kiwi_gw.config.schema import SHARED_BY_ALL_SOURCES, SourceSettings, SubscriberSettings, WindowSettings
from kiwi_gw.config.secret_files import read_secret_files
from kiwi_gw.config.substitution import Substitution
from kiwi_gw.model import OverflowPolicy

A = TypeVar("A")
S = TypeVar("S", bound=Section)

COMMON = ("id", "subscriber", "window")
"""Keys that every source may have without its type declaring them, besides the blocks of protocols."""

_LONGEST_ID = 255  # bytes


class SourceSettingsReader:
    """Make `SourceSettings` of the items of `sources`; what is wrong becomes problems of the document.

    blocks: what a source may say to single protocols, by key. needed: names of sections that sources read,
    with the types that do and the first source of each.
    """

    def __init__(
        self,
        document: Document,
        types: Mapping[str, SourceType],
        files: Substitution,
        subscriber: SubscriberSettings,
        window: WindowSettings,
        blocks: Mapping[str, type[Section]],
    ) -> None:
        self._document = document
        self._types = types
        self._files = files
        self._subscriber = subscriber
        self._window = window
        self._blocks = blocks
        self._common = (*COMMON, *blocks)
        self._lines: dict[str, int] = {}
        self._unnamed = False
        self._depends: dict[str, tuple[Path, tuple[str, ...]]] = {}
        self._places: dict[str, Path] = {}
        self.needed: dict[str, dict[str, Path]] = {}

    def read(self, items: object) -> dict[str, SourceSettings]:
        """Return the settings of the sources by id, in the order of the file."""
        if items is None:
            return {}
        if not isinstance(items, list):
            self._document.complain(("sources",), f"must be a list, not {describe(items, False)}")
            return {}
        found: dict[str, SourceSettings] = {}
        for index, item in enumerate(items):
            source = self._source(item, ("sources", index))
            if source is not None:
                found.setdefault(source.id, source)
                self._places.setdefault(source.id, ("sources", index))
        # While an id is unknown because something else is wrong, no other can be called missing.
        check_dependencies(self._depends, None if self._unnamed else self._lines, self._document)
        settings = {source_id: source.settings for source_id, source in found.items()}
        for source in found.values():
            self._validate(source, settings)
        return found

    def _validate(self, source: SourceSettings, others: Mapping[str, Section]) -> None:
        """Report what its type says against it beside the others."""
        validate, where = self._types[source.type].validate, self._places[source.id]
        if validate is None:
            return
        for path, message in (self._ask(where, validate, source.settings, others) or {}).items():
            self._document.complain((*where, *path), message)

    def _source(self, item: object, where: Path) -> SourceSettings | None:
        if not isinstance(item, dict):
            self._document.complain(where, f"must be a mapping, not {describe(item, False)}")
            return None
        name = item.get("type")
        if not isinstance(name, str):
            wrong = f"must be text, not {describe(name, False)}" if "type" in item else "is missing"
            # Types are not listed here: plugins that no source of the file needs were not asked.
            self._document.complain((*where, "type"), f"{wrong}; `kiwi-gw plugins` lists the types")
            return None
        kind = self._types.get(name)
        if kind is None:  # reported when its plugin was looked for
            if item.get("id") is not None:
                self._identify(item["id"], where, item)
            return None
        own_keys = {field.alias or key for key, field in kind.settings.model_fields.items()}
        own = {key: value for key, value in item.items() if key in own_keys or key not in self._common}
        read_secret_files(kind.settings, own, where, self._document, self._files)
        settings = check(kind.settings, own, where, self._document, self._common)
        subscriber, window = self._subscriber, self._window
        if "subscriber" not in own_keys:
            subscriber = self._on_top(subscriber, item.get("subscriber"), (*where, "subscriber"))
        if "window" not in own_keys:
            window = self._window_of(item, where)
        blocks = self._blocks_of(item, where, own_keys)
        # None if its settings are wrong, or its plugin fails.
        description = None if settings is None else self._ask(where, kind.description_of, settings)
        source_id = self._id(kind, item, settings, description, where)
        self._unnamed = self._unnamed or source_id is None
        if settings is None or description is not None:
            self._check(kind, description, subscriber, source_id, where)
        if settings is None or source_id is None:
            return None
        if getattr(settings, "id", "") is None:
            # As if it were in the file, so that adding it there changes nothing.
            settings = settings.model_copy(update={"id": source_id})
        line = self._document.lines.get(where, 0)
        return SourceSettings(source_id, name, settings, subscriber, window, line, blocks)

    def _ask(self, where: Path, ask: Callable[..., A], *of: object) -> A | None:
        """Call a plugin's function; None if it fails."""
        try:
            return ask(*of)
        except Exception as error:  # noqa: BLE001  (the user needs the line)
            wrong = f"cannot be checked: {type(error).__name__} in the plugin that reads it"
            self._document.spoil(where, wrong)
            return None

    def _check(
        self,
        kind: SourceType,
        description: SourceDescription | None,
        subscriber: SubscriberSettings,
        source_id: str | None,
        where: Path,
    ) -> None:
        """Check whether it can be read again, and note what it reads and which sources it depends on. If its
        settings are wrong, only what all of its type have in common is checked."""
        if source_id is not None and description is not None and description.depends:
            self._depends[source_id] = (where, tuple(description.depends))
        if description is None:
            description = kind.common_description
            replayable = description.replayable if kind.describe is None else None
        else:
            replayable = description.replayable
        here, everywhere = subscriber.overflow, self._subscriber.overflow
        if here is OverflowPolicy.REPLAY and here is not everywhere and replayable is False:
            same = kind.describe is None
            message = f"sources of type {kind.name!r}{'' if same else ' like this one'} cannot be read again"
            self._document.complain((*where, "subscriber", "overflow"), message)
        for section in description.sections:
            self.needed.setdefault(section, {}).setdefault(kind.name, where)

    def _on_top(self, general: S, given: object, place: Path) -> S:
        """Return the general settings with those of the source on top."""
        own = check(type(general), given, place, self._document)
        if own is None:
            return general
        return general.model_copy(update={key: getattr(own, key) for key in own.model_fields_set})

    def _blocks_of(
        self, item: Mapping[str, object], where: Path, own_keys: Collection[str]
    ) -> Mapping[str, Section]:
        """Return what it says to single protocols, with the defaults where it says nothing."""
        found = {
            name: check(model, item.get(name), (*where, name), self._document)
            for name, model in self._blocks.items()
            if name not in own_keys
        }
        return {name: block for name, block in found.items() if block is not None}

    def _window_of(self, item: Mapping[str, object], where: Path) -> WindowSettings:
        place = (*where, "window")
        given = item.get("window")
        if isinstance(given, dict):
            for key in SHARED_BY_ALL_SOURCES:
                if key in given:
                    message = "is for all sources together; it belongs in the top-level 'window'"
                    self._document.spoil((*place, key), message)
            given = given | {key: getattr(self._window, key) for key in SHARED_BY_ALL_SOURCES}
        return self._on_top(self._window, given, place)

    def _id(
        self,
        kind: SourceType,
        item: Mapping[str, object],
        settings: Section | None,
        description: SourceDescription | None,
        where: Path,
    ) -> str | None:
        declared = "id" in kind.settings.model_fields
        given = getattr(settings, "id", None) if declared and settings is not None else item.get("id")
        if given is not None:
            return self._identify(given, where, item, quiet=declared)
        if description is not None and description.id is not None:
            return self._identify(description.id, where, item)
        if not declared and (description is not None or kind.describe is None):
            self._document.complain((*where, "id"), "is missing: the name under which clients subscribe")
        return None

    def _identify(
        self, source_id: object, where: Path, item: Mapping[str, object], quiet: bool = False
    ) -> str | None:
        """Take the id, if it is one and no other source has it. quiet: its type has been checked already."""
        place = (*where, "id") if item.get("id") is not None else where
        text = source_id if isinstance(source_id, str) else self._document.texts.get(place, source_id)
        if not isinstance(text, str):
            if not quiet:
                wrong = f"must be text, not {describe(source_id, False)} (put it in quotes)"
                self._document.complain(place, wrong)
            return None
        if not text or not text.isprintable() or len(text.encode()) > _LONGEST_ID:
            self._document.complain(place, f"must be 1 to {_LONGEST_ID} bytes of printable text")
            return None
        if text in self._lines:
            message = f"the id {text!r} is also that of the source in line {self._lines[text]}"
            self._document.complain(place, message)
            return None
        self._lines[text] = self._document.lines.get(where, 0)
        return text
