"""The base of every part of the configuration."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Mapping
from functools import cache
from itertools import pairwise
from typing import TYPE_CHECKING

from pydantic import BaseModel, ConfigDict

if TYPE_CHECKING:
    from pydantic import GetJsonSchemaHandler
    from pydantic.json_schema import JsonSchemaValue
    from pydantic_core import CoreSchema


class Section(BaseModel):
    """Base of every part of the configuration: immutable, and an unknown key is an error.

    The docstring below a field is its description in the JSON Schema and in the table of keys.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, validate_default=True)

    @classmethod
    def __get_pydantic_json_schema__(
        cls, core_schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        schema = handler(core_schema)
        properties = handler.resolve_ref_schema(schema).get("properties", {})
        for name, text in field_docstrings(cls).items():
            properties[cls.model_fields[name].alias or name].setdefault("description", text)
        return schema


@cache
def field_docstrings(model: type[BaseModel]) -> Mapping[str, str]:
    """Return the docstrings below the fields of a model, by name.

    They are read from its source when they are asked for: pydantic's `use_attribute_docstrings` reads that
    of every model that is imported, which takes a tenth of the gateway's start.
    """
    found: dict[str, str] = {}
    for base in reversed(model.__mro__):
        if base is Section or not issubclass(base, Section):
            continue
        try:
            source = inspect.getsource(base)
        except (OSError, TypeError):
            continue  # made without a file: nothing describes its fields
        tree = ast.parse(f"if True:\n{source}" if source[0].isspace() else source)
        body = next(node for node in ast.walk(tree) if isinstance(node, ast.ClassDef)).body
        for field, below in pairwise(body):
            match field, below:
                case ast.AnnAssign(target=ast.Name(name)), ast.Expr(ast.Constant(str(text))):
                    found[name] = inspect.cleandoc(text)
    return {name: text for name, text in found.items() if name in model.model_fields}
