"""Pydantic's errors, in the terms of YAML."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping

_NOUNS = {
    "int": "a whole number",
    "float": "a number",
    "decimal": "a number",
    "bool": "true or false",
    "string": "text",
    "bytes": "text",
    "path": "text (a path)",
    **dict.fromkeys(("list", "tuple", "set", "frozen", "iterable"), "a list"),
    **dict.fromkeys(("dict", "mapping", "model", "dataclass"), "a mapping"),
    "none": "null",
    "datetime": "a time like 2026-01-31T12:00:00Z",
    "timezone": "a time with its zone, like 2026-01-31T12:00:00Z",
    "url": "a URL",
}
"""YAML's words for what pydantic calls a dictionary or a tuple, by the first word of an error's kind."""
_ABOUT_TYPES = re.compile(
    r"([a-z]+)_(\w*type|\w*parsing|parsing_size|from_float|required|aware|syntax_violation)"
)


def noun(kind: str, context: Mapping[str, object]) -> str | None:
    """Say what a value should have been, for errors about its type; None for errors of another kind."""
    if kind in ("literal_error", "enum"):
        return str(context.get("expected", "another value"))
    match = _ABOUT_TYPES.fullmatch(kind)
    return _NOUNS.get(match[1]) if match else None


def wrong_type(nouns: Iterable[str], value: object, secret: bool) -> str:
    """Word a wrong type: `must be a whole number or text, not a list`."""
    wanted = " or ".join(dict.fromkeys(nouns))
    message = f"must be {wanted}, not {describe(value, secret)}"
    if wanted == "text" and isinstance(value, (int, float)):
        message += " (put it in quotes)"
    if isinstance(value, str) and not secret and "'" in wanted:
        message += did_you_mean(value, wanted.replace(" or ", ", ").replace("'", "").split(", "))
    return message


def describe(value: object, secret: bool) -> str:
    """Name a value in an error message; of a secret only what kind of thing it is."""
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


def other(message: str, context: Mapping[str, object], value: object, secret: bool) -> str:
    """Word an error that is not about the type, with what a validator or pydantic says."""
    if "error" in context:
        return str(context["error"])
    message, count = re.subn(r"^Input should be\b", "must be", message)
    if count:
        return f"{message}, not {describe(value, secret).removeprefix('the number ')}"
    message = re.sub(r"^\w+ should\b", "must", message)
    return message[:1].lower() + message[1:]


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """Return `; did you mean 'topic'?`, or an empty text."""
    near = difflib.get_close_matches(word, list(known), 1)
    return f"; did you mean {near[0]!r}?" if near else ""


def unknown_key(word: str, known: Iterable[str]) -> str:
    known = list(known)
    hint = did_you_mean(word, known)
    if not hint and 0 < len(known) <= 16:
        hint = f"; known here: {', '.join(known)}"
    return f"unknown key{hint}"
