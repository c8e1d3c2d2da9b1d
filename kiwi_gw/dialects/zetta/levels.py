"""One level of a subscription's topic: a name, a pattern as in file names, or `{a regular expression}`."""

from __future__ import annotations

import enum
from dataclasses import dataclass

from kiwi_gw.query.patterns import PatternError, RegexPattern, regex


class AnyLevel(enum.Enum):
    """Name the levels that hold no name."""

    ONE = "*"  # exactly one level
    MANY = "**"  # any number of levels


@dataclass(frozen=True, slots=True)
class RegexLevel:
    """Hold a level in which a regular expression is found, anchored only by its own `^` and `$`."""

    regex: RegexPattern

    def means(self, name: str) -> bool:
        """Return whether it is found in a level. Costs at most the steps of one topic (MAX_PROGRAM) times the
        bytes of an event's (MAX_TOPIC), half of what one call of a query may take
        (`kiwi_gw.query.cpu_budget`)."""
        return self.regex.search(name.encode(errors="surrogatepass")) is not None

    @property
    def steps(self) -> int:
        """Return how many steps its program has."""
        return self.regex.steps


Level = str | AnyLevel | RegexLevel
"""A name, one of the wildcards, or a pattern for the whole level."""


class InvalidLevel(ValueError):  # noqa: N818  (it states what the level is)
    """Report that the level cannot be used. The message says why."""


def level(text: str) -> Level:
    """Read what a level means. `text` is not empty. Raises InvalidLevel."""
    if text == AnyLevel.ONE.value:
        return AnyLevel.ONE
    if text == AnyLevel.MANY.value:
        return AnyLevel.MANY
    if text.startswith("{") and text.endswith("}"):
        return _regular(text[1:-1], f"{_shortened(text)} is no regular expression")
    if "*" in text or "[" in text:
        return _regular(_of_glob(text), f"{_shortened(text)} is no pattern")  # of the whole level
    return text


def _shortened(text: str, length: int = 40) -> str:
    return text if len(text) <= length else text[:length] + "..."


def _regular(expression: str, wrong: str) -> RegexLevel:
    try:
        return RegexLevel(regex(expression))
    except PatternError as error:
        raise InvalidLevel(_shortened(f"{wrong}: {error}", 200)) from None


def _of_glob(text: str) -> str:
    """Write the regular expression of a pattern, as in Python's fnmatch. `*` is any run, also none. `[...]`
    is one of these characters, `[!...]` any other one; a `?` is itself."""
    parts: list[str] = ["(?s)^"]
    index = 0
    while index < len(text):
        here = text[index]
        index += 1
        if here == "*":
            # Two in a row mean no more than one.
            if parts[-1] != ".*":
                parts.append(".*")
        elif here == "[" and (end := _end_of_class(text, index)) is not None:
            parts.append(_class(text[index:end]))
            index = end + 1
        else:
            parts.append(_character(here))
    return f"{''.join(parts)}$"


def _end_of_class(text: str, start: int) -> int | None:
    """Return where the `]` is (a first one is a character). None: there is none, so `[` is itself."""
    first = start + text.startswith("!", start)
    end = text.find("]", first + text.startswith("]", first))
    return None if end < 0 else end


def _class(inside: str) -> str:
    negated = inside.startswith("!")
    characters = inside[negated:]
    ranges: list[str] = []
    index = 0
    while index < len(characters):
        first = characters[index]
        if characters[index + 1 : index + 2] == "-" and index + 2 < len(characters):
            last = characters[index + 2]
            index += 3
            if first > last:
                continue  # a range the wrong way round has no characters
            ranges.append(f"{_character(first)}-{_character(last)}")
        else:
            ranges.append(_character(first))
            index += 1
    if not ranges:
        return "." if negated else r"[^\x{0}-\x{10FFFF}]"
    return f"[{'^' if negated else ''}{''.join(ranges)}]"


def _character(character: str) -> str:
    """Write the character itself, also in a class."""
    return character if character.isalnum() and character.isascii() else f"\\x{{{ord(character):X}}}"
