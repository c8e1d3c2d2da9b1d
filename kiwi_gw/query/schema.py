"""The schema that a source declares for its values: what a query may name, and of which type it is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from kiwi_gw.query.ddl import parse_ddl
from kiwi_gw.query.errors import QueryError, did_you_mean
from kiwi_gw.query.tree import Path
from kiwi_gw.query.values.types import ANY, Type
from kiwi_gw.query.weighted_lru import WeightedLru

_MOST: Final = 20
"""Members that a mistake names."""
_KEPT: Final = 4 * 1024 * 1024
"""Characters of the schemas that are kept. Sources have them, clients choose none."""


@dataclass(frozen=True, slots=True)
class Schema:
    """Hold the type of `value`."""

    value: Type

    @staticmethod
    def parse(ddl: str) -> Schema:
        """Read `a INT, b STRUCT<c: STRING, d: ARRAY<DOUBLE>>`: fields of an object, or one type alone.

        Raises:
            QueryError: the text is not a schema; with the position.
        """
        return Schema(parse_ddl(ddl))

    @staticmethod
    def known(ddl: str) -> Schema:
        """Return the same, parsed once for all: a large one takes tens of milliseconds."""
        return _known.get(ddl, len(ddl), lambda: Schema.parse(ddl))

    def at(self, path: Path) -> Type:
        """Return the type of the value at a path; ANY below a value without a schema.

        Raises:
            QueryError: the schema has nothing there.
        """
        if path.root != "value":
            return ANY
        type_ = self.value
        said = path.root
        for step in path.steps:
            if type_ == ANY:
                return ANY
            found = _step(type_, step)
            if found is None:
                raise QueryError(f"{said} has no {step!r}{_instead(type_, step)}", path.position)
            type_, said = found, f"{said}.{step}" if isinstance(step, str) else f"{said}[{step}]"
        return type_


def _instead(type_: Type, step: str | int) -> str:
    """Say what there is, the nearest first; of many members some."""
    names = [name for name, _ in type_.fields]
    if not names:
        return f": it is {type_}"
    more = f" and {len(names) - _MOST} more" if len(names) > _MOST else ""
    return f"{did_you_mean(str(step), names)}: it has {', '.join(names[:_MOST])}{more}"


def _step(type_: Type, step: str | int) -> Type | None:
    if isinstance(step, int):
        return type_.item if type_.kind == "ARRAY" else None
    if type_.kind == "MAP":
        return type_.item
    return type_.by_name.get(step)


_known: Final[WeightedLru[Schema]] = WeightedLru(_KEPT)
