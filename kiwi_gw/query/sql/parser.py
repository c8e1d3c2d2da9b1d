"""The part of Spark's SQL that a query may use, read by recursive descent into the tree of queries.

Operators from loose to tight: OR; AND; NOT; comparisons and predicates (LIKE, IN, BETWEEN, IS); `+`, `-`
and `||`; `*`, `/`, `%` and DIV; signs; `::`, members and items. Where Spark's reading of operators side by
side would surprise (`a = b LIKE c`, `a < b = c`, `a || b + c`) parentheses are asked for.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from kiwi_gw.query.errors import QueryError
from kiwi_gw.query.limits import MAX_DEPTH
from kiwi_gw.query.node_factory import NodeFactory
from kiwi_gw.query.sql.cursor import Cursor
from kiwi_gw.query.sql.forms import read_case, read_function, read_type
from kiwi_gw.query.sql.names import AS_WRITTEN, Names
from kiwi_gw.query.sql.numbers import number
from kiwi_gw.query.sql.tokens import Kind, SqlToken
from kiwi_gw.query.sql.vocabulary import MORE, NO_INTERVALS, RESERVED, TYPES
from kiwi_gw.query.tree import FunctionCall, Literal, Node, Path

_COMPARISONS: Final = {
    "=": "=", "==": "=", "<>": "<>", "!=": "<>", "<": "<", "<=": "<=", ">": ">", ">=": ">=", "<=>": "<=>",
}  # fmt: skip
_SUMS: Final = {"+": "+", "-": "-", "||": "concat"}
_PRODUCTS: Final = {"*": "*", "/": "/", "%": "%", "DIV": "div"}
_LIKES: Final = {"LIKE": "like", "ILIKE": "ilike", "RLIKE": "rlike", "REGEXP": "rlike"}
_NEGATABLE: Final = (*_LIKES, "IN", "BETWEEN")
_CONSTANTS: Final = {"NULL": None, "TRUE": True, "FALSE": False}
_TOGETHER: Final = "put what belongs together in parentheses"


class Parser:
    """Read one text: an expression, or columns with commas between them."""

    def __init__(
        self, text: str, max_tokens: int, names: Names = AS_WRITTEN, *, semicolons: bool = False
    ) -> None:
        """Take the text apart. names: what the names in it mean. semicolons: it may have some. Raises
        QueryError: it has no token, or too many."""
        self._text = text
        self._depth = 0
        self._names = names
        self.cursor = Cursor(text, max_tokens, semicolons=semicolons)
        self.nodes = NodeFactory()

    def condition(self) -> Node:
        """Read one expression, to the end of the text.

        Raises:
            QueryError: it is not an expression, or larger than a query may be; with the position.
        """
        found = self.one()
        self.cursor.expect_end()
        return found

    def columns(self) -> list[tuple[str, Node, int]]:
        """Return the columns: the name of each, its value, and where the name is (without one: the value).

        A column without a name has that of its last member, as in Spark, or is called as it is written.

        Raises:
            QueryError: as `condition`.
        """
        cursor = self.cursor
        found: list[tuple[str, Node, int]] = []
        while True:
            first = cursor.here
            if cursor.take("*"):
                raise QueryError("* is all of an event, and goes alone", first.start)
            value = self.one()
            self.nodes.use(value)
            last = cursor.last
            name, place = self.written(first), first.start
            if cursor.take("AS"):
                if cursor.here.kind not in (Kind.WORD, Kind.NAME):
                    cursor.wrong("a name must follow, in backquotes if it has more than letters and digits")
                name, place = cursor.here.text, cursor.here.start
                cursor.skip()
            elif isinstance(value, Path) and last.kind in (Kind.WORD, Kind.NAME):
                name = last.text
            found.append((name, value, place))
            if not cursor.take(","):
                cursor.expect_end()
                return found

    def written(self, first: SqlToken) -> str:
        """Return the text from a token on, as far as it is read."""
        return self._text[first.start : self.cursor.last.end]

    # --- logic ---

    def one(self) -> Node:
        """Read an expression, up to what cannot belong to it."""
        return self._nested(self._disjunction)

    def several(self) -> list[Node]:
        """Read expressions with commas between them."""
        found = [self.one()]
        while self.cursor.take(","):
            found.append(self.one())
        return found

    def _nested(self, read: Callable[[], Node]) -> Node:
        """Read what is one level deeper in the text."""
        if self._depth == MAX_DEPTH:
            raise QueryError(f"it is nested more than {MAX_DEPTH} deep", self.cursor.here.start)
        self._depth += 1
        found = read()
        self._depth -= 1
        return found

    def _disjunction(self) -> Node:
        found = [self._conjunction()]
        while self.cursor.take("OR"):
            found.append(self._conjunction())
        return self.nodes.joined("or", found)

    def _conjunction(self) -> Node:
        found = [self._negation()]
        while self.cursor.take("AND"):
            found.append(self._negation())
        return self.nodes.joined("and", found)

    def _negation(self) -> Node:
        if token := self.cursor.take("NOT", "!"):
            return self.nodes.negated(self._nested(self._negation), token.start)
        return self._predicate()

    # --- comparisons and predicates ---

    def _predicate(self) -> Node:
        cursor = self.cursor
        found = self.sum()
        right: Node | None = None
        if cursor.here.upper in _COMPARISONS:
            name = _COMPARISONS[cursor.skip().upper]
            right = self.sum()
            found = self.nodes.call(name, found.position, found, right)
        if cursor.take("IS"):
            found = self._is(found, right)
        elif self._word_of_predicate() in _NEGATABLE:
            if right is not None:
                raise QueryError(_TOGETHER, right.position)
            negated = cursor.take("NOT") is not None
            found = self._matched(found, cursor.skip().upper, negated)
        if cursor.here.upper in (*_COMPARISONS, "IS") or self._word_of_predicate() in _NEGATABLE:
            raise QueryError(_TOGETHER, found.position)
        return found

    def _word_of_predicate(self) -> str:
        """Return the next word, or the one behind NOT, which says which predicate it is."""
        here = self.cursor.here.upper
        return self.cursor.ahead().upper if here == "NOT" else here

    def _is(self, value: Node, right: Node | None) -> Node:
        """Read what follows IS. right: of the comparison that the value is; it may be asked whether it is
        NULL."""
        cursor, place = self.cursor, value.position
        negated = cursor.take("NOT") is not None
        if word := cursor.take("NULL", "UNKNOWN", "TRUE", "FALSE"):
            name = {"TRUE": "is_true", "FALSE": "is_false"}.get(word.upper, "is_null")
            found = self.nodes.call(name, place, value)
        elif cursor.take("DISTINCT"):
            cursor.expect("FROM")
            if right is not None:
                raise QueryError(_TOGETHER, right.position)
            found, negated = self.nodes.call("<=>", place, value, self.sum()), not negated
        else:
            cursor.wrong("NULL, TRUE, FALSE, UNKNOWN or DISTINCT FROM must follow IS")
        return self.nodes.negated(found, place) if negated else found

    def _matched(self, value: Node, word: str, negated: bool) -> Node:
        cursor, place = self.cursor, value.position
        if word in _LIKES:
            return self._like(_LIKES[word], value, negated)
        if word == "BETWEEN":
            low = self.sum()
            cursor.expect("AND")
            found = self.nodes.call("between", place, value, low, self.sum())
        else:
            cursor.expect("(", "a list in parentheses must follow")
            found = self.nodes.call("in", place, value, *self.several())
            cursor.expect(")", "a ) must follow")
        return self.nodes.negated(found, place) if negated else found

    def _like(self, name: str, value: Node, negated: bool) -> Node:
        cursor, joined = self.cursor, "or"
        escape: list[Node] = []
        if cursor.ahead().upper == "(" and (word := cursor.take("ANY", "SOME", "ALL")):
            joined = "and" if word.upper == "ALL" else "or"
            cursor.expect("(")
            patterns = self.several()
            cursor.expect(")", "a ) must follow")
        else:
            patterns = [self.sum()]
            if cursor.take("ESCAPE"):
                sign = cursor.here
                if sign.kind is not Kind.STRING or len(cursor.skip().text) != 1:
                    cursor.wrong("one character in quotes must follow ESCAPE")
                escape = [self.nodes.leaf(Literal(sign.text, sign.start))]
        place = value.position
        made = [self.nodes.call(name, place, value, pattern, *escape) for pattern in patterns]
        return self.nodes.joined(joined, [self.nodes.negated(one, place) if negated else one for one in made])

    # --- arithmetic ---

    def sum(self) -> Node:
        """Read an expression without logic, comparisons and predicates."""
        found = self._product()
        before: str | None = None
        while self.cursor.here.upper in _SUMS:
            name = _SUMS[self.cursor.skip().upper]
            if isinstance(found, FunctionCall) and before not in (None, name) and "concat" in (before, name):
                raise QueryError(_TOGETHER, found.arguments[before == "concat"].position)
            before = name
            found = self.nodes.call(name, found.position, found, self._product())
        return found

    def _product(self) -> Node:
        found = self._unary()
        while self.cursor.here.upper in _PRODUCTS:
            name = _PRODUCTS[self.cursor.skip().upper]
            found = self.nodes.call(name, found.position, found, self._unary())
        return found

    def _unary(self) -> Node:
        token = self.cursor.here
        if self.cursor.take("+"):
            return self._nested(self._unary)
        if self.cursor.take("-"):
            digits = self._digits(negative=True)
            return digits or self.nodes.call("neg", token.start, self._nested(self._unary))
        if token.upper in ("NOT", "!") and self._word_of_predicate() not in _NEGATABLE:
            raise QueryError(_TOGETHER, token.start)
        return self._postfix(self._primary())

    def _digits(self, *, negative: bool = False) -> Node | None:
        """Read a number, also one that begins with a point; a negative one only where nothing binds
        tighter than its sign."""
        first, second = self.cursor.here, self.cursor.ahead()
        text, count = first.text, 1
        if first.upper == "." and second.kind is Kind.NUMBER:
            text, count = f".{second.text}", 2
        elif first.kind is not Kind.NUMBER:
            return None
        if negative and self.cursor.ahead(count).upper in ("::", "[", "."):
            return None
        self.cursor.skip(count)
        value, to = number(f"-{text}" if negative else text, first.start)
        made = self.nodes.leaf(value)
        return made if to is None else self.nodes.cast(made, to, first.start)

    # --- values ---

    def _primary(self) -> Node:
        cursor, token = self.cursor, self.cursor.here
        if (digits := self._digits()) is not None:
            return digits
        if token.kind is Kind.WORD:
            return self._word(token)
        if token.kind is Kind.STRING:
            return self._string()
        if token.kind is Kind.NAME:
            return self.nodes.leaf(self._names.root(cursor.skip()))
        if cursor.take("(") is None:
            cursor.wrong(MORE if token.kind is Kind.END else f"a value must come here, and not {token}")
        found = self.one()
        if cursor.here.upper == ",":
            cursor.wrong("a list of values has a place only after IN")
        cursor.expect(")", "a ) must follow")
        return found

    def _string(self) -> Node:
        first, text = self.cursor.here, ""
        while self.cursor.here.kind is Kind.STRING:  # 'a' 'b' is 'ab'
            text += self.cursor.skip().text
        return self.nodes.leaf(Literal(text, first.start))

    def _word(self, token: SqlToken) -> Node:
        """Read an expression that begins with a word: a function, a constant, CASE or a member."""
        cursor, word, place, ahead = self.cursor, token.upper, token.start, self.cursor.ahead()
        if word == "INTERVAL" and ahead.kind is not Kind.END and ahead.upper != ".":
            cursor.wrong(NO_INTERVALS)
        if word == "NOT":  # before LIKE and others
            raise QueryError(f"a value must come before {ahead}", ahead.start)
        if word in (*_NEGATABLE, "IS") and not (word in _LIKES and ahead.upper == "("):
            raise QueryError(f"a value must come before {token}", place)
        if word in RESERVED and word not in _LIKES:
            cursor.wrong(f"a value must come here, and not {token}")
        cursor.skip()
        if word in _CONSTANTS:
            return self.nodes.leaf(Literal(_CONSTANTS[word], place))
        if word == "CASE":
            return read_case(self, place)
        if ahead.kind is Kind.STRING and TYPES.get(word) in ("DATE", "TIMESTAMP"):
            return self.nodes.cast(self._string(), TYPES[word], place)
        if cursor.here.upper == "(":
            form = self._names.form(token)
            cursor.skip()
            return read_function(self, token, form)
        return self.nodes.leaf(self._names.root(token))

    def _postfix(self, found: Node) -> Node:
        """Read members, items and casts of a value."""
        while token := self.cursor.take(".", "[", "::"):
            if token.upper == "::":
                found = self.nodes.cast(found, read_type(self.cursor), found.position)
                continue
            step = self._member(found) if token.upper == "." else self._item()
            if isinstance(found, Path):
                found = self.nodes.leaf(self._names.member(found, step))
            elif isinstance(step, int):
                item = self.nodes.leaf(Literal(step + 1, found.position))
                found = self.nodes.call("element_at", found.position, found, item)
            else:
                raise QueryError("only values of the record have members", found.position)
        return found

    def _member(self, of: Node) -> str:
        cursor, token = self.cursor, self.cursor.here
        if token.kind in (Kind.NUMBER, Kind.STRING):
            raise QueryError("a member's name that is no word must be in backquotes", of.position)
        if token.kind not in (Kind.WORD, Kind.NAME):
            cursor.wrong(MORE if token.kind is Kind.END else f"{token} is not expected here")
        if token.kind is Kind.WORD and cursor.ahead().upper == "(":
            raise QueryError(f"{token.text} is not a function", token.start)
        return cursor.skip().text

    def _item(self) -> str | int:
        index = self.one()
        self.cursor.expect("]", "a ] must follow")
        if isinstance(index, Literal):
            step = index.value
            if isinstance(step, str) or (type(step) is int and 0 <= step < 1 << 31):
                return step
        message = "in brackets must be a whole number from 0, or a member's name in quotes"
        raise QueryError(message, index.position)
