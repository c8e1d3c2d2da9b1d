"""A query as loops: one that keeps events, one that makes what is sent of them."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import CodeType
from typing import Any, Final
from weakref import WeakValueDictionary

import msgspec

from kiwi_gw.model import Steps, TimeSlice, at_once
from kiwi_gw.query import effort, patterns
from kiwi_gw.query.compiler import kept
from kiwi_gw.query.compiler.codes import Space
from kiwi_gw.query.compiler.paths import Paths, inside
from kiwi_gw.query.compiler.projection import assignments, placed
from kiwi_gw.query.compiler.writing import Writer
from kiwi_gw.query.errors import QueryError
from kiwi_gw.query.limits import MAX_KEPT, MAX_PROJECTION, MAX_QUERY, check_size
from kiwi_gw.query.recent import Recent
from kiwi_gw.query.schema import Schema
from kiwi_gw.query.tree import Call, Cast, Literal, Node, Path, Query
from kiwi_gw.query.values import MISSING, UNDECODABLE, RecordError, Value
from kiwi_gw.query.values.types import ANY, BOOLEAN, NULL, STRING

Columns = Mapping[str, Sequence[Value]]

# A projection of more columns than this is weighed before its text is made.
_FEW: Final = 8

_REFERENCE: Final = 40
"""Bytes of an integer or a text in a list, its own characters apart."""


@dataclass(frozen=True, slots=True, weakref_slot=True)
class Compiled:
    """A query, ready to run. roots: the columns that it needs, and no others. at_once: so many events are
    evaluated before somebody looks at the clock; 0: it is looked at behind every event.

    A column has one value for each event of a batch: None, bool, int, float, str, list, dict as decoded, or
    `UNDECODABLE`.
    """

    roots: tuple[str, ...]
    _keep: Callable[..., tuple[int, int]] = field(repr=False)
    _project: Callable[..., int] | None = field(repr=False)
    at_once: int = 0

    def __del__(self) -> None:
        # Functions that the loops call are in the namespace that they have themselves: without this they
        # would stay until the garbage collector comes.
        for loop in (self._keep, self._project):
            if loop is not None:
                loop.__globals__.clear()

    def kept(self, columns: Columns, length: int) -> tuple[list[int], int]:
        """The indexes of the events that the filter passes, and how many could not be evaluated.

        An event is bad, and not kept, if a column that the query needs is UNDECODABLE for it, or if the
        filter makes more of it than it may, or takes too long for it (`effort`). length: the events of the
        batch.
        """
        return at_once(self.keeping(columns, length, TimeSlice()))

    def keeping(self, columns: Columns, length: int, turn: TimeSlice) -> Steps[tuple[list[int], int]]:
        """The same, in turns."""
        each = [columns[root] for root in self.roots]
        kept: list[int] = []
        bad = done = 0
        while True:
            stop = min(done + self.at_once, length) if self.at_once else length
            some = each if stop - done == length else [column[done:stop] for column in each]
            begun = effort.begin()
            try:
                more, done = self._keep(kept, range(done, stop), turn.until, turn.clock, *some)
            finally:
                effort.end(begun)
            bad += more
            if done >= length:
                return kept, bad
            if turn.over:
                turn.held = _REFERENCE * len(kept)
                yield

    def projected(self, columns: Columns, indexes: Sequence[int], cost: int = 0) -> list[bytes]:
        """The JSON text of the projection of each of these events; b"" for one that cannot be evaluated.

        A member that is NULL is null, a lenient one that is missing is left out; dates and timestamps are
        texts of ISO 8601 in UTC, NaN and the infinities are texts, BINARY is Base64. Only for queries with a
        `select`. cost: bytes of the batch; the texts of all events may be a few times that (`effort`).
        """
        return at_once(self.projecting(columns, indexes, TimeSlice(), cost))

    def projecting(
        self, columns: Columns, indexes: Sequence[int], turn: TimeSlice, cost: int = 0
    ) -> Steps[list[bytes]]:
        """The same, in turns."""
        if self._project is None:
            raise ValueError("the query has no projection")
        each = [columns[root] for root in self.roots]
        texts: list[bytes] = []
        most = left = effort.MOST_BYTES + effort.BYTES_A_BYTE * cost
        while True:
            begun = effort.begin()
            try:
                rest = indexes[len(texts) :] if texts else indexes
                left = self._project(texts, left, rest, turn.until, turn.clock, *each)
            finally:
                effort.end(begun)
            if len(texts) == len(indexes) or left < 0:
                return texts + [b""] * (len(indexes) - len(texts))
            turn.held = most - left + _REFERENCE * len(texts)
            yield


Codes = dict[str, CodeType]
"""What Python makes of the sources of loops."""


def compiled(
    query: Query, roots: frozenset[str], schema: Schema | None = None, codes: Codes | None = None
) -> Compiled:
    """The query as code; equal ones share it.

    roots: the names of columns that there are. schema: of `value`, if it has one. codes: of an equal query
    that was compiled elsewhere, which is half of the work; what is not in it is put into it. Empty: they are
    what is wanted, so it is compiled anew.

    Raises:
        QueryError: it names what is not there, is too large, or asks for what cannot be; with the position.
    """
    check_size(query)
    if codes is not None and not codes:
        return _made_of(query, roots, schema, codes)
    # Trees alone would take `1`, `1.0` and `true` for the same.
    key = query.key, roots, schema

    def make() -> Compiled:
        found = _in_use.get(key)
        if found is None:
            found = _in_use[key] = _made_of(query, roots, schema, codes or {})
        return found

    return _recent.get(key, len(query.key), make)


_Key = tuple[str, frozenset[str], Schema | None]
_in_use: Final[WeakValueDictionary[_Key, Compiled]] = WeakValueDictionary()
_recent: Final[Recent[Compiled]] = Recent(MAX_KEPT)


def _made_of(query: Query, known: frozenset[str], schema: Schema | None, codes: Codes) -> Compiled:
    weighed = len(codes)
    try:
        with effort.limited(), patterns.one_query() as held:  # constants are evaluated here
            columns = placed(query.select)
            where = [] if query.where is None else [query.where]
            used = tuple(dict.fromkeys(_roots([*where, *(column.value for column in columns)], known)))
            plain = _plain(query.where)
            keep = _keeping(query.where, used, schema, codes, plain=plain > 0)
            project = None if query.select is None else _projecting(query, used, schema, codes)
            keep.__globals__["patterns"] = held.patterns
            loops = (keep,) if project is None else (keep, project)
            if len(codes) != weighed:  # else it was weighed with this very code
                _refuse_beyond(kept.parts(query, loops))
            return Compiled(used, keep, project, plain)
    except (RecursionError, MemoryError):
        raise QueryError("the query is too large") from None


def _refuse_beyond(parts: dict[str, int]) -> None:
    """
    Raises:
        QueryError: the query keeps more than one may.
    """
    if sum(parts.values()) > MAX_QUERY:
        listed = ", ".join(f"{size} of {name}" for name, size in parts.items())
        raise QueryError(f"the query would keep more than {MAX_QUERY} bytes: {listed}")


def _plain(where: Node | None) -> int:
    """How many events a filter may look at before somebody looks at the clock: 0, none, where one of its
    terms may take longer for a longer text: a function, or two long texts or arrays that are compared."""
    terms = 1
    for node in () if where is None else inside(where):
        if isinstance(node, Cast) or (isinstance(node, Call) and node.name not in _PLAIN):
            return 0
        if isinstance(node, Call) and node.name in _COMPARES and not _has_literal(node):
            return 0
        terms += 1
    return max(1, effort.PLAIN_TERMS // terms)


_COMPARES: Final = frozenset(("=", "<>", "<=>", "<", "<=", ">", ">="))
_PLAIN: Final = _COMPARES | {"and", "or", "not", "is_null", "is_true", "is_false"}


def _has_literal(node: Call) -> bool:
    return any(isinstance(each, Literal) for each in node.arguments)


def _roots(nodes: list[Node], known: frozenset[str]) -> list[str]:
    found = []
    for node in nodes:
        for each in inside(node):
            if isinstance(each, Path):
                if each.root not in known:
                    there = ", ".join(sorted(known))
                    raise QueryError(f"there is no {each.root}; there is {there}", each.position)
                found.append(each.root)
    return found


def _keeping(
    where: Node | None, roots: tuple[str, ...], schema: Schema | None, codes: Codes, *, plain: bool
) -> Callable[..., Any]:
    space = Space()
    variables = {root: f"r{index}" for index, root in enumerate(roots)}
    paths = Paths([] if where is None else [where], variables, space, schema)
    writer = Writer(space, paths)
    test = "True"
    if where is not None:
        # A filter has to be BOOLEAN, where an operand of AND may be a text. In a space of its own: what it
        # gives is not kept.
        code = Writer(Space(), paths).value(where)
        if code.type not in (BOOLEAN, NULL, ANY):
            hint = " (= 'true'?)" if code.type == STRING else ""
            raise QueryError(f"a filter is BOOLEAN, and this is {code.type}{hint}", code.position)
        test = writer.truth(where)
    row = ", ".join(["index", *variables.values()])
    source = _lines(
        *writer.definitions,
        f"def keep(kept, indexes, until, clock, {''.join(f'c_{name}, ' for name in variables.values())}):",
        "    append = kept.append; bad = 0",
        f"    for {row} in zip({', '.join(['indexes', *(f'c_{v}' for v in variables.values())])}):"
        if variables
        else "    for index in indexes:",
        *(f"        if {name} is UNDECODABLE: bad += 1; continue" for name in variables.values()),
        "        try:",
        *(f"            {line}" for line in space.begun),
        *(f"            {line}" for line in paths.head),
        f"            if {test}: append(index)",
        "        except Exception: bad += 1",
        "" if plain else "        if clock() >= until: return bad, index + 1",
        "    return bad, indexes.stop",
    )
    return _made(source, "keep", space, codes)


def _projecting(
    query: Query, roots: tuple[str, ...], schema: Schema | None, codes: Codes
) -> Callable[..., Any]:
    space = Space()
    variables = {root: f"r{index}" for index, root in enumerate(roots)}
    columns = placed(query.select)
    paths = Paths([column.value for column in columns], variables, space, schema)
    writer = Writer(space, paths)
    parameters = "".join(f"c_{name}, " for name in variables.values())
    lines = assignments(columns, writer, paths, space, weigh=len(columns) > _FEW)
    source = _lines(
        *writer.definitions,
        f"def project(texts, left, indexes, until, clock, {parameters}):",
        "    append = texts.append",
        "    for index in indexes:",
        "        try:",
        *(f"            {name} = c_{name}[index]" for name in variables.values()),
        *(f"            if {name} is UNDECODABLE: raise RecordError" for name in variables.values()),
        *(f"            {line}" for line in space.begun),
        *(f"            {line}" for line in paths.head),
        *(f"            {line}" for line in lines),
        "            text = encoded(result)",
        "            left -= len(text)",
        "            if left < 0: raise RecordError",
        "        except Exception: text = b''",
        "        append(text)",
        "        if clock() >= until or left < 0: break",
        "    return left",
    )
    return _made(source, "project", space, codes)


def _lines(*lines: str) -> str:
    return "\n".join(lines) + "\n"


def _made(source: str, name: str, space: Space, codes: Codes) -> Callable[..., Any]:
    names: dict[str, Any] = dict(space.names)
    names.update(UNDECODABLE=UNDECODABLE, MISSING=MISSING, RecordError=RecordError)
    names.update(encoded=_encoded, finite=_finite, weigh=_weigh)
    code = codes.get(source)
    if code is None:
        code = codes[source] = _bare(compile(source, "<query>", "exec"))
    # The source has no character of the query's text in it but in literals: see `codes`.
    exec(code, names)  # noqa: S102
    made: Callable[..., Any] = names.pop(name)
    return made


def _bare(code: CodeType) -> CodeType:
    """The code without the places of its source, a third of it: nobody has that source."""
    inner = tuple(_bare(each) if isinstance(each, CodeType) else each for each in code.co_consts)
    return code.replace(co_linetable=b"", co_consts=inner)


_encode: Final = msgspec.json.Encoder().encode


def _encoded(result: Value) -> bytes:
    text = _encode(result)
    if len(text) > MAX_PROJECTION:
        raise RecordError(f"a result of more than {MAX_PROJECTION} bytes")
    if b"null" in text:  # it may stand for a number that JSON does not have
        text = _encode(_finite(result))
    return text


def _finite(value: Value) -> Value:
    """The value with texts instead of numbers that JSON does not have."""
    if type(value) is float:
        return value if math.isfinite(value) else "NaN" if value != value else f"{'-' * (value < 0)}Infinity"
    if isinstance(value, dict):
        return {name: _finite(each) for name, each in value.items()}
    if isinstance(value, list):
        return [_finite(each) for each in value]
    return value


def _weigh(*values: Value) -> None:
    """Before many columns become one text: together they may be no larger than that text may be."""
    size = 0
    for value in values:
        if isinstance(value, str | bytes):
            size += len(value)
        elif isinstance(value, list | dict):
            size += len(_encode(value))
        if size > MAX_PROJECTION:
            raise RecordError(f"a result of more than {MAX_PROJECTION} bytes")
