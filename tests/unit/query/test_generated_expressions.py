"""What is compared with Spark has every operator and every function in it."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from kiwi_gw.query.errors import QueryError
from kiwi_gw.query.functions import registry
from kiwi_gw.query.sql import read
from kiwi_gw.query.tree import Cast, FunctionCall, Node
from tests.differential import cases
from tests.differential.cases import Suite

ALIASES = {"substr"}
"""What the text calls otherwise, before it is a tree."""


def names(node: Node) -> Iterator[str]:
    if isinstance(node, FunctionCall):
        yield node.name
        for argument in node.arguments:
            yield from names(argument)
    elif isinstance(node, Cast):
        yield f"cast {node.to}"
        yield from names(node.value)


def used(suite: Suite) -> set[str]:
    found: set[str] = set()
    for text in {case.expression.ours for case in suite.cases}:
        try:
            query = read(text, None)
        except QueryError:
            continue
        assert query.where is not None
        found.update(names(query.where))
    return found


@pytest.mark.parametrize("suite", [cases.declared, cases.loose])
def test_everything_is_in_an_expression_that_is_compared(suite: Callable[[], Suite]) -> None:
    everything = {name for name in registry() if not name.startswith("caql.")}
    assert everything - ALIASES <= used(suite())


def test_the_same_expressions_every_time() -> None:
    assert cases.declared() == cases.declared()
    assert [case.spark for case in cases.loose().cases] == [case.spark for case in cases.loose().cases]
