"""Takes out of a condition what says how to read: decoders, and samples."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from kiwi_gw.dialects.lenses.sql.names import DIRECTIVES
from kiwi_gw.model import Form
from kiwi_gw.query.errors import QueryError, did_you_mean
from kiwi_gw.query.tree import FunctionCall, Literal, Node, Path

DECODERS: Final[dict[str, Form]] = {
    "STRING": "string",
    "JSON": "json",
    "INT": "int",
    "LONG": "long",
    "BINARY": "binary",
    "BYTES": "binary",
    "AVRO": "avro",
}
_MOST: Final = 1_000_000
"""Records of a sample; the same for its ms, a minute."""
_LEAST_MS: Final = 100
"""Of the window of a sample: it takes some work each time."""
_MOST_MS: Final = 60_000


class Directives:
    """Hold what a condition says of how to read."""

    def __init__(self, prefix: str = "") -> None:
        """Begin without any. prefix: of the roots of the paths that count, see `GroupedStatement`."""
        self._prefix = prefix
        self.key_decoder: Form | None = None
        self.value_decoder: Form | None = None
        self.sample: int | None = None
        self.sample_window_ms = 1_000
        self._seen: dict[str, Path] = {}
        self.positions: dict[str, int] = {}

    def taken_out(self, where: Node) -> Node | None:
        """Take these terms out of those that AND joins. None: there are no others.

        Raises:
            QueryError: one of them is twice, or says what cannot be.
        """
        terms = list(terms_of(where))
        rest = [term for term in terms if not self._take(term)]
        if "_sampleWindow" in self._seen and "_sample" not in self._seen:
            raise QueryError("_sampleWindow needs _sample", self._seen["_sampleWindow"].position)
        if len(rest) == len(terms):
            return where
        return _joined(rest) if rest else None

    def _take(self, term: Node) -> bool:
        if not isinstance(term, FunctionCall) or term.name != "=":
            return False
        match term.arguments:
            case (Path() as path, Literal() as constant) | (Literal() as constant, Path() as path):
                pass
            case _:
                return False
        name = path.root.removeprefix(self._prefix)
        if name not in DIRECTIVES or path.steps:
            return False
        if name in self._seen:
            raise QueryError(f"{name} is there twice", path.position)
        self._seen[name] = path
        self.positions[name] = constant.position
        match name:
            case "_ktype":
                self.key_decoder = decoder_named(constant)
            case "_vtype":
                self.value_decoder = decoder_named(constant)
            case "_sample":
                self.sample = _number(name, constant, _MOST)
            case _:
                self.sample_window_ms = _number(name, constant, _MOST_MS, _LEAST_MS)
        return True


def decoder_named(constant: Literal) -> Form:
    """Return the decoder of a name. Raises QueryError: there is none."""
    name = constant.value
    if isinstance(name, str) and (found := DECODERS.get(name.upper())) is not None:
        return found
    hint = did_you_mean(name.upper(), DECODERS) if isinstance(name, str) else ""
    raise QueryError(f"no such decoder{hint}: one of {', '.join(DECODERS)}", constant.position)


def _number(name: str, constant: Literal, most: int, least: int = 1) -> int:
    value = constant.value
    if type(value) is not int or not least <= value <= most:
        raise QueryError(f"{name} is a whole number from {least} to {most}", constant.position)
    return value


def terms_of(node: Node) -> Iterator[Node]:
    """Go through the terms that AND joins, in their order."""
    if isinstance(node, FunctionCall) and node.name == "and":
        for argument in node.arguments:
            yield from terms_of(argument)
    else:
        yield node


def _joined(terms: list[Node]) -> Node:
    """Join them again, in the way of `NodeFactory.joined`. They are no more, and no deeper, than before."""
    if len(terms) == 1:
        return terms[0]
    half = len(terms) // 2
    left, right = _joined(terms[:half]), _joined(terms[half:])
    return FunctionCall("and", (left, right), left.position)
