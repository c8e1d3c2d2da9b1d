"""Writes trees as Spark's SQL, for a session with `spark.sql.ansi.enabled=false`: what the language of
queries means is what Spark means so (docs/reference/queries.md).

Theory of operation. A client chose the constants, the names of members and of columns. Nothing of it may be
taken for SQL, whatever the session is set to:

- Constants that are texts, and members, stand in quotes as printable ASCII without quotes, backslash and `$`;
  every other character is written as `\\uXXXX` or `\\UXXXXXXXX`. So no quote can end a text, also where a
  session does not unescape (`escapedStringLiterals`), and Spark finds no `${env:NAME}` in it, which it would
  replace by what that variable holds before it reads the statement, in quotes or not.
- Names of columns stand in backticks, where nothing can be escaped but the backtick: `name_text` refuses
  those with `${`.
- Functions and types are looked up; whatever is not known is refused here, too.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from kiwi_gw.dialects.lenses.sql.aggregates import NUMBERS, aggregate_of
from kiwi_gw.query.errors import QueryError
from kiwi_gw.query.functions import function
from kiwi_gw.query.sql.vocabulary import TYPES
from kiwi_gw.query.tree import Cast, Constant, FunctionCall, Literal, Node, Path

_UNSAFE: Final = re.compile(r"[^ !#%&(-\[\]^_a-~]")
_INFIX: Final = {
    **{name: name for name in ("=", "<>", "<=>", "<", "<=", ">", ">=", "+", "-", "*", "/", "%")},
    **{name: name.upper() for name in ("div", "and", "or", "like", "ilike", "rlike")},
}
_POSTFIX: Final = {"is_null": "IS NULL", "is_true": "IS TRUE", "is_false": "IS FALSE"}
_PREFIX: Final = {"not": "NOT", "neg": "-"}
_ROOT: Final = re.compile(r"(t\d)\.([a-z_]+)")


def expression_text(node: Node, known: Mapping[str, str] | None = None) -> str:
    """Write a tree of a `GroupedStatement`. known: SQL that stands for trees, by their keys.

    Raises:
        QueryError: it has what Spark has not.
    """
    if known:
        if (text := known.get(node.key)) is not None:
            return text
        if isinstance(node, Path) and node.steps:
            inside = expression_text(Path(node.root, node.steps[:-1], node.position), known)
            return inside + _step(node.steps[-1])
    match node:
        case Literal(value):
            return constant_text(value)
        case Path(root, steps):
            return _root(root) + "".join(map(_step, steps))
        case Cast(value, to) if to in TYPES.values():
            return f"CAST({expression_text(value, known)} AS {to})"
        case FunctionCall(name, arguments):
            return _call(node, name, [expression_text(each, known) for each in arguments])
    raise QueryError("there is no such type", node.position)


def constant_text(value: Constant) -> str:
    """Write a constant."""
    match value:
        case None | bool():
            return {None: "NULL", True: "TRUE", False: "FALSE"}[value]
        case str():
            return f"'{_UNSAFE.sub(_escaped, value)}'"
        case float():
            return f"({value!r}D)"
        case int():
            return f"({value})"


def name_text(name: str, position: int) -> str:
    """Write the name of a column. Raises QueryError: it cannot be written."""
    if not name or "${" in name or _cannot_be_sent(name):
        raise QueryError("a column cannot be called so: give it another name with AS", position)
    return "`" + name.replace("`", "``") + "`"


def _cannot_be_sent(name: str) -> bool:
    return any("\ud800" <= character <= "\udfff" or character == "\0" for character in name)


def _escaped(found: re.Match[str]) -> str:
    code = ord(found[0])
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def _root(root: str) -> str:
    found = _ROOT.fullmatch(root)
    assert found is not None, root  # noqa: S101  (they are made by `root_of`)
    return f"{found[1]}.`{found[2]}`"


def _step(step: str | int) -> str:
    return f"[{constant_text(step)}]" if isinstance(step, str) else f"[{step:d}]"


def _call(node: FunctionCall, name: str, arguments: list[str]) -> str:
    if (aggregate := aggregate_of(node)) is not None:
        return _aggregate(node, *aggregate, arguments)
    if name.startswith("caql."):
        raise QueryError(f"there is no function {name} here", node.position)
    function(name, node.position)
    if name in _INFIX:
        # The third argument of LIKE is the sign that escapes.
        escape = f" ESCAPE {arguments[2]}" if arguments[2:] else ""
        return f"({arguments[0]} {_INFIX[name]} {arguments[1]}{escape})"
    if name in _POSTFIX:
        return f"({arguments[0]} {_POSTFIX[name]})"
    if name in _PREFIX:
        return f"({_PREFIX[name]} {arguments[0]})"
    match name:
        case "between":
            return f"({arguments[0]} BETWEEN {arguments[1]} AND {arguments[2]})"
        case "in":
            return f"({arguments[0]} IN ({', '.join(arguments[1:])}))"
        case "case":
            return _case(arguments)
    return f"{name}({', '.join(arguments)})"


def _case(arguments: list[str]) -> str:
    pairs = zip(arguments[::2], arguments[1::2], strict=False)
    branches = " ".join(f"WHEN {condition} THEN {value}" for condition, value in pairs)
    otherwise = f" ELSE {arguments[-1]}" if len(arguments) % 2 else ""
    return f"CASE {branches}{otherwise} END"


def _aggregate(node: FunctionCall, name: str, distinct: bool, arguments: list[str]) -> str:
    if name not in NUMBERS:
        raise QueryError(f"there is no aggregate {name}", node.position)
    if name == "count" and not arguments:
        return "count(1)"
    return f"{name}({'DISTINCT ' if distinct else ''}{', '.join(arguments)})"
