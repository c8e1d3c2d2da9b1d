"""Patterns of dates and times, as Spark writes them: `yyyy-MM-dd HH:mm:ss.SSS`.

Letters: y year, M month (MMM, MMMM by its English name), d day, D day of the year, E weekday, H hour, h hour
of 12 with a, m minute, s second, S fraction, Q quarter, and X, x, Z, z for the zone, which is UTC. Text is in
single quotes. Anything else is refused.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Final

from kiwi_gw.query.limits import MAX_DATE_FIELDS, MAX_DATE_PATTERN
from kiwi_gw.query.patterns import Pattern, PatternError, regex, shown

_TOKEN: Final = re.compile(r"'((?:[^']|'')*)'|([A-Za-z])\2*|[^A-Za-z']")
_MONTHS: Final = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
]
_DAYS: Final = ["Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"]
_LETTERS: Final = {
    "y": 6, "M": 4, "L": 4, "d": 2, "D": 3, "E": 4, "H": 2, "h": 2, "k": 2, "K": 2, "a": 1, "m": 2,
    "s": 2, "S": 9, "Q": 2, "X": 3, "x": 3, "Z": 5, "z": 3,
}  # fmt: skip
_LONGEST_FIELD: Final = 9
"""Characters of a text for one of its pattern, at most: `yyyy` are six, `E` is three, a zone six."""
# A field of a pattern (letter and count), or a text between fields.
Piece = tuple[str, int] | str


@lru_cache(maxsize=256)
def pieces(pattern: str) -> tuple[Piece, ...]:
    """
    Raises:
        PatternError: the pattern has what is not here.
    """
    if len(pattern) > MAX_DATE_PATTERN:
        raise PatternError(f"a pattern of dates of more than {MAX_DATE_PATTERN} characters")
    found: list[Piece] = []
    place = fields = 0
    for token in _TOKEN.finditer(pattern):
        if token.start() != place:
            break
        place = token.end()
        letter = token[2]
        if token[1] is not None:
            found.append(token[1].replace("''", "'") or "'")
        elif letter is None:
            if token[0] in "[]{}#":
                raise PatternError(f"{token[0]} in the pattern {shown(pattern)} is not here")
            found.append(token[0])
        elif len(token[0]) > _LETTERS.get(letter, 0):
            raise PatternError(f"{token[0]} in the pattern {shown(pattern)} is not here")
        else:
            found.append((letter, len(token[0])))
            fields += 1
    if place != len(pattern):
        raise PatternError(f"a single quote in the pattern {shown(pattern)} is not closed")
    if fields > MAX_DATE_FIELDS:
        raise PatternError(f"the pattern {shown(pattern)} has more than {MAX_DATE_FIELDS} fields")
    return tuple(found)


def write(moment: datetime, pattern: str) -> str:
    """The moment in UTC, as the pattern says.

    Raises:
        PatternError: see `pieces`.
    """
    return "".join(piece if isinstance(piece, str) else _field(moment, *piece) for piece in pieces(pattern))


def _field(moment: datetime, letter: str, count: int) -> str:
    if letter in "ML" and count > 2:
        name = _MONTHS[moment.month - 1]
        return name if count == 4 else name[:3]
    if letter == "E":
        name = _DAYS[moment.weekday()]
        return name if count == 4 else name[:3]
    if letter == "y" and count == 2:
        return f"{moment.year % 100:02}"
    if letter == "S":
        return f"{moment.microsecond:06}000"[:count]
    if letter == "a":
        return "AM" if moment.hour < 12 else "PM"
    if letter in "XxZz":
        return _zone(letter, count)
    return f"{_number(moment, letter):0{count}}"


def _zone(letter: str, count: int) -> str:
    """UTC has a name, a sign of its own, and offsets with and without a colon."""
    if letter == "z":
        return "UTC"
    if letter == "X" or (letter == "Z" and count == 5):
        return "Z"
    if letter == "Z":
        return "GMT" if count == 4 else "+0000"
    return ("+00", "+0000", "+00:00")[count - 1]


def _number(moment: datetime, letter: str) -> int:
    match letter:
        case "y":
            return moment.year
        case "M" | "L":
            return moment.month
        case "d":
            return moment.day
        case "D":
            return moment.timetuple().tm_yday
        case "H":
            return moment.hour
        case "h":
            return moment.hour % 12 or 12
        case "k":
            return moment.hour or 24
        case "K":
            return moment.hour % 12
        case "m":
            return moment.minute
        case "s":
            return moment.second
        case _:
            return (moment.month + 2) // 3


@lru_cache(maxsize=32)
def _looks(pattern: str) -> tuple[str, tuple[str, ...]]:
    """What a text in the pattern looks like, as a regular expression, and the letters of its groups."""
    parts: list[str] = []
    letters: list[str] = []
    whole = pieces(pattern)
    for index, piece in enumerate(whole):
        if isinstance(piece, str):
            parts.append(re.escape(piece))
            continue
        letter, count = piece
        letters.append(letter)
        following = whole[index + 1] if index + 1 < len(whole) else ""
        if letter in "ML" and count > 2:
            names = [name if count == 4 else name[:3] for name in _MONTHS]
            parts.append(f"({'|'.join(names)})")
        elif letter == "E":
            parts.append(f"({'|'.join(name if count == 4 else name[:3] for name in _DAYS)})")
        elif letter == "a":
            parts.append("(AM|PM)")
        elif letter in "XxZz":
            parts.append(r"(Z|UTC|GMT|[+-]\d{2}(?::?\d{2})?)")
        elif letter == "S" or not isinstance(following, str) or count > 1:
            # Two letters are two digits; four of a year are four to six unless digits follow.
            more = 6 if letter == "y" and count >= 4 and isinstance(following, str) else count
            parts.append(rf"(\d{{{count},{more}}})")
        else:
            parts.append(r"(\d{1,6})" if letter == "y" else r"(\d{1,3})" if letter == "D" else r"(\d{1,2})")
    return "".join(parts), tuple(letters)


def reader(pattern: str) -> tuple[Pattern, tuple[str, ...]]:
    """What reads a text in the pattern, and the letters of its groups. On RE2: several fields of any number
    of digits one after the other are too much for what goes back and tries again.

    Raises:
        PatternError: see `pieces`.
    """
    written, letters = _looks(pattern)
    return regex(written, any_case=True, dot_all=True), letters


def read(text: str, pattern: str) -> datetime | None:
    """The moment that a text in the pattern means; None: it is no such text.

    Raises:
        PatternError: see `pieces`.
    """
    if len(text) > _LONGEST_FIELD * len(pattern):
        return None
    expression, letters = reader(pattern)
    found = expression.fullmatch(text.encode("utf-8", "surrogatepass"))
    if found is None:
        return None
    parts: dict[str, int] = {}
    east = 0
    for letter, value in zip(letters, [group.decode() for group in found.groups()], strict=True):
        if letter == "S":
            parts["S"] = int(value.ljust(6, "0")[:6])
        elif letter in "XxZz":
            east = _east(value)
        elif letter == "a":
            parts["a"] = int(value.upper() == "PM")
        elif letter in "ML" and not value.isdigit():
            parts["M"] = next(n for n, name in enumerate(_MONTHS, 1) if name[:3].lower() == value[:3].lower())
        elif letter == "y" and len(value) == 2:
            parts["y"] = int(value) + 2000
        elif letter != "E":
            parts[{"L": "M"}.get(letter, letter)] = int(value)
    return _moment(parts, east)


def _moment(parts: dict[str, int], east: int) -> datetime | None:
    hour = parts.get("H", parts.get("k", 0) % 24)
    if "h" in parts or "K" in parts:
        half = parts.get("h", parts.get("K", 0))
        if half > 12:
            return None
        hour = half % 12 + 12 * parts.get("a", 0)
    try:
        moment = datetime(
            parts.get("y", 1970), parts.get("M", 1), parts.get("d", 1),
            hour, parts.get("m", 0), parts.get("s", 0), parts.get("S", 0), UTC,
        )  # fmt: skip
        if "D" in parts and "M" not in parts and "d" not in parts:
            moment += timedelta(days=parts["D"] - 1)
        return moment - timedelta(minutes=east)
    except (ValueError, OverflowError):
        return None


def _east(zone: str) -> int:
    """Minutes."""
    if zone[0] not in "+-":
        return 0
    digits = zone[1:].replace(":", "")
    minutes = int(digits[:2]) * 60 + int(digits[2:] or 0)
    return -minutes if zone[0] == "-" else minutes
