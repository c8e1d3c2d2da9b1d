"""What of Spark's SQL a query may say: sqlglot's parser for that dialect, with the rest taken out.

sqlglot reads whole scripts of thirty dialects. It gives functions other names and arguments, tries one way
after another where types and functions look alike (twice the time with every nesting), and leaves out what
it misses. Here words mean something only where an expression has them, every function keeps its name, and
whatever is missing or too much is an error with its place. Imported as late as can be, for it takes 20 MB:
in a gateway by `warm`.
"""

# ruff: noqa: RUF012, SIM905  (the classes above have theirs so; words are easier to read)

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final, NoReturn, TypeVar

from sqlglot import exp
from sqlglot.dialects.spark import Spark
from sqlglot.parsers.spark import SparkParser
from sqlglot.tokenizer_core import Token, TokenType

from kiwi_gw.query.errors import QueryError
from kiwi_gw.query.functions import registry
from kiwi_gw.query.functions.elsewhere import reason

IN_SPARK: Final = "a query looks at one event at a time; this belongs in a Spark source"

_WORDS: Final = frozenset(
    """AND OR NOT IN IS LIKE ILIKE RLIKE REGEXP BETWEEN NULL TRUE FALSE CASE WHEN THEN ELSE END AS ESCAPE DIV
    SELECT DISTINCT UNKNOWN == != <> <= >= <=> || :: ! -- /* */ /*+ -> =>""".split()
)

_CLAUSES: Final = frozenset(
    """JOIN CROSS INNER LEFT RIGHT FULL NATURAL ON USING FROM WHERE GROUP HAVING ORDER SORT LIMIT OFFSET UNION
    INTERSECT EXCEPT MINUS LATERAL PIVOT WINDOW OVER FILTER WITHIN QUALIFY WITH""".split()
)

TYPES: Final = {
    "BIGINT": "BIGINT",
    "LONG": "BIGINT",
    "INT": "INT",
    "INTEGER": "INT",
    "SMALLINT": "SMALLINT",
    "SHORT": "SMALLINT",
    "TINYINT": "TINYINT",
    "BYTE": "TINYINT",
    "DOUBLE": "DOUBLE",
    "FLOAT": "FLOAT",
    "REAL": "FLOAT",
    "STRING": "STRING",
    "BOOLEAN": "BOOLEAN",
    "DATE": "DATE",
    "TIMESTAMP": "TIMESTAMP",
    "TIMESTAMP_LTZ": "TIMESTAMP",
}
"""Types that a value can be cast to, by all of Spark's names for them."""

DECIMALS: Final = ("DECIMAL", "DEC", "NUMERIC")
NO_DECIMALS: Final = "there are no decimals here: use DOUBLE, or BIGINT"
NO_INTERVALS: Final = "there are no intervals here: timestamps are numbers of milliseconds"
MORE: Final = "it ends too early: a value must follow"
NO_SUBQUERIES: Final = f"a subquery needs other events: {IN_SPARK}"

E = TypeVar("E", bound=exp.Expr)

_NUMBER: Final = re.compile(r"[0-9]")
# Words, texts and signs, counted before they are read, for that costs 100 times as much. What is never closed
# goes on to the end, so that all is looked at once.
_ROUGHLY: Final = re.compile(
    r"""'(?:[^'\\]|\\.)*+'?|"(?:[^"\\]|\\.)*+"?|`[^`]*+`?|--[^\n]*+|/\*.*?(?:\*/|\Z)|\w++|[^\w\s]""",
    re.DOTALL,
)
_PREFIXES: Final = (TokenType.NOT, TokenType.DASH, TokenType.PLUS)
_OPENING: Final = (TokenType.L_PAREN, TokenType.L_BRACKET, TokenType.L_BRACE, TokenType.CASE)
_CLOSING: Final = (TokenType.R_PAREN, TokenType.R_BRACKET, TokenType.R_BRACE, TokenType.END)
_STRINGS: Final = (TokenType.STRING, TokenType.RAW_STRING)


class _Words(Spark.Tokenizer):
    """Only the words and signs that an expression has: all others are names."""

    KEYWORDS = {word: token for word, token in Spark.Tokenizer.KEYWORDS.items() if word in _WORDS}
    COMMANDS = set()


_Words._COMMENTS = {begin: end for begin, end in _Words._COMMENTS.items() if begin != "{#"}

_DIALECT: Final = Spark()


def shown(token: Token) -> str:
    """A word of the text, for a message."""
    return repr(token.text if len(token.text) <= 40 else f"{token.text[:40]}...")


