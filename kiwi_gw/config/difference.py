"""What a reload changes: which sources, which settings at once, and which only after a restart."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from pydantic import BaseModel

from kiwi_gw.api import SourceType
from kiwi_gw.config.dependencies import closure
from kiwi_gw.config.schema import OWN_SECTIONS, SHARED_BY_ALL_SOURCES, Settings, SourceSettings

NEEDS_RESTART = (
    "name",
    "server.address",
    "server.admin_address",
    "server.unix_mode",
    "server.workers",
    "server.worker_port",
    "server.healthcheck",
    "server.limits.max_message_bytes",
    "server.limits.control_bytes",
    "server.limits.send_bytes",
    "server.limits.unsent_bytes",
    "server.limits.fan_out_slice_ms",
    "server.limits.queries_percent",
    "server.limits.connection_queries_percent",
    "server.limits.query_percent",
    "server.limits.compiling_percent",
    "window.memory_bytes",
    "window.encodings_bytes",
    "window.event_bytes",
    "logging.format",
    "metrics",
)
"""Settings (or whole sections) that keep their old value until the gateway is started again, besides the
sections of protocols. `server.tls` is one of them where TLS is switched on or off; other files are used at
once. Everything else is applied
at once: to new connections where it concerns a connection, to sources by restarting those it alters."""


@dataclass(frozen=True, slots=True)
class ConfigDifference:
    """Hold what changed. added, removed, altered, untouched: ids of sources, each in exactly one of them.

    A source is altered if its settings, or the `subscriber` or `window` values that hold for it, are others.
    It is also altered if a section that it reads has changed, or a source that it depends on is altered or
    new. live, restart_needed: dotted keys that have changed, the sources apart; secrets are only named.
    """

    added: tuple[str, ...]
    removed: tuple[str, ...]
    altered: tuple[str, ...]
    untouched: tuple[str, ...]
    live: tuple[str, ...]
    restart_needed: tuple[str, ...]

    @property
    def empty(self) -> bool:
        return not (self.added or self.removed or self.altered or self.live or self.restart_needed)


def diff(old: Settings, new: Settings, types: Mapping[str, SourceType]) -> ConfigDifference:
    """Compare two configurations. types: the source types of the new one, by name."""
    sections = {
        key for key in {*old.sections, *new.sections} if old.sections.get(key) != new.sections.get(key)
    }
    kept = [key for key in new.sources if key in old.sources]
    added = [key for key in new.sources if key not in old.sources]
    itself = [key for key in kept if _altered(old.sources[key], new.sources[key], types, sections)]
    depends = {
        key: types[source.type].description_of(source.settings).depends
        for key, source in new.sources.items()
        if source.type in types
    }
    dependent = closure(depends, (*itself, *added))
    altered = [key for key in kept if key in itself or key in dependent]
    changed = sorted(_changed(old, new))
    later = [key for key in changed if _needs_restart(key, old, new)]
    return ConfigDifference(
        added=tuple(added),
        removed=tuple(key for key in old.sources if key not in new.sources),
        altered=tuple(altered),
        untouched=tuple(key for key in kept if key not in altered),
        live=tuple(key for key in changed if key not in later),
        restart_needed=tuple(later),
    )


def _altered(
    old: SourceSettings, new: SourceSettings, types: Mapping[str, SourceType], sections: set[str]
) -> bool:
    if old.type != new.type or old.settings != new.settings or old.subscriber != new.subscriber:
        return True
    if old.blocks != new.blocks:
        return True
    # What all sources share is not a setting of this one.
    shared = dict.fromkeys(SHARED_BY_ALL_SOURCES, 0)
    if old.window.model_copy(update=shared) != new.window.model_copy(update=shared):
        return True
    kind = types.get(new.type)
    return kind is not None and not sections.isdisjoint(kind.description_of(new.settings).sections)


def _changed(old: Settings, new: Settings) -> Iterator[str]:
    if old.name != new.name:
        yield "name"
    if set(old.plugins) != set(new.plugins):
        yield "plugins"
    for key in OWN_SECTIONS:
        yield from _leaves(key, getattr(old, key), getattr(new, key))
    for before, after in ((old.sections, new.sections), (old.dialects, new.dialects)):
        for key in {*before, *after}:
            yield from _leaves(key, before.get(key), after.get(key))


def _leaves(name: str, old: object, new: object) -> Iterator[str]:
    if old == new:
        return
    if isinstance(old, BaseModel) and type(old) is type(new):
        for key in type(old).model_fields:
            yield from _leaves(f"{name}.{key}", getattr(old, key), getattr(new, key))
    else:
        yield name


def _needs_restart(key: str, old: Settings, new: Settings) -> bool:
    if key == "server.tls":
        return (old.server.tls is None) != (new.server.tls is None)
    later = (*NEEDS_RESTART, *old.dialects, *new.dialects)
    return any(key == item or key.startswith(f"{item}.") for item in later)
