"""Reads the members of a record: each once, however often a query names it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Final

from kiwi_gw.query.compiler.code_fragments import CodeFragment, Namespace
from kiwi_gw.query.errors import QueryError
from kiwi_gw.query.schema import Schema
from kiwi_gw.query.tree import FunctionCall, Node, Path, walk
from kiwi_gw.query.values.coercion import coercion
from kiwi_gw.query.values.types import ANY

# A piece of source reads so many steps at most; longer paths are read piece by piece.
_PIECE: Final = 10

Steps = tuple[str | int, ...]
_LARGE: Final = ("ARRAY", "OBJECT", "MAP")


class Paths:
    """Read the paths of some expressions. A path that is named more than once is read ahead, in `head`."""

    def __init__(
        self, nodes: list[Node], variables: Mapping[str, str], namespace: Namespace, schema: Schema | None
    ) -> None:
        """Find which paths to read ahead. variables: the name of the variable of each root."""
        self._variables = variables
        self._space = namespace
        self._schema = schema
        self._uses: dict[tuple[str, Steps], int] = {}
        for node in nodes:
            for each in walk(node):
                if isinstance(each, Path):
                    self._count(each)
                if (
                    isinstance(each, FunctionCall)
                    and each.name == "between"
                    and isinstance(each.arguments[0], Path)
                ):
                    self._count(each.arguments[0])
        self._names: dict[tuple[str, Steps], str] = {}
        ahead = sorted((key for key, uses in self._uses.items() if uses > 1), key=lambda key: len(key[1]))
        self.head = [self._ahead(root, steps) for root, steps in ahead]
        self._made: dict[tuple[str, Steps], str] = {}
        self.head += [self._made_ahead(path) for path in self._large(nodes)]
        self.parameters = ", ".join([*variables.values(), *self._names.values(), *self._made.values()])

    def _large(self, nodes: list[Node]) -> list[Path]:
        """Find arrays and objects that a schema makes anew, and that are named more than once: made once,
        they take as much room as the event itself, however often they are named."""
        if self._schema is None:
            return []
        uses = Counter(each for node in nodes for each in walk(node) if isinstance(each, Path))
        return [path for path, count in uses.items() if count > 1 and self._schema.at(path).kind in _LARGE]

    def _made_ahead(self, path: Path) -> str:
        text = self.code(path).text
        name = self._made[path.root, path.steps] = self._space.fresh_name("q")
        return f"{name} = {text}"

    def _count(self, path: Path) -> None:
        for length in range(len(path.steps), 0, -1):
            key = path.root, path.steps[:length]
            seen = key in self._uses
            self._uses[key] = self._uses.get(key, 0) + (2 if length % _PIECE == 0 else 1)
            if seen:
                return  # what it hangs from has been counted with the first use

    def _ahead(self, root: str, steps: Steps) -> str:
        text = self.raw(root, steps)
        name = self._names[root, steps] = self._space.fresh_name("p")
        return f"{name} = {text}"

    def raw(self, root: str, steps: Steps, *, missing: bool = False) -> str:
        """Write the source that reads it as it was decoded.

        missing: MISSING where there is no such member, instead of None.
        """
        if not steps:
            return self._variables[root]
        if not missing and (root, steps) in self._names:
            return self._names[root, steps]
        parent, step = self.raw(root, steps[:-1]), steps[-1]
        none = "MISSING" if missing else "None"
        kind = f"type({parent})"
        if not parent.isidentifier():
            variable = self._space.fresh_name("t")
            kind, parent = f"type({variable} := {parent})", variable
        if isinstance(step, str):
            key = self._space.constant(step, ANY).text
            default = ", MISSING" if missing else ""
            return f"({parent}.get({key}{default}) if {kind} is dict else {none})"
        if step < 0:
            return none
        return f"({parent}[{step:d}] if {kind} is list and len({parent}) > {step:d} else {none})"

    def code(self, path: Path) -> CodeFragment:
        """Write the value, of the type that a schema gives it."""
        if path.root not in self._variables:
            raise QueryError(f"there is no {path.root} here", path.position)
        type_ = ANY if self._schema is None else self._schema.at(path)
        if made := self._made.get((path.root, path.steps)):
            return CodeFragment(made, type_, position=path.position)
        text = self.raw(path.root, path.steps)
        if type_ == ANY:
            return CodeFragment(text, ANY, position=path.position)
        convert = self._space.name_of(coercion(type_))
        return CodeFragment(f"{convert}({text})", type_, position=path.position)
