"""From sqlglot's nodes to the tree of queries: what is on the list here, and nothing else.

Where Spark and sqlglot bind operators differently (`a = b LIKE c`, `a || b + c`), the text has to say with
parentheses what it means. So whatever is accepted means what it means to Spark.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import Final

from sqlglot import exp

from kiwi_gw.query.errors import QueryError
from kiwi_gw.query.sql.grammar import NO_DECIMALS, TYPES
from kiwi_gw.query.tree import Call, Cast, Literal, Node, Path

_NUMBER: Final = re.compile(
    r"(?P<digits>[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?P<exponent>[eE][+-]?[0-9]+)?(?P<suffix>L|S|Y|D|F|BD)?",
    re.IGNORECASE,
)
_WHOLE: Final = {None: 64, "L": 64, "S": 16, "Y": 8}
_SUFFIXES: Final = {"L": "BIGINT", "S": "SMALLINT", "Y": "TINYINT", "F": "FLOAT", "D": "DOUBLE"}

_COMPARISONS: Final[dict[type[exp.Expr], str]] = {
    exp.EQ: "=",
    exp.NEQ: "<>",
    exp.LT: "<",
    exp.LTE: "<=",
    exp.GT: ">",
    exp.GTE: ">=",
    exp.NullSafeEQ: "<=>",
}
_ARITHMETIC: Final[dict[type[exp.Expr], str]] = {
    exp.Add: "+",
    exp.Sub: "-",
    exp.Mul: "*",
    exp.Div: "/",
    exp.Mod: "%",
    exp.IntDiv: "div",
}
_LIKES: Final[dict[type[exp.Expr], str]] = {exp.Like: "like", exp.ILike: "ilike", exp.RegexpLike: "rlike"}
_PREDICATES: Final = (*_LIKES, exp.Escape, exp.In, exp.Between, exp.Is, exp.NullSafeNEQ)
_LOOSE: Final = (*_COMPARISONS, *_PREDICATES, exp.Not, exp.And, exp.Or)
"""What binds looser than arithmetic."""

_FIELDS: Final = {
    "YEAR": "year",
    "YEARS": "year",
    "Y": "year",
    "QUARTER": "quarter",
    "QTR": "quarter",
    "MONTH": "month",
    "MONTHS": "month",
    "WEEK": "weekofyear",
    "W": "weekofyear",
    "DAY": "day",
    "D": "day",
    "DAYS": "day",
    "DAYOFWEEK": "dayofweek",
    "DOW": "dayofweek",
    "DOY": "dayofyear",
    "HOUR": "hour",
    "HOURS": "hour",
    "H": "hour",
    "MINUTE": "minute",
    "MINUTES": "minute",
    "MIN": "minute",
}
"""Of EXTRACT. Seconds are decimals in Spark, and so not here."""


class Reader:
    """Makes trees of one text. max_nodes: of all of them; a value that is meant twice counts twice."""

    def __init__(self, max_depth: int, max_nodes: int) -> None:
        self._max_depth = max_depth
        self._max_nodes = max_nodes
        self._sizes: dict[int, int] = {}
        self._kept: list[Node] = []  # so that no id is used again

    def node(self, found: exp.Expr) -> Node:
        """The tree. Raises QueryError."""
        made = self._node(found, 1)
        self._max_nodes -= self._size(made)
        return made

    # --- what there is ---------------------------------------------------------------------

    def _node(self, found: exp.Expr, depth: int) -> Node:
        if depth > self._max_depth:
            raise QueryError(f"it is nested more than {self._max_depth} deep", place(found))
        if isinstance(found, exp.Paren):
            return self._node(found.this, depth + 1)
        read = _READERS.get(type(found))
        if read is None:
            raise QueryError("this cannot be used in a query", place(found))
        made = read(self, found, depth + 1)
        if self._size(made) > self._max_nodes:
            raise QueryError("it has too many parts", place(found))
        return made

    def _size(self, node: Node) -> int:
        """How many nodes it has. Each is asked for once, when it is made: its parts are known by then."""
        size = self._sizes.get(id(node))
        if size is None:
            match node:
                case Call():
                    size = 1 + sum(map(self._size, node.arguments))
                case Cast():
                    size = 1 + self._size(node.value)
                case _:
                    size = 1
            self._sizes[id(node)] = size
            self._kept.append(node)
        return size

    def _call(self, name: str, found: exp.Expr, *arguments: Node) -> Call:
        return Call(name, arguments, place(found))

    def null(self, found: exp.Expr, depth: int) -> Node:
        return Literal(None, place(found))

    def boolean(self, found: exp.Expr, depth: int) -> Node:
        return Literal(bool(found.this), place(found))

    def literal(self, found: exp.Expr, depth: int) -> Node:
        if found.is_string:
            return Literal(found.this, place(found))
        return number(found.this, place(found))

    def raw_string(self, found: exp.Expr, depth: int) -> Node:
        return Literal(found.this, place(found))

    def path(self, found: exp.Expr, depth: int) -> Node:
        """`value.a.b[0]['c']`: the longest such."""
        steps: list[str | int] = []
        here = found
        while True:
            if isinstance(here, exp.Column):
                parts = [here.args.get(part) for part in ("this", "table", "db", "catalog")]
                steps.extend(_name(part, found) for part in parts if part is not None)
                root = str(steps.pop())
                return Path(root, tuple(reversed(steps)), place(found))
            if isinstance(here, exp.Dot):
                steps.append(_name(here.expression, found))
            elif isinstance(here, exp.Bracket):
                steps.append(_index(here))
            elif isinstance(here, exp.Paren):
                pass
            else:
                return self._item(found, depth)
            here = here.this

    def _item(self, found: exp.Expr, depth: int) -> Node:
        """An item of what a function gave."""
        if isinstance(found, exp.Bracket):
            step = _index(found)
            if isinstance(step, int):
                item = Literal(step + 1, place(found))
                return self._call("element_at", found, self._node(found.this, depth), item)
        raise QueryError("only values of the record have members", place(found))

    def connected(self, found: exp.Expr, depth: int) -> Node:
        """AND and OR of any number of conditions. As a tree of low depth: both are associative."""
        kind, name = type(found), "and" if isinstance(found, exp.And) else "or"
        terms: list[exp.Expr] = []
        here = found
        while type(here) is kind:
            terms.append(here.expression)
            here = here.this
        terms.append(here)
        nodes = [self._node(term, depth) for term in reversed(terms)]
        return self._balanced(name, nodes, found)

    def _balanced(self, name: str, nodes: list[Node], found: exp.Expr) -> Node:
        if len(nodes) == 1:
            return nodes[0]
        half = len(nodes) // 2
        left, right = (self._balanced(name, part, found) for part in (nodes[:half], nodes[half:]))
        return Call(name, (left, right), left.position)

    def compared(self, found: exp.Expr, depth: int) -> Node:
        return self._binary(_COMPARISONS[type(found)], found, depth)

    def counted(self, found: exp.Expr, depth: int) -> Node:
        return self._binary(_ARITHMETIC[type(found)], found, depth)

    def joined(self, found: exp.Expr, depth: int) -> Node:
        # Spark binds || like + and -.
        _needs_parentheses(found, exp.Add, exp.Sub)
        return self._binary("concat", found, depth)

    def _binary(self, name: str, found: exp.Expr, depth: int) -> Node:
        _needs_parentheses(found, *_LOOSE)
        return self._call(name, found, self._node(found.this, depth), self._node(found.expression, depth))

    def negated(self, found: exp.Expr, depth: int) -> Node:
        return self._not(self._node(found.this, depth), found)

    def _not(self, node: Node, found: exp.Expr) -> Node:
        return self._call("not", found, node)

    def minus(self, found: exp.Expr, depth: int) -> Node:
        value = found.this
        if isinstance(value, exp.Literal) and not value.is_string:
            return number(f"-{value.this}", place(found))
        _needs_parentheses(found, *_LOOSE)
        return self._call("neg", found, self._node(value, depth))

    def between(self, found: exp.Expr, depth: int) -> Node:
        low, high = found.args["low"], found.args["high"]
        _needs_parentheses(found, *_PREDICATES, *_COMPARISONS)
        nodes = [self._node(part, depth) for part in (found.this, low, high)]
        return self._call("between", found, *nodes)

    def among(self, found: exp.Expr, depth: int) -> Node:
        _needs_parentheses(found, *_PREDICATES, *_COMPARISONS)
        nodes = [self._node(part, depth) for part in (found.this, *found.expressions)]
        return self._call("in", found, *nodes)

    def like(self, found: exp.Expr, depth: int) -> Node:
        escape = None
        if isinstance(found, exp.Escape):
            escape, found = found.expression, found.this
        _needs_parentheses(found, *_PREDICATES, *_COMPARISONS)
        name, value, pattern = _LIKES[type(found)], self._node(found.this, depth), found.expression
        negate = bool(found.args.get("negate"))
        patterns = pattern.this.expressions if isinstance(pattern, (exp.Any, exp.All)) else [pattern]
        made: list[Node] = []
        for item in patterns:
            arguments = [value, self._node(item, depth)]
            if escape is not None:
                arguments.append(Literal(escape.this, place(escape)))
            one: Node = self._call(name, found, *arguments)
            made.append(self._not(one, found) if negate else one)
        return self._balanced("and" if isinstance(pattern, exp.All) else "or", made, found)

    def is_(self, found: exp.Expr, depth: int) -> Node:
        _needs_parentheses(found, *_PREDICATES, exp.Not)
        value, what = self._node(found.this, depth), found.expression
        if isinstance(what, exp.Null):
            made: Node = self._call("is_null", found, value)
        elif isinstance(what, exp.Boolean):
            made = self._call("is_true" if what.this else "is_false", found, value)
        else:
            raise QueryError("NULL, TRUE, FALSE, UNKNOWN or DISTINCT FROM must follow IS", place(what))
        return self._not(made, found) if found.args.get("negate") else made

    def distinct(self, found: exp.Expr, depth: int) -> Node:
        return self._not(self._binary("<=>", found, depth), found)

    def case(self, found: exp.Expr, depth: int) -> Node:
        value, parts = found.args.get("this"), []
        subject = None if value is None else self._node(value, depth)
        for branch in found.args["ifs"]:
            condition = self._node(branch.this, depth)
            if subject is not None:
                condition = self._call("=", branch, subject, condition)
            parts += [condition, self._node(branch.args["true"], depth)]
        if found.args.get("default") is not None:
            parts.append(self._node(found.args["default"], depth))
        return self._call("case", found, *parts)

    def cast(self, found: exp.Expr, depth: int) -> Node:
        return Cast(self._node(found.this, depth), found.args["to"].name, place(found))

    def extract(self, found: exp.Expr, depth: int) -> Node:
        name = _FIELDS.get(found.this.name)
        if name is None:
            raise QueryError(f"EXTRACT has no {found.this.name} here", place(found))
        return self._call(name, found, self._node(found.expression, depth))

    def function(self, found: exp.Expr, depth: int) -> Node:
        name = found.this if isinstance(found.this, str) else found.this.name
        nodes = [self._node(part, depth) for part in found.expressions]
        if name.upper() in TYPES and len(nodes) == 1:
            return Cast(nodes[0], TYPES[name.upper()], place(found))
        if name.upper() == "DECIMAL":
            raise QueryError(NO_DECIMALS, place(found))
        return self._call(name.lower(), found, *nodes)


_READERS: Final[dict[type[exp.Expr], Callable[[Reader, exp.Expr, int], Node]]] = {
    exp.Null: Reader.null,
    exp.Boolean: Reader.boolean,
    exp.Literal: Reader.literal,
    exp.RawString: Reader.raw_string,
    exp.Column: Reader.path,
    exp.Dot: Reader.path,
    exp.Bracket: Reader.path,
    exp.And: Reader.connected,
    exp.Or: Reader.connected,
    exp.Not: Reader.negated,
    exp.Neg: Reader.minus,
    exp.DPipe: Reader.joined,
    exp.Between: Reader.between,
    exp.In: Reader.among,
    exp.Escape: Reader.like,
    exp.Is: Reader.is_,
    exp.NullSafeNEQ: Reader.distinct,
    exp.Case: Reader.case,
    exp.Cast: Reader.cast,
    exp.Extract: Reader.extract,
    exp.Anonymous: Reader.function,
    **dict.fromkeys(_COMPARISONS, Reader.compared),
    **dict.fromkeys(_ARITHMETIC, Reader.counted),
    **dict.fromkeys(_LIKES, Reader.like),
}


def number(text: str, position: int) -> Node:
    """A number as Spark writes it. What has a point but no suffix is a DOUBLE here."""
    negative, written = text.startswith("-"), text.removeprefix("-")
    found = _NUMBER.fullmatch(written)
    if found is None:
        raise QueryError(f"{written} is not a number", position)
    suffix = found["suffix"].upper() if found["suffix"] else None
    if suffix == "BD":
        raise QueryError(NO_DECIMALS, position)
    if found["digits"].isdigit() and not found["exponent"] and suffix in _WHOLE:
        value = -int(found["digits"]) if negative else int(found["digits"])
        bits = _WHOLE[suffix]
        if not -(1 << bits - 1) <= value < 1 << bits - 1:
            raise QueryError(f"{text} is too large", position)
        made: Node = Literal(value, position)
    elif suffix in ("L", "S", "Y"):
        raise QueryError(f"{text} is not a whole number", position)
    else:
        real = float(found["digits"] + (found["exponent"] or ""))
        if math.isinf(real):
            raise QueryError(f"{text} is too large", position)
        made = Literal(-real if negative else real, position)
    return made if suffix in (None, "D") else Cast(made, _SUFFIXES[suffix], position)


def place(found: exp.Expr) -> int:
    """Where a node begins in the text, from 0. For a column with a name: where that is."""
    if type(found) is exp.Alias:
        return int(found.meta["start"])
    places = [
        here.meta["start"]
        for here in found.walk(prune=lambda here: isinstance(here, exp.Anonymous))
        if here._meta
    ]
    return int(min(places, default=0))


def _name(part: object, found: exp.Expr) -> str:
    if isinstance(part, exp.Identifier):
        return str(part.this)
    raise QueryError("a member's name that is no word must be in backquotes", place(found))


def _index(found: exp.Expr) -> str | int:
    index = found.expressions[0]
    if isinstance(index, exp.Literal):
        if index.is_string:
            return str(index.this)
        if str(index.this).isdigit() and int(index.this) < 1 << 31:
            return int(index.this)
    raise QueryError("in brackets must be a whole number from 0, or a member's name in quotes", place(index))


def _needs_parentheses(found: exp.Expr, *kinds: type[exp.Expr]) -> None:
    for part in found.iter_expressions():
        if isinstance(part, kinds):
            raise QueryError("put what belongs together in parentheses", place(part))
