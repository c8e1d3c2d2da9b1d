"""The tables of keys in docs/reference/configuration.md, made from the JSON Schema.

`python -m tests.config_reference` writes the schema and the tables anew;
`tests/unit/config/test_schema_files.py` says when to.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kiwi_gw.config.difference import NEEDS_RESTART
from kiwi_gw.config.json_schema import json_schema, text
from kiwi_gw.plugin_manager import PluginManager, shipped
from tests.doc_blocks import rewrite

ROOT = Path(__file__).parent.parent
SCHEMA, PAGE = ROOT / "config" / "kiwi-gw.schema.json", ROOT / "docs" / "reference" / "configuration.md"
PART = "keys"

_ORDER = (
    "name",
    "plugins",
    "sources",
    "server",
    "subscriber",
    "window",
    "logging",
    "metrics",
)
"""The gateway's own top-level keys. Those of protocols come behind them, then those of other plugins."""
_DEFINITIONS = "#/definitions/"
_UNITS = (("GiB", 1024**3), ("MiB", 1024**2), ("KiB", 1024))

Schema = dict[str, Any]


def tables(schema: Schema, plugins: PluginManager) -> str:
    """One table per top-level key, and one per source type. schema: of files that use these plugins."""
    return _Tables(schema, tuple(plugins.dialect_types()), tuple(plugins.source_blocks())).text()


@dataclass(frozen=True, slots=True)
class _Tables:
    """dialects: names of protocols, which have sections; blocks: of those that have a block in sources."""

    schema: Schema
    dialects: tuple[str, ...]
    blocks: tuple[str, ...]

    def text(self) -> str:
        properties: Schema = self.schema["properties"]
        order = (*_ORDER, *self.dialects)
        simple = [name for name in order if name in properties and not _model(properties[name], self.schema)]
        rows = [self._row(name, properties[name], False) for name in simple if name != "sources"]
        parts = ["### Top level\n", _table(rows)]
        found: dict[str, Schema] = {}
        for item in properties["sources"]["items"].get("allOf", ()):
            kind = item["if"]["properties"]["type"]["const"]
            model = _resolve(item["then"], self.schema)
            parts += [f"\n### A source of type `{kind}`\n", _table(list(self._rows("", model)))]
            found |= {name: model["properties"][name] for name in self.blocks}
        for name, block in found.items():
            parts += self._section(f"`{name}` of a source", f"sources[].{name}", block)
        own = [name for name in order if name not in simple]
        for name in [*own, *(name for name in properties if name not in order)]:
            parts += self._section(f"`{name}`", name, properties[name])
        return "\n".join(parts)

    def _section(self, title: str, prefix: str, value: Schema) -> list[str]:
        model = _model(value, self.schema)
        if model is None:
            return []
        return [f"\n### {title}\n", _summary(model) + "\n", _table(list(self._rows(prefix, model)))]

    def _rows(self, prefix: str, model: Schema) -> Iterator[str]:
        required = [*model.get("required", ())]
        for choice in model.get("allOf", ()):
            required += [key for option in choice.get("oneOf", ()) for key in option["required"][:1]][:1]
        properties: Schema = model["properties"]
        for name, value in properties.items():
            twin = name.removesuffix("_file")
            if twin != name and twin in properties and value.get("description", "").endswith(f" {twin}."):
                continue  # said once, for all of them
            key = f"{prefix}.{name}" if prefix else name
            inner = _model(value, self.schema)
            if not prefix and name in self.blocks:
                yield f"| `{name}` | mapping | | What it is in that protocol; see `sources[].{name}` below. |"
            elif not prefix and name in ("subscriber", "window"):
                yield f"| `{name}` | mapping | | What holds for this source only; see `{name}` below. |"
            elif inner is not None and "properties" in inner:
                if not _is_only_a_mapping(value):
                    yield self._row(key, value, name in required)
                yield from self._rows(key, inner)
            else:
                yield self._row(key, value, name in required)
                for suffix, item in _contained(value, self.schema):
                    yield from self._rows(key + suffix, item)

    def _row(self, key: str, value: Schema, required: bool) -> str:
        meaning = " ".join(value.get("description", "").split()).replace("|", "\\|")
        later = (*NEEDS_RESTART, *self.dialects)
        if key in later or key.split(".")[0] in later:
            meaning += " *(restart)*"
        default = "**required**" if required else _default(value)
        return f"| `{key}` | {_words(value)} | {default} | {meaning} |"


def _table(rows: list[str]) -> str:
    return "\n".join(["| key | value | default | meaning |", "|---|---|---|---|", *rows])


def _default(value: Schema) -> str:
    if "default" not in value or value["default"] in (None, [], {}):
        return ""
    default = value["default"]
    if isinstance(default, dict):
        return ""  # the rows of its members say it
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


def _is_only_a_mapping(value: Schema) -> bool:
    """Whether there is always a mapping, with defaults of its own: no word stands for it, nor null."""
    return not any(item.get("type") == "null" or "enum" in item for item in value.get("anyOf", ()))


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


def write() -> None:
    """Write the schema and the tables."""
    plugins = shipped()
    schema = json_schema(plugins)
    SCHEMA.write_text(text(schema), encoding="utf-8")
    rewrite(PAGE, PART, tables(schema, plugins))


if __name__ == "__main__":
    write()
