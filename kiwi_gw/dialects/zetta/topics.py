"""Topics of subscriptions: what they consist of, and which concrete topics they mean.

    hub/thermostat/*/temperature?select data.c where data.f > 85
    {^Det.+$}/**/[ab]*
    hub/query/where type = "thermostat"

A topic's levels stand between `/`. Matching looks at every level of a concrete topic once, with a set of
the places in the pattern that may be reached: linear in the levels, whatever the pattern.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from hashlib import blake2b
from typing import Final

from kiwi_gw.dialects.zetta.levels import AnyLevel, InvalidLevel, Level, RegexLevel, level
from kiwi_gw.errors import KiwiError
from kiwi_gw.query.limits import MAX_PROGRAM, MAX_TEXT

MAX_PATTERN: Final = 4096
"""Bytes of a topic without its query."""
MAX_LEVELS: Final = 64
"""Levels of a topic, in a subscription and of an event."""

MOST_ANSWERS: Final = 65_536
MOST_CHARACTERS: Final = 16 * 1024 * 1024
"""Answers that are remembered, of pattern and topic, and the characters of both."""

DEVICE_QUERY: Final = "query"
"""The second level with which a topic is not a pattern but a query over devices."""


class TopicError(KiwiError):
    """Report a topic that cannot be subscribed to (error 400). The message is for its author."""


class _LevelAutomaton:
    """Walk the levels of a pattern as sets of places, one bit each: bit n stands before level n.

    A `**` can be stepped over, one at the end cannot. Two in a row mean no more than one.
    """

    __slots__ = ("_accept", "_last", "_many", "_names", "_one", "_patterns")

    def __init__(self, levels: tuple[Level, ...]) -> None:
        self._names: dict[str, int] = {}
        self._patterns: list[tuple[int, RegexLevel]] = []
        self._one = self._many = self._last = 0
        place = 1
        before: Level | None = None
        for item in levels:
            if item is AnyLevel.MANY and before is AnyLevel.MANY:
                continue
            if item is AnyLevel.MANY:
                self._many |= place
            elif item is AnyLevel.ONE:
                self._one |= place
            elif isinstance(item, str):
                self._names[item] = self._names.get(item, 0) | place
            else:
                self._patterns.append((place, item))
            place <<= 1
            before = item
        if before is AnyLevel.MANY:
            self._last = place >> 1
            self._many ^= self._last
        self._accept = place

    def run(self, concrete: Sequence[str]) -> bool:
        """Return whether the levels of a concrete topic are meant."""
        here = self._stepped_over(1)
        for name in concrete:
            here = self._step(here, name)
        return bool(here & self._accept)

    def _step(self, here: int, name: str | None) -> int:
        """Return the places behind one more level. None: it may have any name."""
        if name is None:
            fits = ~self._many & (self._accept - 1)
        else:
            fits = self._one | self._last | self._names.get(name, 0)
            for place, pattern in self._patterns:
                if here & place and pattern.means(name):
                    fits |= place
        stays = here & (self._many | self._last)
        return self._stepped_over(stays | (here & fits) << 1)

    def may_run(self, levels: Sequence[str | None]) -> bool:
        """Decide the same for a topic of which some levels are not known. None: one level or more, of any
        name."""
        here = self._stepped_over(1)
        for name in levels:
            here = self._step(here, name)
            grown = 0
            while name is None and grown != here:
                grown, here = here, here | self._step(here, None)
        return bool(here & self._accept)

    def must_run(self, levels: Sequence[str | None]) -> bool:
        """Return whether every such topic is meant, as far as the levels before the first unknown one tell.
        There, a `**` at the end takes in what follows."""
        here = self._stepped_over(1)
        for name in levels:
            if here & self._last:
                return True
            if name is None:
                return False
            here = self._step(here, name)
        return bool(here & self._accept)

    @property
    def patterns(self) -> int:
        """Return how many levels are regular expressions."""
        return len(self._patterns)

    def _stepped_over(self, places: int) -> int:
        return places | (places & self._many) << 1


class TopicPattern:
    """Say which concrete topics are meant. Equal for equal texts."""

    __slots__ = ("_program", "concrete", "digest", "patterns", "text")

    def __init__(self, text: str, levels: tuple[Level, ...]) -> None:
        self.text: Final = text
        self.concrete: Final = all(isinstance(item, str) for item in levels)
        """Whether its text is the one topic that is meant."""
        self._program = _LevelAutomaton(levels)
        self.digest: Final = blake2b(text.encode(), digest_size=16).digest()
        """In its place where what is kept must be small: clients choose the text, of 4 KiB."""
        self.patterns: Final = self._program.patterns

    def matches(self, concrete: str) -> bool:
        """Return whether a concrete topic is meant. Later calls look it up in a table of bounded size."""
        found = _matches.get((self.digest, concrete))
        return _matches.keep(self.digest, concrete, self.decide(concrete)) if found is None else found

    def decide(self, concrete: str) -> bool:
        """Decide the same, without the table."""
        return self._program.run(concrete.split("/"))

    def may_match(self, levels: Sequence[str | None]) -> bool:
        """Return whether a topic could be meant, with some levels unknown. None: one level or more."""
        known = _written("may", levels)
        found = _template_matches.get((self.digest, known))
        if found is None:
            found = _template_matches.keep(self.digest, known, self._program.may_run(levels))
        return found

    def must_match(self, levels: Sequence[str | None]) -> bool:
        """Return whether all topics with some unknown levels are meant; false where that is not plain."""
        known = _written("must", levels)
        found = _template_matches.get((self.digest, known))
        if found is None:
            found = _template_matches.keep(self.digest, known, self._program.must_run(levels))
        return found

    def __eq__(self, other: object) -> bool:
        return isinstance(other, TopicPattern) and self.text == other.text

    def __hash__(self) -> int:
        return hash(self.text)

    def __repr__(self) -> str:
        return f"Pattern({self.text!r})"


class _MatchCache(dict[tuple[bytes, str], bool]):
    """Keep answers by the digest of the pattern and the topic. By the pattern itself, the programs of all
    regular expressions of a client that makes one after another would be kept, 100 KB each."""

    def __init__(self) -> None:
        super().__init__()
        self._characters = 0

    def keep(self, pattern: bytes, concrete: str, answer: bool) -> bool:
        if len(self) >= MOST_ANSWERS or self._characters > MOST_CHARACTERS:
            self.clear()
            self._characters = 0
        self[pattern, concrete] = answer
        self._characters += len(pattern) + len(concrete)
        return answer


_matches: Final = _MatchCache()
_template_matches: Final = _MatchCache()


def _written(question: str, levels: Sequence[str | None]) -> str:
    """Write the key of a question about the levels of a template, in which no name has a NUL."""
    return f"{question}/" + "/".join(name or "\0" for name in levels)


@dataclass(frozen=True, slots=True)
class Topic:
    """Hold what a client subscribes to. text: as it was sent.

    server: its first level. pattern: the concrete topics that are meant; of a device query, the servers.
    query: the CaQL behind the `?`; of a device query all that is behind `/query/`. None: there is none.
    """

    text: str
    server: str
    pattern: TopicPattern
    query: str | None = None
    of_devices: bool = False


def parse(text: str) -> Topic:
    """Read what a topic means.

    Levels are split at `/` outside braces. The query begins at the first `?` outside braces and double quotes
    (a quote that is never closed is a character like others). `{server}/query/...` is a device query,
    whatever follows: a type of devices that is called so is reached with `[q]uery` or `{^query$}`. Raises
    TopicError.
    """
    if len(text) > MAX_PATTERN + MAX_TEXT:
        raise TopicError(f"a topic has at most {MAX_PATTERN + MAX_TEXT} characters")
    return _parse(text)


@lru_cache(maxsize=256)
def _parse(text: str) -> Topic:
    try:
        text.encode()
    except UnicodeEncodeError:
        raise TopicError("the topic has half of a surrogate pair in it") from None
    if not text:
        raise TopicError("the topic is empty")
    parts, end, of_devices = _split(text)
    head = text[:end]
    if len(head.encode()) > MAX_PATTERN:
        raise TopicError(f"a topic has at most {MAX_PATTERN} bytes before its query")
    if not all(parts):
        raise TopicError("a level of the topic is empty")
    if len(parts) > MAX_LEVELS:
        raise TopicError(f"a topic has at most {MAX_LEVELS} levels")
    levels = _levels(parts)
    if of_devices:
        return Topic(text, parts[0], TopicPattern(parts[0], levels), _unless_blank(text[end:]), True)
    if len(levels) < 2 and levels[0] is not AnyLevel.MANY:
        raise TopicError("a topic has at least two levels, as in server/type")
    return Topic(text, parts[0], TopicPattern(head, levels), _unless_blank(text[end + 1 :]))


def _unless_blank(query: str) -> str | None:
    return query if query.strip() else None


def _levels(parts: list[str]) -> tuple[Level, ...]:
    try:
        levels = tuple(map(level, parts))
    except InvalidLevel as error:
        raise TopicError(str(error)) from None
    steps = sum(item.steps for item in levels if isinstance(item, RegexLevel))
    if steps > MAX_PROGRAM:
        raise TopicError(f"the patterns of the topic have more than {MAX_PROGRAM} steps together")
    return levels


def _split(text: str) -> tuple[list[str], int, bool]:
    """Return the levels, where they end, and whether what follows is a query over devices."""
    parts: list[str] = []
    start = index = quoted = 0  # quoted: before this a `?` is in quotes
    while index < len(text):
        match text[index]:
            case "{":
                closed = _closing_brace(text, index)
                if index != start or text[closed + 1 : closed + 2] not in ("", "/", "?"):
                    raise TopicError('braces hold a whole level, as in "hub/{^dev-[0-9]+$}/state"')
                index = closed
            case '"' if index >= quoted:
                quoted = text.find('"', index + 1) + 1
            case "?" if index >= quoted:
                break
            case "/":
                parts.append(text[start:index])
                start = index + 1
                if len(parts) == 2 and parts[1] == DEVICE_QUERY and parts[0] != AnyLevel.MANY.value:
                    return parts[:1], start, True
        index += 1
    parts.append(text[start:index])
    return parts, index, False


def _closing_brace(text: str, start: int) -> int:
    """Return where the brace at `start` is closed. Quantifiers in between have their own braces; escaped ones
    and those of a class (`[{]`) are characters. Raises TopicError."""
    depth, index, in_class = 0, start, False
    while index < len(text):
        here = text[index]
        if here == "\\":
            index += 1
        elif in_class:
            in_class = here != "]"
        elif here == "[":
            in_class = True
            index += text.startswith("^", index + 1)
            index += text.startswith("]", index + 1)
        elif here == "{":
            depth += 1
        elif here == "}":
            depth -= 1
            if not depth:
                return index
        index += 1
    raise TopicError("a brace of the topic is never closed")
