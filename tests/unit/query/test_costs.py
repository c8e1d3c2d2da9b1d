"""Every function keeps the contract that it declares: what it makes, and how its time grows."""

from __future__ import annotations

import random
import time
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import product

import pytest

from kiwi_gw.query import sql
from kiwi_gw.query.compiler import compile_query, query_codegen
from kiwi_gw.query.compiler.event_budget import EventBudget
from kiwi_gw.query.errors import QueryError
from kiwi_gw.query.functions import registry
from kiwi_gw.query.functions.base import Argument, Function, typed
from kiwi_gw.query.functions.cost import FunctionCost, ResultKind, WorkGrowth, capped
from kiwi_gw.query.limits import MAX_ITEMS, MAX_MADE, MAX_STRING
from kiwi_gw.query.schema import Schema
from kiwi_gw.query.values import RecordError, Value
from kiwi_gw.query.values.implicit_casts import conversion
from kiwi_gw.query.values.types import ANY, INT, STRING
from tests.unit.query.trying import at, call, result

SIZES = (8_192, 131_072)
Sized = Callable[[int], Value]
TEXTS: tuple[Sized, ...] = (
    lambda n: "a" * n,
    lambda n: "1" * n + "x",
    lambda n: "," * n,
    lambda n: "ß\x00İ" * (n // 3),
    lambda n: "[" + ",".join("1" * (n // 2)) + "]",
    lambda n: "a" * (n // 2) + "b" + "a" * (n // 2),
    lambda n: "$" + ".a" * (n // 2),
)
OTHERS: tuple[Sized, ...] = (
    lambda n: n,
    lambda n: -n,
    lambda n: 2**31 - 1,
    lambda n: 1.5e300,
    lambda n: ["ab"] * n,
    lambda n: [None, 1] * (n // 2),
    lambda n: {f"k{i}": i for i in range(n // 8)},
    lambda n: "a",
    lambda n: "ab",
    lambda n: "yyyy-MM-dd",
    lambda n: "(a|b)*c",
)
FUNCTIONS = sorted(name for name, function in registry().items() if function.bind is not None)


def workloads(function: Function) -> Iterator[tuple[Sized, ...]]:
    """Arguments that grow: some of all there are, always the same."""
    least, most = function.arguments
    chosen = random.Random(function.name)
    for count in range(least, min(least + 2 if most is None else most, 4) + 1):
        every = list(product((*TEXTS, *OTHERS), repeat=count)) if count < 3 else []
        if not every:
            every = [tuple(chosen.choices((*TEXTS, *OTHERS), k=count)) for _ in range(30)]
        yield from chosen.sample(every, min(len(every), 25))


def ready(function: Function, values: tuple[Value, ...]) -> Callable[[], Value] | None:
    """The call as the compiler makes it; None: it has nothing for these arguments."""
    assert function.bind is not None
    try:
        binding = function.bind(tuple(Argument(ANY) for _ in values))
    except QueryError:
        return None
    given: list[Value] = []
    for value, want in zip(values, binding.wants, strict=True):
        given.append(value if want is None or value is None else conversion(ANY, want)(value))
    if binding.strict and None in given:
        return None
    made = capped(binding.call, function.cost)
    return lambda: (
        EventBudget().made(made(*given)) if function.cost.makes is not ResultKind.NOTHING else made(*given)
    )


def seconds(made: Callable[[], Value]) -> tuple[float, Value]:
    """Of the processor, and what came of it."""
    before = time.thread_time()
    found: Value = None
    with suppress(RecordError, ValueError, OverflowError, TypeError):  # an error of the event
        found = made()
    return time.thread_time() - before, found


def length(value: Value) -> int:
    if isinstance(value, str):
        return len(value.encode("utf-8", "surrogatepass"))
    if isinstance(value, list | dict):
        return sum(map(length, value)) + len(value)
    return len(value) if isinstance(value, bytes) else 26  # a number as a text


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_result_is_no_larger_than_was_declared(name: str) -> None:
    function = registry()[name]
    cost = function.cost
    for workload in workloads(function):
        values = tuple(make(3_000) for make in workload)
        made = ready(function, values)
        if made is None:
            continue
        _, found = seconds(made)
        if cost.makes is ResultKind.NOTHING:
            own = found is None or isinstance(found, bool | int | float) or hasattr(found, "year")
            assert own or any(found is value for value in values) or inside(found, values), found
        elif isinstance(found, list):
            assert len(found) <= MAX_ITEMS
            assert cost.factor is None or len(found) <= cost.factor * sum(map(length, values)) + cost.plus
        elif isinstance(found, str | bytes):
            assert length(found) <= MAX_STRING
            assert cost.factor is None or length(found) <= cost.factor * sum(map(length, values)) + cost.plus


def inside(found: Value, values: tuple[Value, ...]) -> bool:
    return any(found in value for value in values if isinstance(value, list))


@pytest.mark.parametrize("name", FUNCTIONS)
def test_the_time_of_a_call_grows_as_was_declared(name: str) -> None:
    """Sixteen times as much may take sixty-four times as long, where it is long at all; twice the power of it
    would be two hundred and fifty-six. A constant time is that of the smallest."""
    function = registry()[name]
    if function.cost.work is WorkGrowth.PATTERN:
        return  # the next test: their steps are counted
    for workload in workloads(function):
        small, large = (ready(function, tuple(make(size) for make in workload)) for size in SIZES)
        if small is None or large is None:
            continue
        for _ in range(4):
            allowed = 64 * max(seconds(small)[0], 0.000_05)
            taken = seconds(large)[0]
            if taken < allowed:
                break
        assert taken < allowed, [str(make(5)) for make in workload]


@pytest.mark.parametrize(
    "name", [each for each in FUNCTIONS if registry()[each].cost.work is WorkGrowth.PATTERN]
)
@pytest.mark.parametrize(
    "pattern", ["(a|b)*c", "a*a*a*b", "[^b]{20}c", "d" * 20, "d1" * 10, "(a|b)*a(a|b){30}c"]
)
def test_what_looks_for_a_pattern_has_an_end(name: str, pattern: str) -> None:
    function = registry()[name]
    for make in TEXTS:
        for extra in ((), ("x",), (1,)):
            values = (make(20_000), pattern, *extra)
            least, most = function.arguments
            if name.startswith("caql.") or not least <= len(values) <= (most or 9):
                continue
            made = ready(function, values)
            if made is not None:
                assert min(seconds(made)[0] for _ in range(3)) < 1


def test_a_function_without_a_contract_cannot_be() -> None:
    with pytest.raises(TypeError, match="says nothing of what it may cost"):
        typed("f(s)", (STRING,), STRING, str.upper, "")
    assert typed("f(n)", (INT,), INT, abs, "").cost == FunctionCost(work=WorkGrowth.CONSTANT)


# --- what was seen ---------------------------------------------------------------------------------


@pytest.mark.parametrize("text", ["1" * 3_000_000 + "x", "." + "1" * 3_000_000 + "x", "1e" + "1" * 3_000_000])
def test_a_text_of_very_many_digits_is_read_once(text: str) -> None:
    before = time.thread_time()
    assert result(call("+", at("s"), 1), {"s": text}) in (None, "Infinity")
    assert time.thread_time() - before < 2


def test_arrays_have_so_many_items() -> None:
    record = {"a": [1] * 100}
    assert result(call("size", call("concat", *[at("a")] * 100)), record) == 10_000
    assert result(call("size", call("concat", *[at("a")] * 101)), record) == "bad"
    assert result(call("size", call("split", at("s"), ",")), {"s": "," * 9_999}) == 10_000
    for pattern in (",", "", "[,]"):
        assert result(call("size", call("split", at("s"), pattern)), {"s": "," * 10_001}) == "bad"


def test_what_one_event_makes_is_counted_together() -> None:
    def made(times: int) -> Value:
        parts = [call("length", call("repeat", at("s"), 60_000)) for _ in range(times)]
        return result(call("greatest", *parts), {"s": "a"})

    assert made(MAX_MADE // 61_000) == 60_000
    assert made(MAX_MADE // 60_000 + 1) == "bad"
    # Items that are there already are not new, but what is made of them may be as long as all of them.
    array = call("concat", *[at("a")] * 200)
    assert result(call("size", array), {"a": ["x" * 50_000] * 20}) == "bad"
    assert result(call("size", array), {"a": [{"deep": ["x" * 50_000]}] * 20}) == "bad"


def test_what_an_event_has_made_does_not_count_for_the_next() -> None:
    query = compile_query(
        sql.read("length(repeat(value, 60000)) > 1", "repeat(value, 60000) AS a"), sql.ROOTS
    )
    assert query.filter({"value": ["a"] * 100}, 100) == (list(range(100)), [])
    assert all(query.project({"value": ["a"] * 100}, range(100)))


KEEPING = (
    "array_contains(concat(" + ", ".join(["split(repeat(' ', 65536), '')"] * 25) + "), value.a)",
    " OR ".join(f"value.a = repeat('a', {65_000 + n})" for n in range(25)),
    "size(concat(" + ", ".join(["value.a"] * 90) + ")) = 1",
)


@pytest.mark.cost
@pytest.mark.parametrize("where", KEEPING)
def test_a_constant_is_folded_only_where_it_is_small(where: str) -> None:
    read = sql.read(where, None)
    compile_query(sql.read("value.b = repeat('a', 3)", None), sql.ROOTS)
    tracemalloc.start()
    try:
        query = compile_query(read, sql.ROOTS)
        held, _ = tracemalloc.get_traced_memory()
        tracemalloc.reset_peak()
        query.filter({"value": [{"a": "a"}, {"a": [1] * 100_000}]}, 2)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert held < 200_000
    assert peak - held < 3 * MAX_MADE


def test_small_constants_are_folded() -> None:
    query = compile_query(sql.read("value.a = repeat('ab', 3)", None), sql.ROOTS)
    assert not [one for one in query._keep.__globals__.values() if getattr(one, "__name__", "") == "_repeat"]
    assert query_codegen.compile_query(sql.read("value.a = upper('ab')", None), sql.ROOTS).filter(
        {"value": [{"a": "AB"}]}, 1
    ) == ([0], [])


def test_an_array_of_a_schema_is_made_once_however_often_it_is_named() -> None:
    schema = Schema.parse("a ARRAY<INT>, b INT")
    arrays = ", ".join(["value.a"] * 90)
    for where in (f"size(concat({arrays})) > 0", f"size(coalesce({arrays})) > 0"):
        made = compile_query(sql.read(where, None), sql.ROOTS, schema)
        record = {"value": [{"a": [1] * 100_000, "b": 1}]}
        tracemalloc.start()
        try:
            found = made.filter(record, 1)
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert found == (([], [0]) if "concat" in where else ([0], []))
        assert peak < 4 * MAX_MADE