def parsed(text: str, *, columns: bool, max_depth: int, max_tokens: int) -> list[tuple[exp.Expr, str]]:
    """One expression, or columns (`exp.Alias` where they have a name), each with its own text.

    QueryError; RecursionError where it is deep all the same, and what else sqlglot may raise.
    """
    if sum(1 for _ in _ROUGHLY.finditer(text)) > max_tokens:
        raise QueryError(f"it has more than {max_tokens} words and signs")
    tokens = _tokens(text)
    if not tokens:
        raise QueryError("there is nothing in it", 0)
    _check(tokens, max_depth)
    return _Parser(dialect=_DIALECT).all_of(tokens, text, columns=columns)


def _tokens(text: str) -> list[Token]:
    words = _Words(dialect=_DIALECT)
    try:
        return words.tokenize(text)
    except Exception as error:
        # Its own message quotes the text around, and counts lines.
        begin = words._core._start
        quote = text[begin : begin + 1]
        if quote in "'\"`" and quote:
            raise QueryError(f"this {quote} is never closed", begin) from error
        raise QueryError("this cannot be read", begin) from error


def _check(tokens: list[Token], max_depth: int) -> None:
    """Bounds what parsing costs, and makes plain names and numbers of what the parser should see as such."""
    depth = prefixes = 0
    open_prefixes: list[int] = []
    before: Token | None = None
    for index, token in enumerate(tokens):
        kind = token.token_type
        if kind is TokenType.SEMICOLON:
            raise QueryError("one expression, without a semicolon", token.start)
        named = before is not None and before.token_type in (TokenType.DOT, TokenType.ALIAS)
        if named and token.text.isidentifier():
            if kind is not TokenType.IDENTIFIER and kind not in _STRINGS:
                token.token_type = kind = TokenType.VAR  # any word can be a name
            if (
                before
                and before.token_type is TokenType.DOT
                and index + 1 < len(tokens)
                and tokens[index + 1].token_type is TokenType.L_PAREN
            ):
                raise QueryError(f"{token.text} is not a function", token.start)
        elif kind is TokenType.VAR and _NUMBER.match(token.text):
            token.token_type = kind = TokenType.NUMBER  # with a suffix: 1L, 1.5D
        if kind in _OPENING:
            open_prefixes.append(prefixes)
            depth += 1
        elif kind in _CLOSING and open_prefixes:
            depth -= 1 + open_prefixes.pop()
        if kind in _PREFIXES:
            prefixes += 1
            depth += 1
        elif kind in _OPENING:
            prefixes = 0
        else:
            depth, prefixes = depth - prefixes, 0
        if depth > max_depth:
            raise QueryError(f"it is nested more than {max_depth} deep", token.start)
        before = token


def _orphan(made: list[exp.Expr]) -> None:
    """Take their parents from these expressions, and from all above and below them. Nobody here asks for
    those, and a tree that refers to itself is gone only when the garbage collector comes: where strangers'
    queries make it come often, it walks over all that the process holds, and everybody waits."""
    seen: set[int] = set()
    while made:
        one = made.pop()
        if id(one) in seen:
            continue
        seen.add(id(one))
        if one.parent is not None:
            made.append(one.parent)
            one.parent = None
        for value in one.args.values():
            parts = value if isinstance(value, list) else (value,)
            made.extend(part for part in parts if isinstance(part, exp.Expr))


