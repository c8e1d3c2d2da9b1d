"""The JSON Schema (draft-07) of the configuration file, for editors and CI.

It describes the file as it is written: every value that is not text may also be a `${...}`, secrets may be
given as `*_file`, and the sections of plugins are part of it.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator, Mapping
from typing import Any

from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

from kiwi_gw.config.schema import SHARED_BY_ALL_SOURCES, CoreSettings, SubscriberSettings, WindowSettings
from kiwi_gw.config.secret_files import SUFFIX
from kiwi_gw.plugin_manager import PluginManager

_DRAFT = "http://json-schema.org/draft-07/schema#"
_SUBSTITUTED = {"type": "string", "pattern": r"\$\{"}
_DEFINITIONS = "#/definitions/"

Schema = dict[str, Any]


def json_schema(plugins: PluginManager) -> Schema:
    """Return the schema of files that use these plugins. Raise PluginError if they contradict each other."""
    types, sections, blocks = plugins.source_types(), plugins.config_sections(), plugins.source_blocks()
    known: list[type[BaseModel]] = [CoreSettings, SubscriberSettings, WindowSettings, *blocks.values()]
    known += [item.settings for item in types.values()]
    known += [item.settings for item in sections.values()]
    references, generated = models_json_schema(
        [(model, "validation") for model in dict.fromkeys(known)], ref_template=_DEFINITIONS + "{model}"
    )
    definitions: Schema = generated.get("$defs", {})

    def definition(model: Any) -> str:
        reference: str = references[model, "validation"]["$ref"]
        return reference.removeprefix(_DEFINITIONS)

    own_window = copy.deepcopy(definitions[definition(WindowSettings)])
    for key in SHARED_BY_ALL_SOURCES:
        del own_window["properties"][key]
    own_window["description"] = "The recent events of this source that are kept in memory."
    definitions["SourceWindow"] = own_window
    names: dict[str, str] = {}
    for name, item in types.items():
        names[name] = _source_definition(
            f"{name}_source",
            definitions,
            definition(item.settings),
            item.describe is None,
            {key: definition(block) for key, block in blocks.items()},
        )
    core = definitions.pop(definition(CoreSettings))
    core["properties"] |= {name: _reference(definition(item.settings)) for name, item in sections.items()}
    core["properties"]["sources"] = {
        "description": "What clients can subscribe to.",
        "type": "array",
        "items": _source_items(names),
    }
    enums = {name: item for name, item in definitions.items() if "enum" in item}
    for name in enums:
        del definitions[name]
    for schema in (core, *definitions.values()):
        _finish(schema, enums)
    for name, schema in core["properties"].items():
        choices = [schema] if "$ref" in schema else schema.get("allOf")
        if choices is not None:  # null: a section of which everything is commented out
            rest = {key: value for key, value in schema.items() if key not in ("$ref", "allOf")}
            core["properties"][name] = {**rest, "anyOf": [*choices, {"type": "null"}]}
    core |= {
        "$schema": _DRAFT,
        "title": "Configuration of kiwi-gw",
        "patternProperties": {"^x-": {"description": "Ignored: a place for anchors."}},
        "definitions": dict(sorted(definitions.items())),
    }
    core.pop("description", None)
    core["properties"] = dict(sorted(core["properties"].items()))
    return dict(sorted(core.items()))


def text(schema: Schema) -> str:
    """Return the schema as it is committed."""
    return json.dumps(schema, indent=2, ensure_ascii=False) + "\n"


def _reference(name: str) -> Schema:
    return {"$ref": _DEFINITIONS + name}


def _source_definition(
    name: str, definitions: Schema, model: str, id_needed: bool, blocks: Mapping[str, str]
) -> str:
    """Add the model of a source type with the keys that every source may have; return its name."""
    schema = copy.deepcopy(definitions[model])
    properties = schema["properties"]
    if "id" not in properties:
        properties["id"] = {"type": "string", "description": "The name under which clients subscribe."}
        if id_needed:
            schema.setdefault("required", []).append("id")
    properties.setdefault("subscriber", _reference("SubscriberSettings"))
    properties.setdefault("window", _reference("SourceWindow"))
    for key, block in blocks.items():
        properties.setdefault(key, _reference(block))
    definitions[name] = schema
    return name


def _source_items(names: dict[str, str]) -> Schema:
    if not names:
        return {"type": "object", "required": ["type"]}
    return {
        "type": "object",
        "required": ["type"],
        "properties": {"type": {"enum": sorted(names)}},
        "allOf": [
            {"if": {"properties": {"type": {"const": kind}}, "required": ["type"]}, "then": _reference(name)}
            for kind, name in sorted(names.items())
        ],
    }


def _finish(schema: Schema, enums: Schema) -> None:
    """Turn what pydantic writes into draft-07 for files as people write them, in place."""
    schema.pop("title", None)
    if (enum := enums.get(schema.get("$ref", "").removeprefix(_DEFINITIONS))) is not None:
        del schema["$ref"]  # a list of words is clearer where it is used
        schema.update({key: value for key, value in enum.items() if key != "title"})
    for bound, name in (("ge", "minimum"), ("le", "maximum")):
        if bound in schema:  # of a duration or a size, which pydantic leaves to its own validator
            for part in schema.get("anyOf", ()):
                if part.get("type") == "integer":
                    part[name] = schema[bound]
            del schema[bound]
    if "prefixItems" in schema:
        schema["items"] = schema.pop("prefixItems")
        schema["additionalItems"] = False
        schema.pop("maxItems", None)
    schema.pop("discriminator", None)
    for part in list(_parts(schema)):
        _finish(part, enums)
    if "anyOf" in schema:  # a duration that may be null is a choice within a choice
        schema["anyOf"] = [
            one for part in schema["anyOf"] for one in (part["anyOf"] if set(part) == {"anyOf"} else [part])
        ]
    if "properties" in schema:
        _allow_secret_files(schema)
        for key, value in schema["properties"].items():
            schema["properties"][key] = _allow_substitution(value)
    if "$ref" in schema and len(schema) > 1:
        # Draft-07 ignores everything beside $ref.
        schema["allOf"] = [{"$ref": schema.pop("$ref")}]
        schema.pop("default", None)
    if isinstance(schema.get("items"), dict):
        schema["items"] = _allow_substitution(schema["items"])


def _parts(schema: Schema) -> Iterator[Schema]:
    for key in ("properties", "patternProperties"):
        yield from schema.get(key, {}).values()
    for key in ("anyOf", "oneOf", "allOf"):
        yield from schema.get(key, ())
    for key in ("items", "additionalProperties"):
        value = schema.get(key)
        if isinstance(value, dict):
            yield value
        elif isinstance(value, list):
            yield from value


def _is_secret(schema: Schema) -> bool:
    return bool(schema.get("writeOnly")) or any(_is_secret(part) for part in schema.get("anyOf", ()))


def _allow_secret_files(schema: Schema) -> None:
    properties: Schema = schema["properties"]
    for name, value in list(properties.items()):
        twin = name + SUFFIX
        if not _is_secret(value) or twin in properties:
            continue
        properties[twin] = {"type": "string", "description": f"Path of a file that holds {name}."}
        required = schema.get("required", [])
        if name in required:
            required.remove(name)
            choice: Schema = {"oneOf": [{"required": [name]}, {"required": [twin]}]}
        else:
            choice = {"not": {"required": [name, twin]}}
        schema.setdefault("allOf", []).append(choice)
        if not required:
            schema.pop("required", None)


def _allow_substitution(schema: Schema) -> Schema:
    """Allow a text with `${` in place of a value that is not free text."""
    if "const" in schema or "$ref" in schema:
        return schema
    described: Schema = {key: schema[key] for key in ("description", "default") if key in schema}
    bare = {key: value for key, value in schema.items() if key not in described}
    branches = bare["anyOf"] if set(bare) == {"anyOf"} else [bare]
    if any(_is_free_text(branch) for branch in branches) or not any(map(_is_scalar, branches)):
        return schema
    return {**described, "anyOf": [*branches, _SUBSTITUTED]}


def _is_free_text(schema: Schema) -> bool:
    narrow = ("enum", "pattern", "minLength", "maxLength", "const")
    return schema.get("type") == "string" and not any(key in schema for key in narrow)


def _is_scalar(schema: Schema) -> bool:
    return schema.get("type") in ("integer", "number", "boolean", "string") or "enum" in schema
