"""Reads CaQL: `[select ...] [where ...] [order by ...]`, keywords in any case, names as they are written.

Conditions are read with a stack: parentheses may be nested at will, and nothing here calls itself. A keyword
is only recognized where it may stand, so a name may be a word that is a keyword elsewhere.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, NoReturn

import msgspec

from kiwi_gw.query.caql.patterns import steps
from kiwi_gw.query.errors import QueryError
from kiwi_gw.query.limits import MAX_DEPTH, MAX_NODES, MAX_PROGRAMS
from kiwi_gw.query.node_factory import NodeFactory
from kiwi_gw.query.patterns import PatternError
from kiwi_gw.query.tree import Column, Constant, FunctionCall, Literal, Node, Path, Query

_OPERATORS: Final = {
    "=": "caql.=",
    "eq": "caql.=",
    "!=": "caql.<>",
    "neq": "caql.<>",
    ">": "caql.>",
    "gt": "caql.>",
    "<": "caql.<",
    "lt": "caql.<",
    ">=": "caql.>=",
    "gte": "caql.>=",
    "<=": "caql.<=",
    "lte": "caql.<=",
}
_CONSTANTS: Final[dict[str, Constant]] = {"true": True, "false": False, "null": None}
_MAX_LITERAL_DIGITS: Final = 400


_SELECT, _WHERE, _ORDER, _BY, _AS = (
    re.compile(rf"{word}\b", re.IGNORECASE) for word in ("select", "where", "order", "by", "as")
)
_IS, _MISSING, _NOT, _DIRECTION = (
    re.compile(rf"{word}\b", re.IGNORECASE) for word in ("is", "missing", "not", "(?:asc|desc)")
)
_JUNCTION: Final = re.compile(r"(?P<and>and\b|&&)|(?P<or>or\b|\|\|)", re.IGNORECASE)
_PATTERN: Final = re.compile(r"(?:contains|like)\b", re.IGNORECASE)
_CONSTANT: Final = re.compile(r"(?:true|false|null)\b", re.IGNORECASE)
_COMPARISON: Final = re.compile(r"!=|>=|<=|=|>|<|(?:eq|neq|gte|gt|lte|lt)\b", re.IGNORECASE)
_NUMBER: Final = re.compile(r"[+-]?(?:[0-9]++(?:\.[0-9]*+)?|\.[0-9]++)(?:[eE][+-]?[0-9]+)?(?![\w.])")
_STRING: Final = re.compile(r'"(?:[^"\\]|\\.)*+"', re.DOTALL)
_PATH: Final = re.compile(r"[^\W\d][\w-]*+(?:\.[\w-]++)*")
_NAME: Final = re.compile(r"[\w-]+")
_STAR, _COMMA, _OPEN, _CLOSE = (re.compile(re.escape(sign)) for sign in "*,()")
_BLANK: Final = re.compile(r"\s*+")

_string = msgspec.json.Decoder(str).decode

_Found = re.Match[str]


@dataclass(frozen=True, slots=True)
class _Junction:
    """Hold conditions that are joined by one word, however they were put in parentheses."""

    word: str
    parts: list[Node]


_Condition = FunctionCall | _Junction


@dataclass(frozen=True, slots=True)
class _Chosen:
    """Hold a column as it was written. alias: None, none was given."""

    path: Path
    alias: str | None


@dataclass(frozen=True, slots=True)
class _Waiting:
    """Hold a word or an open parenthesis on the stack of a condition, for what comes behind it."""

    word: str
    position: int
    left: _Condition | None = None


_BINDS: Final = {"(": 0, "or": 1, "and": 2, "not": 3}


class CaqlParser:
    """Read one text. roots: the names with which a path may begin."""

    def __init__(self, text: str, roots: Sequence[str]) -> None:
        self._text = text
        self._roots = roots
        self._place = 0
        self._steps = 0  # of its patterns
        self._nodes = NodeFactory()

    def query(self) -> Query:
        """Read all of the text.

        Raises:
            QueryError: it is not a query, or larger than one may be; with the position.
        """
        select = self._selection() if self._take(_SELECT) else None
        where = self._condition() if self._take(_WHERE) else None
        if order := self._take(_ORDER):
            self._refuse_order(order.start())
        if self._ahead() < len(self._text):
            self._wrong()
        for column in select or ():
            self._nodes.use(column.value)
        if where is not None:
            self._nodes.use(where)
        return Query(where, select)

    # --- the text ---

    def _ahead(self) -> int:
        found = _BLANK.match(self._text, self._place)
        return found.end() if found is not None else self._place

    def _take(self, what: re.Pattern[str]) -> _Found | None:
        found = what.match(self._text, self._ahead())
        if found is not None:
            self._place = found.end()
        return found

    def _expect(self, what: re.Pattern[str]) -> _Found:
        return self._take(what) or self._wrong()

    def _wrong(self) -> NoReturn:
        """Raise a QueryError for what comes next."""
        text, place = self._text, self._ahead()
        if place == len(text):
            raise QueryError("the query ends too early", place)
        if text[place] == "'":
            raise QueryError('a text is put in double quotes ("), not in single ones', place)
        if text[place] == '"' and _STRING.match(text, place) is None:
            raise QueryError("a text begins here that has no end, or none may stand here", place)
        raise QueryError(f"{_shortened(text[place:])!r} cannot stand here", place)

    # --- clauses ---

    def _selection(self) -> tuple[Column, ...] | None:
        if self._take(_STAR):
            return None
        chosen: list[_Chosen] = []
        while not chosen or self._take(_COMMA):
            path = self._path(self._expect(_PATH))
            alias = self._expect(_NAME)[0] if self._take(_AS) else None
            chosen.append(_Chosen(path, alias))
            if len(chosen) > MAX_NODES:
                raise QueryError(f"a query has at most {MAX_NODES} parts", path.position)
        return _columns(chosen, self._roots[0])

    def _refuse_order(self, position: int) -> NoReturn:
        """Read to the end, so that a mistake behind it is reported first; then refuse `order by`."""
        self._expect(_BY)
        while True:
            self._path(self._expect(_PATH))
            self._take(_DIRECTION)
            if not self._take(_COMMA):
                break
        if self._ahead() < len(self._text):
            self._wrong()
        raise QueryError("`order by` cannot be had: events come as they happen", position)

    # --- conditions ---

    def _condition(self) -> Node:
        waiting: list[_Waiting] = []
        while True:
            found: Path | Literal | _Condition = self._begun(waiting)
            while True:  # behind an operand or a condition
                if isinstance(found, Path | Literal):
                    if waiting and waiting[-1].word == "(" and self._take(_CLOSE):
                        waiting.pop()
                        continue
                    found = self._compared(found)
                junction = self._take(_JUNCTION)
                word = (junction.lastgroup or "") if junction is not None else ""
                found = self._reduced(found, waiting, _BINDS.get(word, 1))
                if junction is not None:
                    waiting.append(_Waiting(word, junction.start(), found))
                    break
                if not waiting:
                    return self._whole(found)
                self._expect(_CLOSE)
                waiting.pop()

    def _begun(self, waiting: list[_Waiting]) -> Path | Literal:
        """Read the words and parentheses before an operand, and the operand."""
        while True:
            if found := self._take(_OPEN):
                waiting.append(_Waiting("(", found.start()))
            elif (found := self._take(_NOT)) and (not waiting or waiting[-1].word in _BINDS):
                waiting.append(_Waiting("not", found.start()))
            else:
                return self._operand()

    def _reduced(self, found: _Condition, waiting: list[_Waiting], binds: int) -> _Condition:
        """Join a condition with what waits for it and binds at least so tightly."""
        while waiting and _BINDS[waiting[-1].word] >= binds:
            before = waiting.pop()
            if before.left is None:
                found = self._nodes.call("not", before.position, self._whole(found))
                continue
            parts: list[Node] = []
            for one in (before.left, found):
                same = isinstance(one, _Junction) and one.word == before.word
                parts += one.parts if isinstance(one, _Junction) and same else [self._whole(one)]
            found = _Junction(before.word, parts)
        return found

    def _whole(self, condition: _Condition) -> Node:
        if isinstance(condition, _Junction):
            return self._nodes.joined(condition.word, condition.parts)
        return condition

    def _compared(self, left: Path | Literal) -> FunctionCall:
        """Read the comparison or test of an operand."""
        call = self._nodes.call
        if found := self._take(_COMPARISON):
            open_ = 0
            while self._take(_OPEN):
                open_ += 1
            other = self._operand()
            for _ in range(open_):
                self._expect(_CLOSE)
            return call(_OPERATORS[found[0].lower()], found.start(), left, other)
        if self._take(_IS):
            negated = self._take(_NOT) is not None
            self._expect(_MISSING)
            missing = call("caql.missing", left.position, left)
            return call("not", left.position, missing) if negated else missing
        negated = self._take(_NOT) is not None
        word = self._expect(_PATTERN)
        operator = word[0].lower()
        # Not the same as `not (a like b)`: a comparison with what is missing is false, this one too.
        name = f"caql.not_{operator}" if negated else f"caql.{operator}"
        return call(name, word.start(), left, self._pattern(operator))

    def _pattern(self, operator: str) -> Literal:
        written = self._expect(_STRING)
        text, position = _text(written), written.start()
        try:
            self._steps += steps(operator, text)
        except PatternError as error:
            raise QueryError(f"{operator}: {_cut(str(error), 200)}", position) from None
        if self._steps > MAX_PROGRAMS:
            raise QueryError("the patterns of the query make too large programs", position)
        return self._nodes.leaf(Literal(text, position))

    # --- operands ---

    def _operand(self) -> Path | Literal:
        if found := self._take(_NUMBER):
            return self._nodes.leaf(_number(found))
        if found := self._take(_STRING):
            return self._nodes.leaf(Literal(_text(found), found.start()))
        if found := self._take(_CONSTANT):
            return self._nodes.leaf(Literal(_CONSTANTS[found[0].lower()], found.start()))
        return self._path(self._expect(_PATH))

    def _path(self, found: _Found) -> Path:
        root, *members = found[0].split(".")
        position = found.start()
        if root not in self._roots:
            if _OPEN.match(self._text, self._ahead()):
                self._wrong()  # a function
            known = " or ".join(filter(None, (", ".join(self._roots[:-1]), self._roots[-1])))
            raise QueryError(f"there is no {root!r} here; a name begins with {known}", position)
        if len(members) > MAX_DEPTH:
            raise QueryError(f"a name has at most {MAX_DEPTH} members", position)
        return self._nodes.leaf(Path(root, tuple(members), position))


def _number(found: _Found) -> Literal:
    text, position = found[0], found.start()
    if len(text) > _MAX_LITERAL_DIGITS:
        raise QueryError(f"a number has at most {_MAX_LITERAL_DIGITS} digits", position)
    value = float(text) if any(mark in text for mark in ".eE") else int(text)
    if isinstance(value, float) and math.isinf(value):
        raise QueryError(f"{text} is too large a number", position)
    return Literal(value, position)


def _text(found: _Found) -> str:
    try:
        text = _string(found[0])
        text.encode()
    except (msgspec.MsgspecError, UnicodeError):
        raise QueryError("a text is written as in JSON", found.start()) from None
    return text


def _columns(chosen: Sequence[_Chosen], whole: str) -> tuple[Column, ...] | None:
    """Choose the columns, each once. None: they are all of the event's value, as it is.

    Raises QueryError for two that would have to stand in one place of the result.
    """
    found: dict[tuple[str, ...], Column] = {}
    aliased: set[tuple[str, ...]] = set()
    for column in chosen:
        path = column.path
        if column.alias is not None:
            name: tuple[str, ...] = (column.alias,)
        elif path.root == whole and path.steps:
            name = tuple(str(step) for step in path.steps)
        else:
            name = (path.root, *map(str, path.steps))
        made = Column(name, path, lenient=True)
        if found.get(name) == made:
            continue
        if name in found:
            raise QueryError(
                f"{'.'.join(name)!r} is selected twice; `as` gives it another name", path.position
            )
        found[name] = made
        if column.alias is not None or path.root != whole or not path.steps:
            aliased.add(name)
    if list(found.values()) == [Column((whole,), Path(whole), lenient=True)]:
        return None
    kept: list[Column] = []
    for name, column_ in found.items():
        above = next((name[:length] for length in range(1, len(name)) if name[:length] in found), None)
        if above is None:
            kept.append(column_)
        elif above in aliased or name in aliased:
            message = f"{'.'.join(name)!r} lies in {'.'.join(above)!r}; `as` gives it another name"
            raise QueryError(message, column_.value.position)
        # else: `select data.a, data.a.b`, and data.a has it already.
    return tuple(kept)


def _shortened(rest: str) -> str:
    word = rest.split(maxsplit=1)[0] if rest.strip() else rest
    return _cut(word, 20)


def _cut(words: str, length: int) -> str:
    return words if len(words) <= length else words[:length] + "..."