class _Parser(SparkParser):
    """See the top of this file. What `sqlglot` calls a method of is kept by its name there."""

    __slots__ = ("_made",)

    FUNCTIONS = {}
    FUNCTION_PARSERS = {
        "CAST": lambda self: self.cast(),
        "EXTRACT": lambda self: self.extract(),
        "POSITION": lambda self: self.position(),
        "SUBSTR": lambda self: self.substring(),
        "SUBSTRING": lambda self: self.substring(),
        "TRIM": lambda self: self.trim(),
        "TRY_CAST": lambda self: self.wrong("there is CAST, which gives NULL for what cannot be"),
    }
    NO_PAREN_FUNCTIONS = {}
    NO_PAREN_FUNCTION_PARSERS = {"CASE": lambda self: self.case()}
    SUBQUERY_PREDICATES = {}
    PLACEHOLDER_PARSERS = {}
    BRACKETS = frozenset((TokenType.L_BRACKET,))
    UNARY_PARSERS = {
        TokenType.PLUS: lambda self: self.operand(self._parse_unary()),
        TokenType.NOT: lambda self: self.expression(exp.Not(this=self.operand(self._parse_equality()))),
        TokenType.DASH: lambda self: self.expression(exp.Neg(this=self.operand(self._parse_unary()))),
    }
    RANGE_PARSERS = {
        TokenType.BETWEEN: lambda self, this: self._parse_between(this),
        TokenType.ILIKE: lambda self, this: self.like(exp.ILike, this),
        TokenType.IN: lambda self, this: self._parse_in(this),
        TokenType.IS: lambda self, this: self._parse_is(this),
        TokenType.LIKE: lambda self, this: self.like(exp.Like, this),
        TokenType.RLIKE: lambda self, this: exp.RegexpLike(
            this=self.before(this), expression=self.operand(self._parse_bitwise())
        ),
    }
    BITWISE = {}
    TERM = {TokenType.DASH: exp.Sub, TokenType.PLUS: exp.Add}
    FACTOR = {
        TokenType.DIV: exp.IntDiv,
        TokenType.SLASH: exp.Div,
        TokenType.STAR: exp.Mul,
        TokenType.MOD: exp.Mod,
    }
    PRIMARY_PARSERS = {kind: SparkParser.PRIMARY_PARSERS[kind] for kind in (TokenType.NUMBER, *_STRINGS)} | {
        TokenType.NULL: lambda self, token: self.expression(exp.Null(), token),
        TokenType.TRUE: lambda self, token: self.expression(exp.Boolean(this=True), token),
        TokenType.FALSE: lambda self, token: self.expression(exp.Boolean(this=False), token),
    }
    COLUMN_OPERATORS = {
        TokenType.DOT: None,
        TokenType.DCOLON: lambda self, this, to: self.expression(exp.Cast(this=this, to=to)),
    }
    CAST_COLUMN_OPERATORS = {TokenType.DCOLON}

    # --- what it is asked for --------------------------------------------------------------

    def all_of(self, tokens: list[Token], text: str, *, columns: bool) -> list[tuple[exp.Expr, str]]:
        """What `parsed` gives. As `Parser.parse` does it for a script, which looks for statements."""
        self.reset()
        self.sql = text
        self._chunks = [tokens]
        self._made: list[exp.Expr] = []
        try:
            self._advance_chunk()
            found = self.columns() if columns else [(self.one(), text)]
            if self._curr:
                self.wrong(f"{shown(self._curr)} is not expected here")
            return found
        finally:
            _orphan(self._made)

    def expression(self, instance: E, token: Token | None = None, comments: list[str] | None = None) -> E:
        made = super().expression(instance, token, comments)
        self._made.append(made)
        return made

    def columns(self) -> list[tuple[exp.Expr, str]]:
        found: list[tuple[exp.Expr, str]] = []
        while True:
            begin = self._curr
            if self._match(TokenType.STAR):
                column: exp.Expr = self.expression(exp.Star(), begin)
            else:
                column = self.one()
            text = self._find_sql(begin, self._prev)
            if self._match(TokenType.ALIAS):
                name = self._curr
                if name.token_type in _STRINGS or not (alias := self._parse_id_var()):
                    self.wrong("a name must follow, in backquotes if it has more than letters and digits")
                column = self.expression(exp.Alias(this=column, alias=alias), name)
            found.append((column, text))
            if not self._match(TokenType.COMMA):
                return found

    def one(self) -> exp.Expr:
        """An expression."""
        return self.operand(self._parse_disjunction())

    def operand(self, found: exp.Expr | None) -> exp.Expr:
        """What must be there."""
        if found is None:
            self.wrong(f"a value must come here, and not {shown(self._curr)}" if self._curr else MORE)
        return found

    def before(self, found: exp.Expr | None) -> exp.Expr:
        """What must have been there, before the word that was just read."""
        if found is None:
            self.wrong(f"a value must come before {shown(self._prev)}", self._prev)
        return found

    def wrong(self, message: str, token: Token | None = None) -> NoReturn:
        """A mistake at a token, by default the next one."""
        token = token or self._curr
        place = token.start if token else len(self.sql.rstrip())
        if token and token.text.upper() == "SELECT" and token.token_type is TokenType.SELECT:
            message = NO_SUBQUERIES
        elif token and token.token_type is TokenType.VAR and token.text.upper() in _CLAUSES:
            message = f"{token.text.upper()} has no place in an expression: {IN_SPARK}"
        raise QueryError(message, place)

    def raise_error(self, message: str, token: Token | None = None) -> NoReturn:
        expected = re.fullmatch(r"Expect(?:ing|ed) (\S+)", message)
        if expected is not None:
            self.wrong(f"a {expected[1]} must follow")
        self.wrong(f"{shown(self._curr)} is not expected here" if self._curr else MORE)

    # --- operators -------------------------------------------------------------------------

    def validate_expression(self, expression: E, args: list[object] | None = None) -> E:
        """Only operators come here with something missing: what they are between."""
        if expression.error_messages():
            self.operand(None)
        return expression

    def _build_predicate(
        self,
        klass: type[exp.Binary],
        this: exp.Expr | None,
        expression: exp.Expr | None,
        comments: list[str] | None = None,
        negate: bool = False,
    ) -> exp.Expr:
        # Without parentheses that the text does not have.
        return self.expression(klass(this=this, expression=expression))

    def _parse_bitwise(self) -> exp.Expr | None:
        this = self._parse_term()
        while self._match(TokenType.DPIPE):
            this = self.expression(exp.DPipe(this=this, expression=self.operand(self._parse_term())))
        return this

    def _parse_between(self, this: exp.Expr | None) -> exp.Between:
        this = self.before(this)
        low = self.operand(self._parse_bitwise())
        if not self._match(TokenType.AND):
            self.wrong("AND must follow")
        return exp.Between(this=this, low=low, high=self.operand(self._parse_bitwise()))

    def _parse_in(self, this: exp.Expr | None, alias: bool = False) -> exp.In:
        this = self.before(this)
        if not self._match(TokenType.L_PAREN):
            self.wrong("a list in parentheses must follow")
        found = exp.In(this=this, expressions=self.several())
        self._match_r_paren()
        return found

    def like(self, kind: type[exp.Binary], this: exp.Expr | None) -> exp.Expr:
        this = self.before(this)
        if self._next.token_type is TokenType.L_PAREN and self._match_texts(("ANY", "SOME", "ALL")):
            every = self._prev.text.upper() == "ALL"
            self._match(TokenType.L_PAREN)
            patterns = exp.Tuple(expressions=self.several())
            self._match_r_paren()
            return kind(this=this, expression=(exp.All if every else exp.Any)(this=patterns))
        found = kind(this=this, expression=self.operand(self._parse_bitwise()))
        if not self._match(TokenType.ESCAPE):
            return found
        if not self._match(TokenType.STRING) or len(self._prev.text) != 1:
            self.wrong("one character in quotes must follow ESCAPE")
        return exp.Escape(this=found, expression=exp.Literal.string(self._prev.text))

    # --- values ----------------------------------------------------------------------------

    def several(self) -> list[exp.Expr]:
        found = [self.one()]
        while self._match(TokenType.COMMA):
            found.append(self.one())
        return found

    def _parse_type(
        self, parse_interval: bool = True, fallback_to_identifier: bool = False
    ) -> exp.Expr | None:
        token = self._curr
        if token.token_type is TokenType.L_PAREN:
            return self._parse_column_ops(self._parse_paren())
        if token.token_type is TokenType.VAR:
            word = token.text.upper()
            if word == "INTERVAL" and self._next.token_type not in (TokenType.DOT, TokenType.SENTINEL):
                self.wrong(NO_INTERVALS)
            if self._next.token_type in _STRINGS and TYPES.get(word) in ("DATE", "TIMESTAMP"):
                self._advance()
                text = self._parse_primary()
                return self.expression(exp.Cast(this=text, to=exp.Var(this=TYPES[word])), token)
        return self._parse_atom() or self._parse_column()

    def _parse_primary(self) -> exp.Expr | None:
        token = self._curr
        if self._match_set(_STRINGS):
            text = token.text
            while self._match_set(_STRINGS):  # 'a' 'b' is 'ab'
                text += self._prev.text
            return self.expression(exp.Literal.string(text), token)
        if self._match_pair(TokenType.DOT, TokenType.NUMBER):
            return self.expression(exp.Literal.number(f".{self._prev.text}"), token)
        if self._match_set(self.PRIMARY_PARSERS):
            parse: Callable[..., exp.Expr] = self.PRIMARY_PARSERS[token.token_type]
            return parse(self, token)
        return self._parse_paren()

    def _parse_paren(self) -> exp.Expr | None:
        if not self._match(TokenType.L_PAREN):
            return None
        found = self.expression(exp.Paren(this=self.one()))
        if self._match(TokenType.COMMA, advance=False):
            self.wrong("a list of values has a place only after IN")
        self._match_r_paren()
        return found

    def _parse_bracket(self, this: exp.Expr | None = None) -> exp.Expr | None:
        while this is not None and self._match(TokenType.L_BRACKET):
            token = self._curr
            index = self.one()
            if not self._match(TokenType.R_BRACKET):
                self.wrong("a ] must follow")
            this = self.expression(exp.Bracket(this=this, expressions=[index]), token)
        return this

    def _parse_types(
        self,
        check_func: bool = False,
        schema: bool = False,
        allow_identifiers: bool = True,
        with_collation: bool = False,
    ) -> exp.Expr | None:
        """The name of a type."""
        token = self._curr
        word = token.text.upper()
        if word in DECIMALS:
            self.wrong(NO_DECIMALS)
        if word == "INTERVAL":
            self.wrong(NO_INTERVALS)
        if token.token_type is not TokenType.VAR or word not in TYPES:
            self.wrong(f"a type must follow: one of {', '.join(dict.fromkeys(TYPES.values()))}")
        self._advance()
        return self.expression(exp.Var(this=TYPES[word]), token)

    # --- functions and what looks like them ------------------------------------------------

    def _parse_function_args(self, alias: bool = False) -> list[exp.Expr]:
        name = self._tokens[self._index - 2]
        if self._match(TokenType.R_PAREN, advance=False):
            return []
        if self._match_set((TokenType.DISTINCT, TokenType.STAR), advance=False):
            known = name.text.lower() in registry()
            self.wrong(f"{self._curr.text} is not expected here" if known else reason(name.text.lower()))
        return self.several()

    def _parse_window(self, this: exp.Expr | None, alias: bool = False) -> exp.Expr | None:
        return this

    def case(self) -> exp.Expr:
        token = self._prev
        value = None if self._match(TokenType.WHEN, advance=False) else self.one()
        branches = []
        while self._match(TokenType.WHEN):
            condition = self.one()
            if not self._match(TokenType.THEN):
                self.wrong("THEN must follow")
            branches.append(exp.If(this=condition, true=self.one()))
        if not branches:
            self.wrong("WHEN must follow")
        otherwise = self.one() if self._match(TokenType.ELSE) else None
        if not self._match(TokenType.END):
            self.wrong("WHEN, ELSE or END must follow")
        return self.expression(exp.Case(this=value, ifs=branches, default=otherwise), token)

    def cast(self) -> exp.Expr:
        value = self.one()
        if not self._match(TokenType.ALIAS):
            self.wrong("AS and a type must follow")
        return exp.Cast(this=value, to=self._parse_types())

    def extract(self) -> exp.Expr:
        field = self._curr
        self._advance()
        self.word("FROM")
        return exp.Extract(this=exp.Var(this=field.text.upper()), expression=self.one())

    def position(self) -> exp.Expr:
        found = [self.operand(self._parse_bitwise())]
        if self._match(TokenType.IN):
            found.append(self.one())
        elif self._match(TokenType.COMMA):
            found += self.several()
        return exp.Anonymous(this="position", expressions=found)

    def substring(self) -> exp.Expr:
        found = [self.one()]
        if self._match_texts(("FROM",)):
            found.append(self.one())
            if self._match_texts(("FOR",)):
                found.append(self.one())
        elif self._match(TokenType.COMMA):
            found += self.several()
        return exp.Anonymous(this="substring", expressions=found)

    def trim(self) -> exp.Expr:
        side = "BOTH"
        if self._next.token_type not in (TokenType.R_PAREN, TokenType.DOT) and self._match_texts(
            ("BOTH", "LEADING", "TRAILING")
        ):
            side = self._prev.text.upper()
            characters = None if self._match_texts(("FROM",), advance=False) else self.one()
            self.word("FROM")
            value = self.one()
        else:
            characters, value = None, self.one()
            if self._match_texts(("FROM",)):
                characters, value = value, self.one()
            elif self._match(TokenType.COMMA):
                return exp.Anonymous(this="trim", expressions=[value, *self.several()])
        name = {"BOTH": "trim", "LEADING": "ltrim", "TRAILING": "rtrim"}[side]
        # Spark's functions have it the other way round than it is said: first which characters, then of what.
        return exp.Anonymous(this=name, expressions=[value] if characters is None else [characters, value])

    def word(self, word: str) -> None:
        if not self._match_texts((word,)):
            self.wrong(f"{word} must follow")


try:
    _Parser(dialect=_DIALECT)
except TypeError as error:
    raise ImportError(
        "this sqlglot is its compiled build, whose parser cannot be changed: remove sqlglotc"
    ) from error
