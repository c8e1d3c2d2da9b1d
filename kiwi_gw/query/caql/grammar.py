"""The grammar, and the tree that its rules build while the parser goes (LALR: nothing here calls itself)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
from lark import Lark, Token, Transformer
from lark.exceptions import UnexpectedCharacters, UnexpectedInput, UnexpectedToken

from kiwi_gw.query.caql.patterns import steps
from kiwi_gw.query.errors import QueryError
from kiwi_gw.query.limits import MAX_DEPTH, MAX_NODES, MAX_PROGRAMS
from kiwi_gw.query.patterns import PatternError
from kiwi_gw.query.tree import Call, Column, Constant, Literal, Node, Path, Query

_OPERATORS = {
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
_CONSTANTS: dict[str, Constant] = {"true": True, "false": False, "null": None}
_MAX_LITERAL_DIGITS = 400

_string = msgspec.json.Decoder(str).decode


@dataclass(frozen=True, slots=True)
class _Part:
    """A node, how deep it is, and how many nodes it consists of."""

    node: Node
    depth: int = 1
    size: int = 1

    @property
    def position(self) -> int:
        return self.node.position


@dataclass(frozen=True, slots=True)
class _Junction:
    """Conditions that are joined by one word, however they were put in parentheses."""

    word: str
    parts: tuple[_Part, ...]
    position: int


_Condition = _Part | _Junction


@dataclass(frozen=True, slots=True)
class _Chosen:
    """A column as it was written. alias: None, none was given."""

    path: Path
    alias: Token | None


def _call(name: str, parts: Sequence[_Part], position: int) -> _Part:
    depth = 1 + max(part.depth for part in parts)
    size = 1 + sum(part.size for part in parts)
    if depth > MAX_DEPTH:
        raise QueryError(f"a query is nested at most {MAX_DEPTH} deep", position)
    if size > MAX_NODES:
        raise QueryError(f"a query has at most {MAX_NODES} parts", position)
    return _Part(Call(name, tuple(part.node for part in parts), position), depth, size)


def _part(condition: _Condition) -> _Part:
    """A junction as one call of two inside the other, as flat as that can be."""
    if isinstance(condition, _Part):
        return condition
    parts = list(condition.parts)
    while len(parts) > 1:
        pairs = [
            _call(condition.word, parts[index : index + 2], condition.position)
            for index in range(0, len(parts) - 1, 2)
        ]
        parts = pairs + parts[len(pairs) * 2 :]
    return parts[0]


def _joined(word: str, conditions: Sequence[_Condition]) -> _Condition:
    if len(conditions) == 1:
        return conditions[0]
    parts: list[_Part] = []
    for condition in conditions:
        if isinstance(condition, _Junction) and condition.word == word:
            parts.extend(condition.parts)
        else:
            parts.append(_part(condition))
    if sum(part.size for part in parts) > MAX_NODES:
        raise QueryError(f"a query has at most {MAX_NODES} parts", parts[-1].position)
    return _Junction(word, tuple(parts), conditions[0].position)


class _Builder(Transformer[Token, Any]):
    """Each rule of the grammar by its name. steps: of the patterns of one text."""

    def __init__(self, roots: Sequence[str]) -> None:
        super().__init__(visit_tokens=False)
        self._roots = roots
        self.steps = 0

    # --- operands

    def path(self, children: list[Token]) -> _Part:
        return _Part(self._path(children[0]))

    def _path(self, token: Token) -> Path:
        root, *steps = token.split(".")
        position = token.start_pos or 0
        if root not in self._roots:
            known = " or ".join(filter(None, (", ".join(self._roots[:-1]), self._roots[-1])))
            raise QueryError(f"there is no {root!r} here; a name begins with {known}", position)
        if len(steps) > MAX_DEPTH:
            raise QueryError(f"a name has at most {MAX_DEPTH} members", position)
        return Path(root, tuple(steps), position)

    def number(self, children: list[Token]) -> _Part:
        token = children[0]
        value: int | float
        position = token.start_pos or 0
        if len(token) > _MAX_LITERAL_DIGITS:
            raise QueryError(f"a number has at most {_MAX_LITERAL_DIGITS} digits", position)
        value = float(token) if any(mark in token for mark in ".eE") else int(token)
        if isinstance(value, float) and math.isinf(value):
            raise QueryError(f"{token} is too large a number", position)
        return _Part(Literal(value, position))

    def string(self, children: list[Token]) -> _Part:
        return _Part(Literal(_text(children[0]), children[0].start_pos or 0))

    def constant(self, children: list[Token]) -> _Part:
        return _Part(Literal(_CONSTANTS[children[0].lower()], children[0].start_pos or 0))

    # --- conditions

    def compared(self, children: list[Any]) -> _Part:
        left, operator, right = children
        return _call(_OPERATORS[operator.lower()], (left, right), operator.start_pos)

    def matched(self, children: list[Any]) -> _Part:
        left, *negation, word, pattern = children
        operator, position = word.lower(), pattern.start_pos
        text = _text(pattern)
        try:
            self.steps += steps(operator, text)
        except PatternError as error:
            raise QueryError(f"{operator}: {_cut(str(error), 200)}", position) from None
        if self.steps > MAX_PROGRAMS:
            raise QueryError("the patterns of the query make too large programs", position)
        # Not the same as `not (a like b)`: a comparison with what is missing is false, this one too.
        name = f"caql.not_{operator}" if negation else f"caql.{operator}"
        return _call(name, (left, _Part(Literal(text, position))), word.start_pos)

    def missing(self, children: list[Any]) -> _Part:
        operand, *negation = children
        found = _call("caql.missing", (operand,), operand.position)
        return _call("not", (found,), operand.position) if negation else found

    def negated(self, children: list[Any]) -> _Part:
        word, condition = children
        return _call("not", (_part(condition),), word.start_pos)

    def all_of(self, children: list[_Condition]) -> _Condition:
        return _joined("and", children)

    def any_of(self, children: list[_Condition]) -> _Condition:
        return _joined("or", children)

    # --- clauses

    def column(self, children: list[Any]) -> _Chosen:
        return _Chosen(self._path(children[0]), children[1])

    def selection(self, children: list[Any]) -> tuple[Column, ...] | None:
        if isinstance(children[0], Token):
            return None
        if len(children) > MAX_NODES:
            raise QueryError(f"a query has at most {MAX_NODES} parts", children[MAX_NODES].path.position)
        return _columns(children, self._roots[0])

    def filter(self, children: list[_Condition]) -> _Part:
        return _part(children[0])

    def ordering(self, children: list[Any]) -> None:
        self._path(children[0])

    def order(self, children: list[Any]) -> None:
        raise QueryError("`order by` cannot be had: events come as they happen", children[0].start_pos)

    def start(self, children: list[Any]) -> Query:
        select, where, _ = children
        if where is None:
            return Query(None, select)
        if where.size + len(select or ()) > MAX_NODES:
            raise QueryError(f"a query has at most {MAX_NODES} parts", where.position)
        return Query(where.node, select)


def _text(token: Token) -> str:
    try:
        text = _string(str(token))
        text.encode()
    except (msgspec.MsgspecError, UnicodeError):
        raise QueryError("a text is written as in JSON", token.start_pos) from None
    return text


def _columns(chosen: Sequence[_Chosen], whole: str) -> tuple[Column, ...] | None:
    """The columns, each once. None: they are all of the event's value, as it is.

    Raises QueryError for two that would have to stand in one place of the result.
    """
    found: dict[tuple[str, ...], Column] = {}
    aliased: set[tuple[str, ...]] = set()
    for column in chosen:
        path = column.path
        if column.alias is not None:
            name: tuple[str, ...] = (str(column.alias),)
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


def parse(text: str, roots: tuple[str, ...]) -> Query:
    """The tree of a text that is not too long. Raises QueryError."""
    try:
        parser, builder = _parser(roots)
        builder.steps = 0
        query = parser.parse(text)
    except UnexpectedCharacters as error:
        position = error.pos_in_stream
        assert position is not None  # noqa: S101
        raise QueryError(_strange(text, position), position) from None
    except UnexpectedToken as error:
        token = error.token
        if token.type == "$END":
            raise QueryError("the query ends too early", len(text)) from None
        shown = _shortened(text[token.start_pos :])
        raise QueryError(f"{shown!r} cannot stand here", token.start_pos) from None
    except UnexpectedInput as error:
        raise QueryError("this is no CaQL", error.pos_in_stream) from None
    assert isinstance(query, Query)  # noqa: S101
    return query


def _strange(text: str, position: int) -> str:
    match text[position]:
        case "'":
            return 'a text is put in double quotes ("), not in single ones'
        case '"':
            return "a text begins here that has no end, or none may stand here"
    return f"{_shortened(text[position:])!r} cannot stand here"


def _shortened(rest: str) -> str:
    word = rest.split(maxsplit=1)[0] if rest.strip() else rest
    return _cut(word, 20)


def _cut(words: str, length: int) -> str:
    return words if len(words) <= length else words[:length] + "..."


_parsers: dict[tuple[str, ...], tuple[Lark, _Builder]] = {}


def _parser(roots: tuple[str, ...]) -> tuple[Lark, _Builder]:
    """The parser for these roots. There are as many as dialects have kinds of queries: two."""
    if roots not in _parsers:
        builder = _Builder(roots)
        parser = Lark.open_from_package(__package__, "caql.lark", parser="lalr", transformer=builder)
        _parsers[roots] = parser, builder
    return _parsers[roots]
