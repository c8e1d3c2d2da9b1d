"""CaQL conditions as trees of tuples: their text, and whether they hold, as plainly as it can be said.

    ("compare", "=", operand, operand)   ("like" | "contains", negated, operand, pattern)
    ("missing", negated, operand)        ("not", tree)   ("and" | "or", [trees])   ("(", tree)
An operand is ("path", "data", "a", ...) or ("constant", value).
"""

from __future__ import annotations

import json
import re
from typing import Any

Tree = Any
Gone = object()

_SPELLINGS = {
    "=": ("=", "eq", "EQ"),
    "!=": ("!=", "neq", "Neq"),
    "<": ("<", "lt"),
    "<=": ("<=", "lte"),
    ">": (">", "gt"),
    ">=": (">=", "gte", "gTE"),
}


def written(tree: Tree, spelling: int = 0) -> str:
    """The text of a condition. spelling: which of the ways to write a word is taken."""
    match tree:
        case ("path", *steps):
            return ".".join(steps)
        case ("constant", value):
            return json.dumps(value, ensure_ascii=bool(spelling % 2))
        case ("compare", sign, left, right):
            words = _SPELLINGS[sign]
            return f"{written(left, spelling)} {words[spelling % len(words)]} {written(right, spelling)}"
        case (("like" | "contains") as word, negated, operand, pattern):
            shown = word.upper() if spelling % 2 else word
            return f"{written(operand)} {'not ' if negated else ''}{shown} {json.dumps(pattern)}"
        case ("missing", negated, operand):
            return f"{written(operand)} is {'NOT ' if negated else ''}missing"
        case ("not", inner):
            return f"not {written(inner, spelling)}"
        case ("and", trees):
            return f" {('and', '&&', 'AND')[spelling % 3]} ".join(written(each, spelling) for each in trees)
        case ("or", trees):
            return f" {('or', '||', 'Or')[spelling % 3]} ".join(written(each, spelling) for each in trees)
        case ("(", inner):
            return f"({written(inner, spelling)})"
    raise AssertionError(tree)


def holds(tree: Tree, record: dict[str, Any]) -> bool:
    """Whether a condition holds for `{"data": ..., "topic": ..., "timestamp": ...}`."""
    match tree:
        case ("compare", sign, left, right):
            return _compared(sign, _value(left, record), _value(right, record))
        case ("like", negated, operand, pattern):
            return _found(pattern.replace("%", "(?s:.*)"), negated, _value(operand, record))
        case ("contains", negated, operand, pattern):
            return _found(pattern, negated, _value(operand, record))
        case ("missing", negated, operand):
            return (_value(operand, record) is Gone) is not negated
        case ("not", inner):
            return not holds(inner, record)
        case ("and", trees):
            return all(holds(each, record) for each in trees)
        case ("or", trees):
            return any(holds(each, record) for each in trees)
        case ("(", inner):
            return holds(inner, record)
    raise AssertionError(tree)


def _value(operand: Tree, record: dict[str, Any]) -> Any:
    if operand[0] == "constant":
        return operand[1]
    here: Any = record
    for step in operand[1:]:
        if not isinstance(here, dict) or step not in here:
            return Gone
        here = here[step]
    return here


def _found(pattern: str, negated: bool, value: Any) -> bool:
    if value is Gone:
        return False
    there = isinstance(value, str) and re.search(pattern, value, re.IGNORECASE) is not None
    return there is not negated


def _kind(value: Any) -> str:
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, int | float):
        return "number"
    return type(value).__name__


def _compared(sign: str, left: Any, right: Any) -> bool:
    if left is Gone or right is Gone:
        return False
    if sign in ("=", "!="):
        # Texts of JSON with sorted members; numbers that are equal are written alike.
        return (_canonical(left) == _canonical(right)) is (sign == "=")
    if _kind(left) != _kind(right) or _kind(left) not in ("number", "str"):
        return False
    compared: dict[str, bool] = {
        "<": left < right,
        "<=": left <= right,
        ">": left > right,
        ">=": left >= right,
    }
    return compared[sign]


def _canonical(value: Any) -> str:
    if isinstance(value, dict):
        return "{" + ",".join(f"{json.dumps(name)}:{_canonical(value[name])}" for name in sorted(value)) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(_canonical, value)) + "]"
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return json.dumps(value)
