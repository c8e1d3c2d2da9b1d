"""Generated expressions, each as text for the gateway and for Spark.

Made from the templates by a seed: every template some times, with arguments that are members, constants or
further templates; then casts between all types, and deep ones of everything.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from tests.differential.templates import CASTS, FUNCTIONS, LIKES, OPERATORS, PATTERNS

_PATH = re.compile("«(.*?)»")
_DOUBLE = re.compile("¤(.*?)¤")
_SLOT = re.compile(r"\{(\w+)\}")

# What a value of a record is in Spark, if only the record says it; the type of one that is not there.
VOID: Final = "void"
OBJECT: Final = "variant"


@dataclass(frozen=True, slots=True)
class Expression:
    """text: with marks around paths (`«o.x»`) and numbers with a point (`¤1.5¤`).

    near: the last digits of the result are those of a library of mathematics. flat: it is one operator or
    function, and its arguments are none.
    """

    text: str
    kind: str
    near: bool = False
    flat: bool = False

    @property
    def paths(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(_PATH.findall(self.text)))

    @property
    def ours(self) -> str:
        """As a client of the gateway writes it."""
        return _DOUBLE.sub(r"\1", _PATH.sub(r"value.\1", self.text))

    @property
    def declared(self) -> str:
        """For Spark, over `value` of a declared type. `1.5D`: without the D it were a decimal."""
        return _DOUBLE.sub(r"\1D", _PATH.sub(r"value.\1", self.text))

    def variant(self, types: Mapping[str, str]) -> str:
        """For Spark, over the VARIANT `value`: each path read as the type that it has in these records."""
        text = _PATH.sub(lambda path: _read(path[1], self._kind(types[path[1]], path)), self.text)
        return _DOUBLE.sub(r"\1D", text)

    def _kind(self, kind: str, path: re.Match[str]) -> str:
        """An object is a MAP, and has a text, its JSON, only for what asks for a text by name."""
        asked = re.search(r"\b(?:CAST|string)\($", self.text[: path.start()])
        return kind if asked else kind.replace(OBJECT, "map<string,variant>")


def _read(path: str, kind: str) -> str:
    if kind == VOID:
        return "NULL"
    if kind.startswith("array("):
        return kind
    steps = re.sub("`([^`]*)`", r"['\1']", path)
    steps = steps if steps.startswith("[") else f".{steps}"
    text = steps.replace("'", "\\'")
    return f"try_variant_get(value, '${text}', '{kind}')"


def signature(expression: Expression, record: Mapping[str, Any]) -> tuple[str, ...]:
    """Of each of its paths, the type that it has in the record."""
    return tuple(kind_of(_at(record, path)) for path in expression.paths)


def kind_of(value: object) -> str:
    """The type that a VARIANT with this JSON value is read as."""
    kinds = {
        type(None): VOID,
        bool: "boolean",
        int: "bigint",
        float: "double",
        str: "string",
        dict: OBJECT,
    }
    if not isinstance(value, list):
        return kinds[type(value)]
    inner = {kind_of(one) for one in value} - {VOID}
    if not inner:
        return f"array({', '.join('NULL' for _ in value)})"
    if inner == {"bigint", "double"}:
        return "array<double>"
    return f"array<{inner.pop()}>" if len(inner) == 1 else "array<variant>"


def _at(record: Mapping[str, Any], path: str) -> object:
    value: object = record
    for name, quoted, index in re.findall(r"(\w+)|`([^`]*)`|\[(\d+)\]", _bracketed(path)):
        if index:
            if not isinstance(value, list) or int(index) >= len(value):
                return None
            value = value[int(index)]
        else:
            if not isinstance(value, dict):
                return None
            value = value.get(name or quoted)
    return value


def _bracketed(path: str) -> str:
    return path.replace(".", " ")


Leaves = Mapping[str, tuple[Sequence[str], Sequence[str]]]

_COMMON: Final[Leaves] = {
    "i": (("i",), ("0", "2", "2147483647", "(-5)")),
    "l": (
        ("i", "l", "l", "o.x", "ls[0]", "os[0].v"),
        ("0", "1", "(-1)", "3", "10", "3000000000"),
    ),
    "k": (("m",), ("0", "1", "2", "3", "(-1)", "(-2)", "5")),
    "k1": ((), ("1", "2", "(-1)")),
    "d": (("d", "d", "e", "e", "o.z.q", "xs[0]"), ("¤1.5¤", "(-¤2.5¤)", "¤0.0¤", "¤100.25¤", "¤1e3¤")),
    "d0": (("d",), ("¤1.5¤",)),
    "s": (
        ("s", "s", "u", "u", "n", "w", "`odd name`", "o.y", "ss[0]", "os[0].k"),
        ("''", "'a'", "'abc'", "'b'", "','", "'10'", "'é😀'", "'it\\'s'", "'1.5'", "'true'", "'ß'"),
    ),
    "b": (("b", "c"), ("true", "false")),
    "w": (("w", "w", "w", "u"), ("'2020-02-29'", "'2020'", "'abc'")),
    "ss": (("ss",), ()),
    "ls": (("ls",), ()),
    "xs": (("xs",), ()),
    "j": (("j",), ()),
    "o": (("o",), ()),
    "mp": (("mp",), ()),
    "os": (("os",), ()),
    "re": ((), PATTERNS),
    "like": ((), LIKES),
}

DECLARED: Final[Leaves] = {
    **_COMMON,
    "D": (("dt",), ("DATE'2020-02-29'", "DATE '1999-12-31'", "CAST(«w» AS DATE)")),
    "T": (("ts",), ("TIMESTAMP'2020-03-29 01:30:00.5'", "CAST(«w» AS TIMESTAMP)")),
}

_MIXED: Final = ("p", "q", "r", "p.x", "p[0]", "q[1]", "p.x.q")
LOOSE: Final[Leaves] = {
    **{
        kind: ((*paths, *_MIXED) if kind in {"i", "l", "d", "s", "b", "ss", "ls", "j"} else paths, constants)
        for kind, (paths, constants) in _COMMON.items()
    },
    # Where Spark takes an INT it takes no BIGINT.
    "k": ((), ("CAST(«m» AS INT)", "CAST(«p» AS INT)", *_COMMON["k"][1])),
    "D": ((), ("CAST(«dt» AS DATE)", "DATE'2020-02-29'", "CAST(«p» AS DATE)")),
    "T": ((), ("CAST(«ts» AS TIMESTAMP)", "CAST(«w» AS TIMESTAMP)", "CAST(«i» AS TIMESTAMP)")),
    "p": (_MIXED, ()),
}


class Generator:
    """Makes expressions over certain leaves, the same ones for the same seed."""

    def __init__(self, leaves: Leaves, seed: int) -> None:
        self._leaves = leaves
        self._source = random.Random(seed)
        self._templates: dict[str, list[str]] = {}
        for table in (OPERATORS, FUNCTIONS):
            for kind, templates in table.items():
                if not kind.endswith("*"):
                    fit = [one for one in templates if self._fits(one)]
                    self._templates.setdefault(kind, []).extend(fit)

    def of_templates(self, times: int, depth: int) -> Iterator[Expression]:
        """Every template so many times."""
        for table in (OPERATORS, FUNCTIONS):
            for kind, templates in table.items():
                for template in filter(self._fits, templates):
                    texts = {self.filled(template, depth) for _ in range(times)}
                    for text in sorted(texts):
                        yield Expression(text, kind.rstrip("*"), kind.endswith("*"), depth == 0)

    def of_casts(self, times: int) -> Iterator[Expression]:
        """Casts of every kind to every type."""
        for to, kind in CASTS:
            for given in ("l", "i", "d", "s", "b", "D", "T"):
                if given not in self._leaves:
                    continue
                if to == "TIMESTAMP" and given in "ld":
                    continue  # years above 9999
                for _ in range(times):
                    yield Expression(f"CAST({self._leaf(given)} AS {to})", kind, flat=True)

    def deep(self, count: int, depth: int) -> Iterator[Expression]:
        """Of all kinds, calls in calls."""
        for _ in range(count):
            kind = self._source.choice(("b", "b", "b", "l", "d", "s", "D", "T"))
            yield Expression(self._nested(kind, depth), kind)

    def _fits(self, template: str) -> bool:
        return all(slot in self._leaves or slot in "nx" for slot in _SLOT.findall(template))

    def filled(self, template: str, depth: int) -> str:
        """The template with all its arguments."""
        return _SLOT.sub(lambda slot: self._made(slot[1], depth), template)

    def _made(self, kind: str, depth: int) -> str:
        if kind == "n":
            kind = self._source.choice("ld")
        elif kind == "x":
            kind = self._source.choice(("l", "d", "s", "b", "D"))
        nests = kind in {"l", "d", "s", "b", "D", "T", "ss", "ls"}
        if depth <= 0 or not nests or self._source.random() < 0.4:
            return self._leaf(kind)
        return f"({self._nested(kind, depth - 1)})"

    def _nested(self, kind: str, depth: int) -> str:
        if kind in {"l", "d", "s", "b"} and self._source.random() < 0.1:
            to = self._source.choice([to for to, made in CASTS if made == kind])
            given = self._source.choice(("l", "d", "s", "b"))
            return f"CAST({self._made(given, depth)} AS {to})"
        return self.filled(self._source.choice(self._templates[kind]), depth)

    def _leaf(self, kind: str) -> str:
        paths, constants = self._leaves[kind]
        if paths and (not constants or self._source.random() < 0.75):
            return f"«{self._source.choice(paths)}»"
        return self._source.choice(constants)
