"""The tables of keys in `config/README.md`, made from the JSON Schema.

`python -m kiwi_gw.config.reference config` writes the schema and the tables anew; a test says when to.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from kiwi_gw.config.json_schema import json_schema, text
from kiwi_gw.config.live import NEEDS_RESTART
from kiwi_gw.config.schema import BLOCKS
from kiwi_gw.marked import rewrite
from kiwi_gw.plugin_manager import shipped

SCHEMA_FILE, README_FILE, PART = "kiwi-gw.schema.json", "README.md", "keys"

_ORDER = (
    "name",
    "plugins",
    "sources",
    "server",
    "subscriber",
    "window",
    "logging",
    "metrics",
    "kiwi",
    "zetta",
)
_DEFINITIONS = "#/definitions/"
_UNITS = (("GiB", 1024**3), ("MiB", 1024**2), ("KiB", 1024))

Schema = dict[str, Any]


def tables(schema: Schema) -> str:
    """One table per top-level key, and one per source type."""
    properties: Schema = schema["properties"]
    simple = [name for name in _ORDER if name in properties and not _model(properties[name], schema)]
    rows = [_row(name, properties[name], False) for name in simple if name != "sources"]
    parts = ["### Top level\n", _table(rows)]
    for item in properties["sources"]["items"].get("allOf", ()):
        kind = item["if"]["properties"]["type"]["const"]
        model = _resolve(item["then"], schema)
        parts += [f"\n### A source of type `{kind}`\n", _table(list(_rows("", model, schema)))]
    for name, block in BLOCKS.items():
        found = schema["definitions"][block.__name__]
        parts += [f"\n### `{name}` of a source\n", _summary(found) + "\n"]
        parts.append(_table(list(_rows(f"sources[].{name}", found, schema))))
    own = [name for name in _ORDER if name not in simple]
    for name in [*own, *(name for name in properties if name not in _ORDER)]:
        found = _model(properties[name], schema)
        if found is not None:
            parts += [f"\n### `{name}`\n", _summary(found) + "\n"]
            parts.append(_table(list(_rows(name, found, schema))))
    return "\n".join(parts)


def _table(rows: list[str]) -> str:
    return "\n".join(["| key | value | default | meaning |", "|---|---|---|---|", *rows])


def _rows(prefix: str, model: Schema, schema: Schema) -> Iterator[str]:
    required = [*model.get("required", ())]
    for choice in model.get("allOf", ()):
        required += [key for option in choice.get("oneOf", ()) for key in option["required"][:1]][:1]
    properties: Schema = model["properties"]
    for name, value in properties.items():
        twin = name.removesuffix("_file")
        if twin != name and twin in properties and value.get("description", "").endswith(f" {twin}."):
            continue  # said once, for all of them
        key = f"{prefix}.{name}" if prefix else name
        inner = _model(value, schema)
        if not prefix and name in BLOCKS:
            yield f"| `{name}` | mapping | | What it is in that protocol; see `sources[].{name}` below. |"
        elif not prefix and name in ("subscriber", "window"):
            yield f"| `{name}` | mapping | | What holds for this source only; see `{name}` below. |"
        elif inner is not None and "properties" in inner:
            if not _is_plain(value):
                yield _row(key, value, name in required)
            yield from _rows(key, inner, schema)
        else:
            yield _row(key, value, name in required)
            for suffix, item in _contained(value, schema):
                yield from _rows(key + suffix, item, schema)


def _row(key: str, value: Schema, required: bool) -> str:
    meaning = " ".join(value.get("description", "").split()).replace("|", "\\|")
    if key in NEEDS_RESTART or key.split(".")[0] in NEEDS_RESTART:
        meaning += " *(restart)*"
    default = "**required**" if required else _default(value)
    return f"| `{key}` | {_words(value)} | {default} | {meaning} |"


def _default(value: Schema) -> str:
    if "default" not in value or value["default"] in (None, [], {}):
        return ""
    default = value["default"]
    kinds = {_kind(item) for item in value.get("anyOf", [value])}
    if type(default) is int and "size" in kinds:
        for unit, factor in _UNITS:
            if default and default % factor == 0:
                return f"`{default // factor}{unit}`"
    if type(default) is int and "duration" in kinds and default and default % 1000 == 0:
        return f"`{default // 1000}s`"
    return f"`{json.dumps(default) if not isinstance(default, str) else default}`".replace("``", "")


def _words(value: Schema) -> str:
    kinds = dict.fromkeys(kind for item in value.get("anyOf", [value]) if (kind := _kind(item)))
    if "duration" in kinds or "size" in kinds:
        kinds.pop("whole number", None)
    return " or ".join(kinds)


def _kind(item: Schema) -> str:
    if "enum" in item or "const" in item:
        return ", ".join(f"`{word}`" for word in item.get("enum", [item.get("const")]))
    kind = item.get("type")
    pattern = item.get("pattern", "")
    if kind == "null" or pattern == r"\$\{":
        return ""
    if "(ms|" in pattern:
        return "duration"
    if "KiB" in pattern:
        return "size"
    if kind == "array":
        inner = item.get("items", {})
        return f"list of {_words(inner)}" if isinstance(inner, dict) and _words(inner) else "list"
    names = {"integer": "whole number", "number": "number", "boolean": "true, false", "string": "text"}
    return names.get(str(kind), "mapping")


def _is_plain(value: Schema) -> bool:
    """Whether the mapping is always there, with defaults of its own."""
    return not any(item.get("type") == "null" for item in value.get("anyOf", ()))


def _summary(model: Schema) -> str:
    """The first paragraph of its description."""
    description: str = model.get("description", "")
    return " ".join(description.strip().split("\n\n")[0].split())


def _model(value: Schema, schema: Schema) -> Schema | None:
    for item in (value, *value.get("allOf", ()), *value.get("anyOf", ())):
        if "$ref" in item:
            found = _resolve(item, schema)
            return found if "properties" in found else None
    return None


def _contained(value: Schema, schema: Schema) -> Iterator[tuple[str, Schema]]:
    """The models inside a list or a mapping of them."""
    for item in (value, *value.get("anyOf", ())):
        for key, suffix in (("items", "[]"), ("additionalProperties", ".NAME")):
            inner = item.get(key)
            if isinstance(inner, dict) and (model := _model(inner, schema)) is not None:
                yield suffix, model


def _resolve(item: Schema, schema: Schema) -> Schema:
    found: Schema = schema["definitions"][item["$ref"].removeprefix(_DEFINITIONS)]
    return found


def write(folder: Path) -> None:
    """Write the schema and the tables into that folder."""
    schema = json_schema(shipped())
    (folder / SCHEMA_FILE).write_text(text(schema), encoding="utf-8")
    rewrite(folder / README_FILE, PART, tables(schema))


if __name__ == "__main__":
    write(Path(sys.argv[1]))
