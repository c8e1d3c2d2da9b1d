"""What is said of JSON that does not fit a struct."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
import pytest
from msgspec import UNSET, Meta, Struct, UnsetType

from kiwi_gw.struct_errors import descriptions, given, sentence, wrong_member


class Inner(Struct):
    depth: Annotated[int, Meta(ge=0, description="an integer from 0")] = 0
    colour: Literal["red", "blue"] = "red"


class Closed(Struct, forbid_unknown_fields=True):
    pass


class Strict(Struct, forbid_unknown_fields=True):
    inner: Closed | UnsetType = UNSET


class Outer(Struct, rename="camel"):
    some_name: Annotated[str, Meta(description="a string")]
    inner: Inner | UnsetType = UNSET
    items: Annotated[list[int], Meta(description="a list of integers")] | UnsetType = UNSET


@pytest.mark.parametrize(
    ("text", "member", "words"),
    [
        ("{}", "someName", "someName must be a string"),
        ('{"someName":5}', "someName", "someName must be a string"),
        ('{"someName":"a","inner":{"depth":-1}}', "inner.depth", "inner.depth must be an integer from 0"),
        ('{"someName":"a","items":[1,"2"]}', "items", "items must be a list of integers"),
        (
            '{"someName":"a","inner":{"colour":"s3cret - at `$.x`"}}',
            "inner.colour",
            "Invalid value - at `$.inner.colour`",
        ),
        ("[]", "", "Expected `object`, got `array`"),
    ],
)
def test_the_member_and_what_it_must_be(text: str, member: str, words: str) -> None:
    with pytest.raises(msgspec.ValidationError) as error:
        msgspec.json.decode(text, type=Outer)
    assert wrong_member(error.value) == member
    assert sentence(error.value, Outer) == words


def test_descriptions_by_path() -> None:
    assert descriptions(Outer) == {
        "someName": "a string",
        "inner.depth": "an integer from 0",
        "items": "a list of integers",
    }


def test_what_is_given() -> None:
    assert given(UNSET) is None
    assert given(0) == 0


@pytest.mark.parametrize("name", ["s3cret", "a`b", "a\\r\\nb` - at `$.c"])
def test_a_member_that_there_is_not_is_not_repeated(name: str) -> None:
    for text in (f'{{"{name}":1}}', f'{{"inner":{{"{name}":1}}}}'):
        with pytest.raises(msgspec.ValidationError) as error:
            msgspec.json.decode(text, type=Strict)
        assert sentence(error.value, Strict) == "Object contains unknown field"
