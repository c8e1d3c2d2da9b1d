"""Takes the text of a query apart: words, numbers, texts in quotes and signs."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum
from typing import Final

from kiwi_gw.query.errors import QueryError

_BLANK: Final = re.compile(r"(?:\s++|--[^\n]*+|/\*(?!\+)(?:[^*]++|\*(?!/))*+\*/)++")
# What opens and is never closed is a sign.
_TOKEN: Final = re.compile(
    r"""(?P<raw>[rR](?:'[^']*+'|"[^"]*+"))
    |(?P<string>'(?:[^'\\]|\\.)*+'|"(?:[^"\\]|\\.)*+")
    |(?P<name>`(?:[^`]|``)*+`)
    |(?P<hexadecimal>[xX]'[^']*+')
    |(?P<number>[0-9]++(?:\.[0-9]*+)?(?:[eE][+-]?[0-9]++)?\w*+)
    |(?P<word>[^\W\d]\w*+)
    |(?P<sign><=>|<=|>=|<>|!=|==|\|\||::|->|=>|/\*\+?|.)""",
    re.DOTALL | re.VERBOSE,
)
_ESCAPE: Final = re.compile(
    r"\\(?:u([0-9a-fA-F]{4})|U(00(?:0[0-9a-fA-F]|10)[0-9a-fA-F]{4})|([0-3][0-7]{2})|(.))", re.DOTALL
)
_HALVES: Final = re.compile("[\ud800-\udbff][\udc00-\udfff]|[\ud800-\udfff]")
_ESCAPED: Final = {
    "0": "\0", "b": "\b", "n": "\n", "r": "\r", "t": "\t", "Z": "\x1a", "%": "\\%", "_": "\\_",
}  # fmt: skip
_SHOWN: Final = 40


class Kind(Enum):
    """Say what a token is. An END is behind the last one of every text."""

    WORD = "word"
    NAME = "name in backquotes"
    NUMBER = "number"
    STRING = "text in quotes"
    SIGN = "sign"
    END = "end"


@dataclass(frozen=True, slots=True)
class SqlToken:
    """Hold a token. text: of a name or a string what it means, else as it is written. upper: of a word or a
    sign, in capitals; else a line feed, which is neither. start, end: its place in the text of the query."""

    kind: Kind
    text: str
    start: int
    end: int
    upper: str = "\n"

    def __str__(self) -> str:
        """Write it for a message."""
        return repr(self.text if len(self.text) <= _SHOWN else f"{self.text[:_SHOWN]}...")


def tokenized(text: str, max_tokens: int, start: int = 0, *, semicolons: bool = False) -> list[SqlToken]:
    """Return the tokens of a text, with an END. start: where to begin. semicolons: they are signs as others.

    Raises:
        QueryError: there are no tokens or too many, or something is never closed; with the position.
    """
    tokens: list[SqlToken] = []
    place = behind_blanks(text, start)
    while place < len(text):
        if len(tokens) == max_tokens:
            raise QueryError(f"it has more than {max_tokens} words and signs")
        found = _TOKEN.match(text, place)
        assert found is not None  # noqa: S101  (any character is a sign)
        tokens.append(_token(found, semicolons=semicolons))
        place = behind_blanks(text, found.end())
    if not tokens and not start:
        raise QueryError("there is nothing in it", 0)
    end = len(text.rstrip())
    return [*tokens, SqlToken(Kind.END, "", end, end)]


def behind_blanks(text: str, place: int) -> int:
    """Return where blanks and comments that begin at a place end."""
    found = _BLANK.match(text, place)
    return place if found is None else found.end()


def _token(found: re.Match[str], *, semicolons: bool) -> SqlToken:
    written, (start, end) = found[0], found.span()
    match found.lastgroup:
        case "word":
            return SqlToken(Kind.WORD, written, start, end, written.upper())
        case "number":
            return SqlToken(Kind.NUMBER, written, start, end)
        case "name":
            return SqlToken(Kind.NAME, written[1:-1].replace("``", "`"), start, end)
        case "string":
            meant = _HALVES.sub(_paired, _ESCAPE.sub(_unescaped, written[1:-1]))
            return SqlToken(Kind.STRING, meant, start, end)
        case "raw":
            return SqlToken(Kind.STRING, written[2:-1], start, end)
        case "hexadecimal":
            return SqlToken(Kind.SIGN, written[2:-1], start, end)
    if written == ";" and not semicolons:
        raise QueryError("one expression, without a semicolon", start)
    if written in ("'", '"', "`", "/*"):
        raise QueryError(f"this {written} is never closed", start)
    return SqlToken(Kind.SIGN, written, start, end, written)


def _unescaped(found: re.Match[str]) -> str:
    """Return what a backslash and the characters behind it mean, as in Spark."""
    short, long, octal, other = found.groups()
    if other is not None:
        return _ESCAPED.get(other, other)
    return chr(int(octal, 8) if octal else int(short or long, 16))


def _paired(found: re.Match[str]) -> str:
    """Return the character that two halves are in UTF-16; `?` for one alone, as Java."""
    return found[0].encode("utf-16", "surrogatepass").decode("utf-16") if len(found[0]) == 2 else "?"
