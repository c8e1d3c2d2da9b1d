"""Makes loops of a query: one that keeps events, one that makes what is sent of them."""

from __future__ import annotations

from collections.abc import Callable
from types import CodeType
from typing import Any, Final
from weakref import WeakValueDictionary

from kiwi_gw.query import cpu_budget, patterns
from kiwi_gw.query.compiler import footprint
from kiwi_gw.query.compiler.code_fragments import Namespace
from kiwi_gw.query.compiler.compiled_query import CompiledQuery
from kiwi_gw.query.compiler.expression_codegen import ExpressionCodegen
from kiwi_gw.query.compiler.paths import Paths
from kiwi_gw.query.compiler.projection import assignments, placed
from kiwi_gw.query.compiler.result_json import check_weight, encode_result
from kiwi_gw.query.errors import QueryError
from kiwi_gw.query.limits import MAX_KEPT, MAX_QUERY, check_size
from kiwi_gw.query.schema import Schema
from kiwi_gw.query.tree import Cast, FunctionCall, Literal, Node, Path, Query, walk
from kiwi_gw.query.values import MISSING, UNDECODABLE, RecordError
from kiwi_gw.query.values.types import ANY, BOOLEAN, NULL, STRING
from kiwi_gw.query.weighted_lru import WeightedLru

# A projection of more columns than this is weighed before its text is made.
_FEW: Final = 8

Bytecode = dict[str, CodeType]
"""The code objects of loops, by their Python source."""


def compile_query(
    query: Query, roots: frozenset[str], schema: Schema | None = None, bytecode: Bytecode | None = None
) -> CompiledQuery:
    """Compile the query; equal ones share what comes of it.

    roots: the names of columns that there are. schema: of `value`, if it has one. bytecode: what
    `compile_bytecode` has returned for an equal query in another process, which is half of the work.

    Raises:
        QueryError: it names what is not there, is too large, or asks for what cannot be; with the position.
    """
    check_size(query)
    # Trees alone would take `1`, `1.0` and `true` for the same.
    key = query.key, roots, schema

    def make() -> CompiledQuery:
        found = _in_use.get(key)
        if found is None:
            found = _in_use[key] = _compiled(query, roots, schema, bytecode or {})[0]
        return found

    return _recent.get(key, len(query.key), make)


def compile_bytecode(query: Query, roots: frozenset[str]) -> Bytecode:
    """Compile the query anew, for another process that calls `compile_query`.

    Raises:
        QueryError: as `compile_query`.
    """
    check_size(query)
    return _compiled(query, roots, None, {})[1]


_Key = tuple[str, frozenset[str], Schema | None]
_in_use: Final[WeakValueDictionary[_Key, CompiledQuery]] = WeakValueDictionary()
_recent: Final[WeightedLru[CompiledQuery]] = WeightedLru(MAX_KEPT)


def _compiled(
    query: Query, known: frozenset[str], schema: Schema | None, given: Bytecode
) -> tuple[CompiledQuery, Bytecode]:
    """Compile the query, and return its bytecode, too. given: the bytecode, if known and weighed."""
    bytecode = dict(given)
    try:
        with cpu_budget.limited(), patterns.one_query() as held:  # constants are evaluated here
            columns = placed(query.select)
            where = [] if query.where is None else [query.where]
            used = tuple(dict.fromkeys(_roots([*where, *(column.value for column in columns)], known)))
            plain = _plain(query.where)
            keep = _filter_loop(query.where, used, schema, bytecode, plain=plain > 0)
            project = None if query.select is None else _project_loop(query, used, schema, bytecode)
            keep.__globals__["patterns"] = held.patterns
            loops = (keep,) if project is None else (keep, project)
            if len(bytecode) != len(given):
                _refuse_beyond(footprint.estimate(query, loops))
            return CompiledQuery(used, keep, project, plain), bytecode
    except (RecursionError, MemoryError):
        raise QueryError("the query is too large") from None


def _refuse_beyond(parts: dict[str, int]) -> None:
    """Refuse a query that keeps more than one may.

    Raises:
        QueryError: it does; with how much of what.
    """
    if sum(parts.values()) > MAX_QUERY:
        listed = ", ".join(f"{size} of {name}" for name, size in parts.items())
        raise QueryError(f"the query would keep more than {MAX_QUERY} bytes: {listed}")


