"""Strategies for expression trees and records."""

from __future__ import annotations

from hypothesis import strategies as st

from kiwi_gw.query.functions import registry
from kiwi_gw.query.functions.base import Function
from kiwi_gw.query.tree import Cast, FunctionCall, Literal, Node, Path
from kiwi_gw.query.values import Value
from kiwi_gw.query.values.types import CASTS

# What functions are likely to make something of, and what they are likely to stumble over.
TEXTS = (
    "", "a", "AA", "5", "-7", "1.5", " 42 ", "1e400", "true", "NaN", "Infinity", "2013-01-05", "%A%", "_",
    "a\\", "(", "(a|b)*", "2013-01-05 06:07:08.5", "9999-12-31", "yyyy-MM-dd", "HH:mm", "week", "$.a[0]", "é",
    '{"a":[1,null]}', "\x00", "😀", "$1", "9223372036854775808",
)  # fmt: skip
NUMBERS = (0, 1, -1, 2, 7, 255, 2**31 - 1, 2**31, -(2**31), 2**53 + 1, 2**63 - 1, -(2**63))
FRACTIONS = (
    0.0,
    -0.0,
    1.5,
    -2.5,
    1e-5,
    1e10,
    1e308,
    -1e308,
    2.0**53,
    float("inf"),
    float("-inf"),
    float("nan"),
)

scalars: st.SearchStrategy[bool | int | float | str | None] = st.one_of(
    st.none(), st.booleans(), st.sampled_from(NUMBERS), st.integers(-50, 50), st.sampled_from(FRACTIONS),
    st.sampled_from(TEXTS), st.text(st.characters(codec="utf-8"), max_size=4),
)  # fmt: skip
values: st.SearchStrategy[Value] = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abc"), inner, max_size=3),
    max_leaves=6,
)
# JSON has no NaN, and Avro does: records have what either decoder gives.
records = st.fixed_dictionaries(
    {"value": st.dictionaries(st.sampled_from("abc"), values) | values, "key": values}
)

literals = scalars.map(Literal)
paths = st.builds(
    Path,
    st.sampled_from(("value", "value", "value", "key")),
    st.lists(st.sampled_from(("a", "b", "c", 0, 1)), max_size=3).map(tuple),
)


def calls(of: st.SearchStrategy[Function], inner: st.SearchStrategy[Node]) -> st.SearchStrategy[Node]:
    def call(function: Function) -> st.SearchStrategy[Node]:
        least, most = function.arguments
        several = st.lists(inner, min_size=least, max_size=least + 2 if most is None else most)
        return several.map(lambda arguments: FunctionCall(function.name, tuple(arguments)))

    return of.flatmap(call)


def _operators() -> list[Function]:
    return [each for each in registry().values() if not each.usage]


functions = st.deferred(lambda: st.sampled_from(sorted(registry().values(), key=lambda each: each.name)))
operators = st.deferred(lambda: st.sampled_from(_operators()))

trees: st.SearchStrategy[Node] = st.recursive(
    paths | paths | literals,
    lambda inner: st.one_of(
        calls(operators, inner),
        calls(functions, inner),
        st.builds(Cast, inner, st.sampled_from(sorted(CASTS))),
    ),
    max_leaves=12,
)
