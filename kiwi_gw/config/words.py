"""Pydantic's errors in plain words."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping

_NOUNS = {
    "int_type": "a whole number",
    "int_parsing": "a whole number",
    "int_parsing_size": "a whole number",
    "int_from_float": "a whole number",
    "float_type": "a number",
    "float_parsing": "a number",
    "decimal_type": "a number",
    "decimal_parsing": "a number",
    "bool_type": "true or false",
    "bool_parsing": "true or false",
    "string_type": "text",
    "string_sub_type": "text",
    "bytes_type": "text",
    "path_type": "text (a path)",
    "list_type": "a list",
    "tuple_type": "a list",
    "set_type": "a list",
    "frozen_set_type": "a list",
    "iterable_type": "a list",
    "dict_type": "a mapping",
    "mapping_type": "a mapping",
    "model_type": "a mapping",
    "model_attributes_type": "a mapping",
    "dataclass_type": "a mapping",
    "none_required": "null",
    "datetime_type": "a time like 2026-01-31T12:00:00Z",
    "datetime_parsing": "a time like 2026-01-31T12:00:00Z",
    "datetime_from_date_parsing": "a time like 2026-01-31T12:00:00Z",
    "timezone_aware": "a time with its zone, like 2026-01-31T12:00:00Z",
    "url_type": "a URL",
    "url_parsing": "a URL",
    "url_syntax_violation": "a URL",
    "finite_number": "a finite number",
}


def noun(kind: str, context: Mapping[str, object]) -> str | None:
    """What a value should have been, for errors about its type; None for errors of another kind."""
    if kind in ("literal_error", "enum"):
        return str(context.get("expected", "another value"))
    return _NOUNS.get(kind)


def wrong_type(nouns: Iterable[str], value: object, secret: bool) -> str:
    """`must be a whole number or text, not a list`."""
    wanted = " or ".join(dict.fromkeys(nouns))
    message = f"must be {wanted}, not {describe(value, secret)}"
    if wanted == "text" and isinstance(value, (int, float)):
        message += " (put it in quotes)"
    if isinstance(value, str) and not secret and "'" in wanted:
        message += did_you_mean(value, wanted.replace(" or ", ", ").replace("'", "").split(", "))
    return message


def describe(value: object, secret: bool) -> str:
    """A value in an error message; of a secret only what kind of thing it is."""
    if value is None:
        return "empty"
    if isinstance(value, str):
        if secret:
            return "this text"
        return repr(value) if len(value) <= 60 else f"{value[:57]!r}..."
    if isinstance(value, bool):
        return "true or false" if secret else str(value).lower()
    if isinstance(value, (int, float)):
        return "a number" if secret else f"the number {value}"
    if isinstance(value, Mapping):
        return "a mapping"
    if isinstance(value, (list, tuple)):
        return "a list"
    return "this"


def other(kind: str, message: str, context: Mapping[str, object], value: object, secret: bool) -> str:
    """The words for an error that is not about the type."""
    bounds = {
        "greater_than_equal": ("must be at least", "ge"),
        "greater_than": ("must be more than", "gt"),
        "less_than_equal": ("must be at most", "le"),
        "less_than": ("must be less than", "lt"),
    }
    if kind in bounds:
        words, name = bounds[kind]
        return f"{words} {context[name]}, not {describe(value, secret).removeprefix('the number ')}"
    if kind == "string_too_short" and context.get("min_length") == 1:
        return "must not be empty"
    if kind in ("string_too_short", "too_short"):
        return f"must have at least {_count(context['min_length'], kind)}"
    if kind in ("string_too_long", "too_long"):
        return f"must have at most {_count(context['max_length'], kind)}"
    if kind == "string_pattern_mismatch":
        return f"must match the pattern {context['pattern']}"
    if kind in ("value_error", "assertion_error"):
        return str(context.get("error", message))
    message = message.replace("Input should", "must")
    return message[:1].lower() + message[1:]


def _count(number: object, kind: str) -> str:
    thing = "character" if kind.startswith("string") else "item"
    return f"{number} {thing}" if number == 1 else f"{number} {thing}s"


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """`; did you mean 'topic'?`, or nothing."""
    near = difflib.get_close_matches(word, list(known), 1)
    return f"; did you mean {near[0]!r}?" if near else ""


def unknown_key(word: str, known: Iterable[str]) -> str:
    known = list(known)
    hint = did_you_mean(word, known)
    if not hint and 0 < len(known) <= 12:
        hint = f"; known here: {', '.join(known)}"
    return f"unknown key{hint}"
