"""Settings from the environment: `KIWI_GW_SERVER__ADDRESS=0.0.0.0:8000` sets `server.address`.

Two underscores separate the keys, list items are counted from 0 (`KIWI_GW_SOURCES__0__TOPIC`). A value is
read like a plain scalar; one that begins with `[` or `{` like a YAML list or mapping. Names without two
underscores belong to others (an orchestrator sets `KIWI_GW_SERVICE_HOST` and the like), apart from those
in `_SHORT` and those of protocols (`DialectType.environment`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kiwi_gw.config.document import Document, Path, dotted, read, resolve
from kiwi_gw.dialect_api import DialectType

PREFIX = "KIWI_GW_"
_SHORT: Mapping[str, Path] = {"NAME": ("name",), "PLUGINS": ("plugins",)}


def override(
    document: Document, environ: Mapping[str, str], dialects: Mapping[str, DialectType[Any]]
) -> None:
    """Put settings of the environment over those of the file. dialects: by name, those that are known before
    the file is read."""
    short = dict(_SHORT)
    for name, dialect in dialects.items():
        short.update({variable: (name, key) for variable, key in dialect.environment.items()})
    seen: dict[Path, str] = {}
    for name in sorted(environ):
        path = _path(name, short)
        if path is None:
            continue
        if path in seen:
            document.origins[path] = name
            document.spoil(path, f"is also set by {seen[path]}; keep one of them")
            continue
        seen[path] = name
        _set(document, path, name, environ[name])


def _path(name: str, short: Mapping[str, Path]) -> Path | None:
    if not name.startswith(PREFIX):
        return None
    rest = name.removeprefix(PREFIX)
    if rest in short:
        return short[rest]
    parts = rest.lower().split("__")
    if len(parts) < 2 or not all(parts):
        return None
    return tuple(parts)


def _set(document: Document, path: Path, name: str, text: str) -> None:
    if not isinstance(document.data, dict):
        return  # reported by the loader: the file is not a mapping
    here: object = document.data
    place: list[str | int] = []
    for position, part in enumerate(path):
        last = position == len(path) - 1
        if isinstance(here, list) and isinstance(part, str) and part.isdigit() and int(part) < len(here):
            key: int | str = int(part)
        elif isinstance(here, dict):
            key = part
        else:
            document.origins[tuple(place)] = name
            document.complain(tuple(place), f"is not a mapping that could hold {path[position]!r}")
            return
        place.append(key)
        if last:
            here[key] = _value(text)  # type: ignore[index]  # key fits the container, see above
        elif _child(here, key) is None:
            here[key] = {}  # type: ignore[index]
            document.origins.setdefault(tuple(place), name)
        here = _child(here, key)
    where = tuple(place)
    document.origins[where] = name
    document.texts[where] = text
    document.broken.discard(where)
    document.problems = [item for item in document.problems if item.path != dotted(where)]


def _child(container: object, key: str | int) -> object:
    if isinstance(container, dict):
        return container.get(key)
    return container[key] if isinstance(container, list) and isinstance(key, int) else None


def _value(text: str) -> object:
    if text.startswith(("[", "{")):
        parsed = read(text, "", lambda scalar: scalar)
        if not parsed.problems:
            return parsed.data
    return resolve(text)
