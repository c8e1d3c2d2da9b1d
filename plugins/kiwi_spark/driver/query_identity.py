"""What makes a query another one: its SQL without comments and white space, its code without layout.

A checkpoint is kept where neither has changed. Of code the function is looked at, and all of its own module
that it uses, by name; what it imports from other modules is not.
"""

from __future__ import annotations

import ast
import hashlib
import importlib.util
import re
import threading
from collections.abc import Iterator
from typing import Any, Final

_TOKEN: Final = re.compile(
    r"""(?P<gap>\s+|--(?:\\\n|[^\n])*)
    |(?P<open>/\*(?!\+))
    |(?P<exact>[rR]'[^']*'|[rR]"[^"]*"|'(?:\\.|''|[^\\'])*'|"(?:\\.|""|[^\\"])*"|`(?:``|[^`])*`)
    |(?P<number>(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?\w*)
    |(?P<call>\w+)(?=\s*\()
    |(?P<word>\w+)
    |(?P<other>.)""",
    re.VERBOSE | re.DOTALL,
)
_BRACKET: Final = re.compile(r"/\*|\*/")
_KEYWORD: Final = re.compile(
    r"all|and|anti|array|as|asc|between|by|case|cast|cross|cube|current|desc|distinct|div|else|end"
    r"|escape|except|exists|explode|false|filter|first|following|from|full|group|grouping|having"
    r"|ilike|in|inner|intersect|interval|is|join|last|lateral|left|like|limit|map|minus|natural"
    r"|not|null|nulls|offset|on|or|order|outer|over|partition|preceding|range|rlike|right|rollup"
    r"|row|rows|select|semi|sets|struct|then|true|unbounded|union|using|values|view|when|where"
    r"|window|with|within",
    re.IGNORECASE,
)
"""Words whose case means nothing. That of other words may: a key of a map can be written like a column."""


_parse_lock = threading.Lock()
"""CPython 3.11 counts how deep it is in a syntax tree for all threads together: two at once may both fail."""


def tokens(sql: str) -> list[str]:
    """Return the words and signs of a text in Spark's SQL. Literals, quoted names and hints stay as they
    are."""
    return list(_tokens(sql))


def _tokens(sql: str) -> Iterator[str]:
    at = 0
    while (found := _TOKEN.match(sql, at)) is not None:
        at = found.end()
        kind, text = found.lastgroup, found[0]
        if kind == "open":
            at = _behind_comment(sql, at)
        elif kind == "call" or (kind == "word" and _KEYWORD.fullmatch(text)):
            yield text.lower()
        elif kind != "gap":
            yield text


def _behind_comment(sql: str, at: int) -> int:
    """Return where a comment ends that began before `at`: comments may have comments in them."""
    depth = 1
    for bracket in _BRACKET.finditer(sql, at):
        depth += 1 if bracket[0] == "/*" else -1
        if depth == 0:
            return bracket.end()
    return len(sql)


def code_of(transform: str) -> str:
    """Return a digest of what `module:function` does; empty where there is no source to read."""
    module, _, function = transform.partition(":")
    spec = importlib.util.find_spec(module)
    if spec is None or spec.origin is None or not spec.origin.endswith(".py"):
        return ""
    with open(spec.origin, "rb") as file:
        return digest(file.read(), function)


def digest(source: bytes | str, function: str) -> str:
    """Return a digest of a module's source: of the function and of every statement of the module that it
    needs."""
    with _parse_lock:
        statements = _without_texts(ast.parse(source)).body
    binds = [_bound(one) for one in statements]
    wanted, taken = {function}, set[int]()
    while True:
        more = {
            number
            for number, names in enumerate(binds)
            if number not in taken and (wanted & names or not names)
        }
        if not more:
            break
        taken |= more
        for number in more:
            wanted |= _used(statements[number])
    text = "\n".join(_written(statements[number]) for number in sorted(taken))
    return hashlib.sha256(text.encode()).hexdigest()


def _written(value: object) -> str:
    """Write a syntax tree as text, the same in every Python. Not `ast.dump`: versions of Python differ in
    what they add to a node, and in whether they show what is empty. So nothing empty is written."""
    if isinstance(value, ast.AST):
        fields = ((name, getattr(value, name, None)) for name in sorted(value._fields))
        said = (f"{name}={_written(one)}" for name, one in fields if one is not None and one != [])
        return f"{type(value).__name__}({', '.join(said)})"
    if isinstance(value, list):
        return f"[{', '.join(map(_written, value))}]"
    return repr(value)


def _bound(statement: ast.stmt) -> set[str]:
    """Return the names that a statement of a module gives a meaning."""
    if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return {statement.name}
    names: set[str] = set()
    for node in ast.walk(statement):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            names.add(node.name)
        elif isinstance(node, ast.alias):
            names.add((node.asname or node.name).partition(".")[0])
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.add(node.id)
    return names


def _used(statement: ast.stmt) -> set[str]:
    return {node.id for node in ast.walk(statement) if isinstance(node, ast.Name)}


def _without_texts(module: ast.Module) -> ast.Module:
    """Remove docstrings and other constants that stand alone."""

    class Strip(ast.NodeTransformer):
        def visit_Expr(self, node: ast.Expr) -> Any:
            return None if isinstance(node.value, ast.Constant) else node

    found: ast.Module = Strip().visit(module)
    return found
