"""Writes logic and comparisons: as values (True, False, None) and as truths.

A truth is source that is true where an expression is TRUE (or, if that is not `wanted`, FALSE). The common
comparisons are then a test of the type and an operator of Python; all others go to the general function.
"""

from __future__ import annotations

from typing import Final

from kiwi_gw.query.compiler.calls import CallCodegen
from kiwi_gw.query.compiler.code_fragments import CodeFragment
from kiwi_gw.query.errors import QueryError
from kiwi_gw.query.functions import function
from kiwi_gw.query.values.implicit_casts import conversion
from kiwi_gw.query.values.types import ANY, BOOLEAN, NULL

# Below it BIGINT compares with DOUBLE as Python does it. 2 ** 53 itself is also the DOUBLE of 2 ** 53 + 1.
_EXACT: Final = 1 << 53
TESTS: Final = {"=": "==", "<>": "!=", "<": "<", "<=": "<=", ">": ">", ">=": ">="}
_OPPOSITE: Final = {"=": "<>", "<>": "=", "<": ">=", "<=": ">", ">": "<=", ">=": "<"}
_MIRRORED: Final = {"=": "=", "<>": "<>", "<": ">", "<=": ">=", ">": "<", ">=": "<="}
# NaN is above all numbers, and in Python every comparison with it is false: it has to be above by a `not`.
_NUMBERS: Final = {
    "=": "{0} == {1}",
    "<>": "{0} != {1}",
    "<": "{0} < {1}",
    "<=": "{0} <= {1}",
    ">": "not {0} <= {1}",
    ">=": "not {0} < {1}",
}


class ComparisonCodegen:
    """Write logic and comparisons whose operands are written already."""

    def __init__(self, calls: CallCodegen) -> None:
        self._calls = calls
        self._namespace = calls.namespace

    def require_boolean(self, code: CodeFragment, name: str) -> CodeFragment:
        """Make True, False or None of an operand.

        Raises:
            QueryError: it is of another type. name: of the operator, for the message.
        """
        if code.type in (BOOLEAN, NULL):
            return code
        if code.type == ANY:
            return self._calls.cast(code, conversion(ANY, BOOLEAN), BOOLEAN)
        raise QueryError(f"{name} takes BOOLEAN, and this is {code.type}", code.position)

    def connected(self, codes: list[CodeFragment], *, conjunction: bool) -> CodeFragment:
        """Write AND or OR of operands that are True, False or None."""
        decides = "False" if conjunction else "True"
        pairs = [self._calls.bind_once(code) for code in codes]
        decided = " or ".join(f"{test} is {decides}" for test, _ in pairs)
        unknown = " or ".join(f"{name} is None" for _, name in pairs)
        return boolean(f"({decides} if {decided} else None if {unknown} else {conjunction})")

    def between(self, codes: list[CodeFragment], position: int) -> CodeFragment:
        """Write BETWEEN as a value; its first operand is evaluated once."""
        name = codes[0].text
        subject = codes[0]
        if not subject.is_constant and not name.isidentifier():
            name = self._namespace.fresh_name("t")
            subject = CodeFragment(name, codes[0].type, position=codes[0].position)
        pair = []
        for operator, limit in ((">=", codes[1]), ("<=", codes[2])):
            binding = self._calls.bind(function(operator), [subject, limit], position)
            pair.append(self._calls.apply(binding, [subject, limit], position))
        both = self.connected(pair, conjunction=True)
        if name == codes[0].text:
            return both
        return boolean(f"(({name} := {codes[0].text}), {both.text})[1]")

    def between_truth(self, codes: list[CodeFragment], wanted: bool, position: int) -> str:
        """Write BETWEEN as a truth."""
        if not codes[0].is_constant and not codes[0].text.isidentifier():
            return self.truth(self.between(codes, position), wanted)
        pair = [
            self.compared(operator, [codes[0], limit], wanted, position)
            for operator, limit in ((">=", codes[1]), ("<=", codes[2]))
        ]
        return f"({(' and ' if wanted else ' or ').join(pair)})"

    def truth(self, code: CodeFragment, wanted: bool) -> str:
        """Write the truth of a value."""
        if code.is_constant:
            return str(self.require_boolean(code, "a condition").constant is wanted)
        if code.type != ANY:
            self.require_boolean(code, "a condition")
        return f"({code.text} is {wanted})"

    def compared(self, name: str, codes: list[CodeFragment], wanted: bool, position: int) -> str:
        """Write one of TESTS as a truth."""
        binding = self._calls.bind(function(name), codes, position)
        one, other = (
            self._calls.convert(code, want) for code, want in zip(codes, binding.wants, strict=True)
        )
        if one.is_constant and other.is_constant:
            return self.truth(self._calls.apply(binding, codes, position), wanted)
        name = name if wanted else _OPPOSITE[name]
        if one.is_constant:
            one, other, name = other, one, _MIRRORED[name]
        if other.is_constant and other.constant is None:
            return "False"
        general = self._namespace.name_of(self._calls.bind(function(name), [one, other], position).call)
        test, left = self._calls.bind_once(one)
        constant, kind = other.constant, type(other.constant)
        if kind is str:
            short = f"{left} {TESTS[name]} {other.text} if type({test}) is str"
            return f"({short} else {left} is not None and {general}({left}, {other.text}) is True)"
        if (kind is int or kind is float) and abs(constant) < _EXACT:  # type: ignore[arg-type]
            sort = self._namespace.fresh_name("k")
            short = _NUMBERS[name].format(left, other.text)
            numeric = f"({sort} := type({test})) is int or {sort} is float"
            return (
                f"({short} if {numeric} else {left} is not None and {general}({left}, {other.text}) is True)"
            )
        second, right = self._calls.bind_once(other)
        sort = self._namespace.fresh_name("k")
        alike = f"({sort} := type({test})) is type({second}) and ({sort} is int or {sort} is str)"
        there = "" if other.is_constant else f"{right} is not None and "
        slow = f"{left} is not None and {there}{general}({left}, {right}) is True"
        return f"({left} {TESTS[name]} {right} if {alike} else {slow})"

    def among(self, codes: list[CodeFragment], wanted: bool, position: int) -> str:
        """Write IN as a truth: a look into a set, where all items are texts or whole numbers."""
        binding = self._calls.bind(function("in"), codes, position)
        codes = [self._calls.convert(code, want) for code, want in zip(codes, binding.wants, strict=True)]
        items = [code.constant for code in codes[1:]]
        texts = all(type(item) is str for item in items)
        numbers = all(type(item) is int and abs(item) < _EXACT for item in items)
        if codes[0].is_constant or not (texts or numbers):
            return self.truth(self._calls.apply(binding, codes, position), wanted)
        test, left = self._calls.bind_once(codes[0])
        listed = self._namespace.name_of(frozenset(items), "s")
        general = self._namespace.name_of(binding.call)
        values = ", ".join([left, *(code.text for code in codes[1:])])
        slow = f"{left} is not None and {general}({values}) is {wanted}"
        sort = self._namespace.fresh_name("k")
        kinds = f"({sort} := type({test})) is " + ("str" if texts else f"int or {sort} is float")
        return f"({left} {'in' if wanted else 'not in'} {listed} if {kinds} else {slow})"


def boolean(text: str) -> CodeFragment:
    """Make a fragment of source that gives True, False or None."""
    return CodeFragment(text, BOOLEAN)
