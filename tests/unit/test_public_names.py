"""What plugins may import is whole: no name of `kiwi_gw.api` or `kiwi_gw.dialect_api` takes, holds or returns
a type that they do not have."""

from __future__ import annotations

import inspect
import typing
from collections.abc import Iterator

import pytest

from kiwi_gw import api, dialect_api
from kiwi_gw.core.accounts import ClientAccount, SharedAccount

PUBLIC = {
    name: value for module in (api, dialect_api) for name, value in vars(module).items() if name[0] != "_"
}
OWN: set[type] = {ClientAccount, SharedAccount}
"""What the gateway puts into `SessionLimits`, and no protocol makes or looks into."""


def types_in(annotation: object) -> Iterator[type]:
    """Yield the gateway's own types that an annotation is made of."""
    for part in annotation if isinstance(annotation, list | tuple) else typing.get_args(annotation):
        yield from types_in(part)
    kind = typing.get_origin(annotation) or annotation
    if isinstance(kind, type) and kind.__module__.startswith("kiwi_gw."):
        yield kind


def annotations_of(value: object) -> Iterator[object]:
    """Yield the annotations of a function, of a class and its methods, or what an alias stands for."""
    if inspect.isfunction(value):
        yield from typing.get_type_hints(value).values()
    elif not isinstance(value, type):
        yield value
    elif value.__module__.startswith("kiwi_gw."):
        yield from typing.get_type_hints(value).values()
        for member in vars(value).values():
            function = member.fget if isinstance(member, property) else member
            if inspect.isfunction(function):
                yield from annotations_of(function)


def missing(public: dict[str, object], own: set[type]) -> set[tuple[str, str]]:
    """Return which public name needs which type that is not public."""
    known = [value for value in public.values() if isinstance(value, type)]
    return {
        (name, kind.__name__)
        for name, value in public.items()
        for annotation in annotations_of(value)
        for kind in types_in(annotation)
        if kind not in own and kind not in known
    }


def test_what_plugins_import_needs_nothing_that_they_cannot() -> None:
    assert len(PUBLIC) > 100
    assert missing(PUBLIC, OWN) == set()


@pytest.mark.parametrize("name", ["Tally", "StartAt", "GroupSink", "Identity"])
def test_a_name_that_is_not_public_is_found(name: str) -> None:
    kind = PUBLIC[name]
    rest = {known: value for known, value in PUBLIC.items() if value is not kind}
    assert {needed for _, needed in missing(rest, OWN)} == {name}
