"""Routes of protocols over HTTP: what their types refuse, and how they are described."""

from __future__ import annotations

from typing import Annotated

import msgspec
import pytest
from msgspec import Meta, Struct

from kiwi_gw.dialect_api import (
    HttpRequest,
    HttpRoute,
    InvalidRequest,
    NoParameters,
    Operation,
    openapi,
    read_parameters,
)


class Wanted(Struct):
    source: str
    limit: Annotated[int, Meta(ge=1, le=9, description="an integer from 1 to 9")] = 5
    newest: bool = False


class Shown(Struct):
    """What is shown."""

    lines: list[str]


def show(request: HttpRequest[Wanted, Shown]) -> Shown:
    """Show what is asked
    for.

    More of it.
    """
    return request.body


ROUTE = HttpRoute("PUT", "/a/{source}", show, Wanted, Shown, Shown)


def test_parameters_come_from_the_path_and_the_query() -> None:
    assert read_parameters(Wanted, {"source": "a/b"}, "limit=3&newest=true") == Wanted("a/b", 3, True)
    with pytest.raises(InvalidRequest, match="source is in the path already"):
        read_parameters(Wanted, {"source": "a/b"}, "limit=3&source=c")
    assert read_parameters(Wanted, {"source": "5"}, "other=1&limit=2&limit=4") == Wanted("5", 4)


@pytest.mark.parametrize(
    ("query", "words"),
    [
        ("source=a&limit=0", "limit must be an integer from 1 to 9"),
        ("source=a&limit=x", "limit must be an integer from 1 to 9"),
        ("source=a&limit=", "limit must be an integer from 1 to 9"),
        ("source=a&limit=" + "9" * 5_000, "limit must be an integer from 1 to 9"),
        ("source=a&newest=s3cret", "Expected `bool`, got `str` - at `$.newest`"),
        ("", "Object missing required field `source`"),
    ],
)
def test_what_is_said_of_wrong_parameters(query: str, words: str) -> None:
    with pytest.raises(InvalidRequest) as error:
        read_parameters(Wanted, {}, query)
    assert str(error.value) == words


def test_a_body_is_read_as_it_is_declared() -> None:
    assert ROUTE.read_body(b'{"lines":["a"]}') == Shown(["a"])
    with pytest.raises(InvalidRequest, match="Expected `array`"):
        ROUTE.read_body(b'{"lines":5}')
    with pytest.raises(InvalidRequest, match="not JSON"):
        ROUTE.read_body(b'{"more":' + b"[" * 100_000)


def test_a_route_describes_itself() -> None:
    assert ROUTE.operation == Operation(
        "PUT", "/a/{source}", "Show what is asked for.", Wanted, Shown, {200: Shown}
    )


def test_structs_with_one_name_are_kept_apart() -> None:
    other = msgspec.defstruct("Wanted", [("page", int)], module="elsewhere")
    again = msgspec.defstruct("Shown", [("pages", int)], module="elsewhere")
    document = openapi("x", [ROUTE.operation, Operation("GET", "/b", "", other, answers={200: again})])
    names = [
        [each["name"] for each in operation["parameters"]]
        for path in document["paths"].values()
        for operation in path.values()
    ]
    assert names == [["source", "limit", "newest"], ["page"]]
    schemas = document["components"]["schemas"]
    assert sorted(tuple(schema["properties"]) for schema in schemas.values()) == [("lines",), ("pages",)]


def test_no_parameters() -> None:
    document = openapi("x", [Operation("GET", "/", "s", NoParameters)])
    assert document["paths"]["/"]["get"]["parameters"] == []
    assert document["components"] == {"schemas": {}}
