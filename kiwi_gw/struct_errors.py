"""Describe what is wrong with JSON that does not fit a struct: which member, and what it must be.

The words are the descriptions of the members' types (`Annotated[int, Meta(description="..")]`), which JSON
Schema and OpenAPI show, too.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any, TypeVar, get_args

import msgspec
from msgspec import Meta, Struct, UnsetType

T = TypeVar("T")

_PATH = re.compile(r"`\$((?:\.\w+)*)[^`]*`\Z")
_VALUE = re.compile(r"Invalid (?:enum )?value .*(?= - at `)", re.DOTALL)
_UNKNOWN = re.compile(r"unknown field `.*", re.DOTALL)
_MISSING = re.compile(r"Object missing required field `(\w+)`")


def given(value: T | UnsetType) -> T | None:
    """Return the value of a member; None: it is absent."""
    return None if isinstance(value, UnsetType) else value


def wrong_member(error: msgspec.ValidationError) -> str:
    """Return the path of the member that is wrong or missing (`from.offsets`); empty: the whole text is."""
    words = str(error)
    path, missing = _PATH.search(words), _MISSING.match(words)
    names = path[1].split(".")[1:] if path else []
    return ".".join([*names, missing[1]] if missing else names)


def sentence(error: msgspec.ValidationError, kind: type[Struct]) -> str:
    """Say which member of a struct is wrong, and what it must be: `n must be an integer from 1 to 5`. If its
    type has no description, msgspec's words are used, without the sent value or the name of an unknown
    member."""
    name, known = wrong_member(error), descriptions(kind)
    while name and name not in known:
        name = name.rpartition(".")[0]
    if name:
        return f"{name} must be {known[name]}"
    return _UNKNOWN.sub("unknown field", _VALUE.sub("Invalid value", str(error)))


@cache
def descriptions(kind: type[Struct]) -> Mapping[str, str]:
    """Return what the members of a struct must be, by their paths, as far as that is described."""
    return dict(_described(kind, ""))


def _described(kind: type[Struct], prefix: str) -> Iterator[tuple[str, str]]:
    for field in msgspec.structs.fields(kind):
        path = prefix + field.encode_name
        for part in _parts(field.type):
            if isinstance(part, Meta) and part.description is not None:
                yield path, part.description
            elif isinstance(part, type) and issubclass(part, Struct):
                yield from _described(part, f"{path}.")


def _parts(annotation: Any) -> Iterator[Any]:
    """Yield what an annotation is put together of: the types of a union, and what is said about them."""
    metadata = getattr(annotation, "__metadata__", ())
    inner = annotation.__origin__ if metadata else annotation
    yield from metadata
    if isinstance(inner, type) and not get_args(inner):
        yield inner
    elif type(inner).__name__ in ("Union", "UnionType", "_UnionGenericAlias"):
        for each in get_args(inner):
            yield from _parts(each)
