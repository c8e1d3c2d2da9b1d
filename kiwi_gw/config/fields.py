"""What the models of the configuration say about a place in the data: its keys, whether it is secret."""

from __future__ import annotations

import types
from collections.abc import Iterator, Mapping
from typing import Annotated, Union, get_args, get_origin

from pydantic import BaseModel, SecretBytes, SecretStr
from pydantic.fields import FieldInfo

from kiwi_gw.api.settings import field_docstrings
from kiwi_gw.config.document import Path


def branches(annotation: object) -> Iterator[object]:
    """Yield the types that a value may have: through unions, `Annotated` and aliases, not into containers."""
    aliased = getattr(annotation, "__value__", None)  # a `type` statement, from Python 3.12 on
    if aliased is not None:
        yield from branches(aliased)
    elif get_origin(annotation) is Annotated:
        yield from branches(get_args(annotation)[0])
    elif get_origin(annotation) in (Union, types.UnionType):
        for argument in get_args(annotation):
            yield from branches(argument)
    else:
        yield annotation


def models(annotation: object) -> list[type[BaseModel]]:
    """Return the models that a value may be."""
    return [item for item in branches(annotation) if isinstance(item, type) and issubclass(item, BaseModel)]


def fields(annotation: object) -> dict[str, FieldInfo]:
    """Return the fields that a value may have, by the key in the file."""
    return {
        field.alias or name: field
        for model in models(annotation)
        for name, field in model.model_fields.items()
    }


def description(annotation: object, key: str) -> str | None:
    """Return what the field of that key in the file is for, where its model says so."""
    for model in models(annotation):
        for name, field in model.model_fields.items():
            if key == (field.alias or name):
                return field.description or field_docstrings(model).get(name)
    return None


def is_secret(annotation: object) -> bool:
    return any(item in (SecretStr, SecretBytes) for item in branches(annotation))


def hides_input(annotation: object) -> bool:
    """Return whether a model asks that errors never quote what it was given."""
    return any(model.model_config.get("hide_input_in_errors") for model in models(annotation))


def step(annotation: object, key: str | int) -> list[object]:
    """Return what may stand under `key` of a value with that annotation."""
    found: list[object] = []
    if isinstance(key, str) and key in (known := fields(annotation)):
        found.append(known[key].annotation)
    for item in branches(annotation):
        origin, arguments = get_origin(item), get_args(item)
        if not isinstance(origin, type) or not arguments:
            continue
        if issubclass(origin, Mapping):
            if isinstance(key, str) and len(arguments) == 2:
                found.append(arguments[1])
        elif isinstance(key, int):
            found.extend(argument for argument in arguments if argument is not Ellipsis)
    return found


def at(annotation: object, path: Path) -> list[object]:
    """Return what may stand at `path` below a value with that annotation; empty if nothing is known."""
    here = [annotation]
    for key in path:
        here = [following for item in here for following in step(item, key)]
    return here


def secret_at(annotation: object, path: Path) -> bool:
    """Return whether the value at `path` must not be shown: it, or something around it, is secret."""
    for length in range(len(path) + 1):
        for item in at(annotation, path[:length]):
            if is_secret(item) or hides_input(item):
                return True
    return False