def _plain(where: Node | None) -> int:
    """Count the events that a filter may look at between two looks at the clock. 0 where one of its terms may
    take longer for a longer text: a function, or a comparison of two long texts or arrays."""
    terms = 1
    for node in () if where is None else walk(where):
        if isinstance(node, Cast) or (isinstance(node, FunctionCall) and node.name not in _PLAIN):
            return 0
        if isinstance(node, FunctionCall) and node.name in _COMPARES and not _has_literal(node):
            return 0
        terms += 1
    return max(1, cpu_budget.PLAIN_TERMS // terms)


_COMPARES: Final = frozenset(("=", "<>", "<=>", "<", "<=", ">", ">="))
_PLAIN: Final = _COMPARES | {"and", "or", "not", "is_null", "is_true", "is_false"}


def _has_literal(node: FunctionCall) -> bool:
    return any(isinstance(each, Literal) for each in node.arguments)


def _roots(nodes: list[Node], known: frozenset[str]) -> list[str]:
    found = []
    for node in nodes:
        for each in walk(node):
            if isinstance(each, Path):
                if each.root not in known:
                    there = ", ".join(sorted(known))
                    raise QueryError(f"there is no {each.root}; there is {there}", each.position)
                found.append(each.root)
    return found


def _filter_loop(
    where: Node | None, roots: tuple[str, ...], schema: Schema | None, bytecode: Bytecode, *, plain: bool
) -> Callable[..., Any]:
    namespace = Namespace()
    variables = {root: f"r{index}" for index, root in enumerate(roots)}
    paths = Paths([] if where is None else [where], variables, namespace, schema)
    codegen = ExpressionCodegen(namespace, paths)
    test = "True"
    if where is not None:
        # A filter has to be BOOLEAN, where an operand of AND may be a text. In a space of its own: what it
        # gives is not kept.
        code = ExpressionCodegen(Namespace(), paths).value(where)
        if code.type not in (BOOLEAN, NULL, ANY):
            hint = " (= 'true'?)" if code.type == STRING else ""
            raise QueryError(f"a filter is BOOLEAN, and this is {code.type}{hint}", code.position)
        test = codegen.truth(where)
    columns = "".join(f"c_{name}, " for name in variables.values())
    row = ", ".join(["index", *variables.values()])
    source = _lines(
        *codegen.definitions,
        f"def keep(kept, bad, indexes, until, clock, {columns}):",
        "    append = kept.append; append_bad = bad.append",
        f"    for {row} in zip({', '.join(['indexes', *(f'c_{v}' for v in variables.values())])}):"
        if variables
        else "    for index in indexes:",
        *(f"        if {name} is UNDECODABLE: append_bad(index); continue" for name in variables.values()),
        "        try:",
        *(f"            {line}" for line in namespace.budget_resets),
        *(f"            {line}" for line in paths.head),
        f"            if {test}: append(index)",
        "        except Exception: append_bad(index)",
        "" if plain else "        if clock() >= until: return index + 1",
        "    return indexes.stop",
    )
    return _made(source, "keep", namespace, bytecode)


def _project_loop(
    query: Query, roots: tuple[str, ...], schema: Schema | None, bytecode: Bytecode
) -> Callable[..., Any]:
    namespace = Namespace()
    variables = {root: f"r{index}" for index, root in enumerate(roots)}
    columns = placed(query.select)
    paths = Paths([column.value for column in columns], variables, namespace, schema)
    codegen = ExpressionCodegen(namespace, paths)
    parameters = "".join(f"c_{name}, " for name in variables.values())
    lines = assignments(columns, codegen, paths, namespace, weigh=len(columns) > _FEW)
    source = _lines(
        *codegen.definitions,
        f"def project(texts, left, indexes, until, clock, {parameters}):",
        "    append = texts.append",
        "    for index in indexes:",
        "        try:",
        *(f"            {name} = c_{name}[index]" for name in variables.values()),
        *(f"            if {name} is UNDECODABLE: raise RecordError" for name in variables.values()),
        *(f"            {line}" for line in namespace.budget_resets),
        *(f"            {line}" for line in paths.head),
        *(f"            {line}" for line in lines),
        "            text = encoded(result)",
        "            left -= len(text)",
        "            if left < 0: raise RecordError",
        "        except Exception: text = b''",
        "        append(text)",
        "        if clock() >= until or left < 0: break",
        "    return left",
    )
    return _made(source, "project", namespace, bytecode)


def _lines(*lines: str) -> str:
    return "\n".join(lines) + "\n"


def _made(source: str, name: str, namespace: Namespace, bytecode: Bytecode) -> Callable[..., Any]:
    names: dict[str, Any] = dict(namespace.names)
    names.update(UNDECODABLE=UNDECODABLE, MISSING=MISSING, RecordError=RecordError)
    names.update(encoded=encode_result, weigh=check_weight)
    code = bytecode.get(source)
    if code is None:
        code = bytecode[source] = _bare(compile(source, "<query>", "exec"))
    # The source has no character of the query's text in it but in literals: see `code_fragments`.
    exec(code, names)  # noqa: S102
    made: Callable[..., Any] = names.pop(name)
    return made


def _bare(code: CodeType) -> CodeType:
    """Return the code without the places of its source, a third of it: that source is not kept."""
    inner = tuple(_bare(each) if isinstance(each, CodeType) else each for each in code.co_consts)
    return code.replace(co_linetable=b"", co_consts=inner)
