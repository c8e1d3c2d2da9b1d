"""Writes expressions as Python source: what the compiler puts into its loops.

An expression is written in one of two ways. As a value it gives what the expression is, None for NULL. As a
truth it is whether the expression is TRUE (or, on the other side of a NOT, whether it is FALSE): most of
three-valued logic is gone then, and the common comparisons are a test of the type and an operator of Python.
What such a short way does not cover goes to the general function.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Final

from kiwi_gw.query.compiler.allowance import FEW, SHORT, Allowance
from kiwi_gw.query.compiler.codes import Code, Space
from kiwi_gw.query.compiler.paths import Paths
from kiwi_gw.query.errors import QueryError
from kiwi_gw.query.functions import function
from kiwi_gw.query.functions.base import Binding, Function
from kiwi_gw.query.functions.cost import LOOKS, Cost, Makes, Work, asking
from kiwi_gw.query.limits import MAX_FOLDED, MAX_FOLDED_ITEMS, MAX_FOLDED_PATTERN
from kiwi_gw.query.tree import Call, Cast, Literal, Node, Path
from kiwi_gw.query.values import RecordError, Value, compare, convert
from kiwi_gw.query.values.implicit import conversion, settler
from kiwi_gw.query.values.types import (
    ANY,
    BIGINT,
    BINARY,
    BOOLEAN,
    CASTS,
    DOUBLE,
    INT,
    NULL,
    STRING,
    Type,
    common,
)

# Python nests 200 parentheses: deeper trees go on in a function of their own.
_SPLIT: Final = 10
# Up to here every whole number is a DOUBLE, and BIGINT compares with DOUBLE as Python does it.
_EXACT: Final = 1 << 53
_TESTS: Final = {"=": "==", "<>": "!=", "<": "<", "<=": "<=", ">": ">", ">=": ">="}
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


# Types of which a value may be long, and from which length on it counts; None: that is not known.
_LONG: Final = {"STRING": SHORT, "BINARY": SHORT, "ARRAY": FEW, "OBJECT": None, "MAP": None, "ANY": None}
_SHORT: Final = frozenset((int, float, bool))


class Writer:
    """Writes the expressions of one loop. definitions: functions that what it wrote needs."""

    def __init__(self, space: Space, paths: Paths) -> None:
        self._space = space
        self._paths = paths
        self.definitions: list[str] = []

    # Values

    def value(self, node: Node, depth: int = 0) -> Code:
        """
        Raises:
            QueryError: the expression cannot be; with the position.
        """
        if isinstance(node, Literal):
            return self._space.constant(node.value, _literal(node), node.position)
        if isinstance(node, Path):
            return self._paths.code(node)
        code = self._cast(node, depth + 1) if isinstance(node, Cast) else self._call(node, depth + 1)
        if depth and depth % _SPLIT == 0 and not code.is_constant:
            return Code(self._apart(code.text), code.type, position=node.position)
        return code

    def _apart(self, text: str) -> str:
        """The expression as the call of a function."""
        name = self._space.fresh("f")
        self.definitions.append(f"def {name}({self._paths.parameters}):\n    return {text}\n")
        return f"{name}({self._paths.parameters})"

    def _cast(self, node: Cast, depth: int) -> Code:
        wanted = CASTS.get(node.to)
        if wanted is None:
            decimal = node.to.startswith(("DEC", "NUMERIC"))
            hint = "DECIMAL is not here; DOUBLE is" if decimal else f"there is no CAST to {node.to}"
            raise QueryError(hint, node.position)
        code = self.value(node.value, depth)
        if code.type == wanted:
            return code
        if not (code.type.atomic or code.type in (ANY, NULL)):
            raise QueryError(f"CAST of {code.type} to {wanted} is not possible", node.position)
        cast = convert.CONVERSIONS[wanted.kind] if code.type.dynamic else conversion(code.type, wanted)
        if wanted == STRING and code.type in (ANY, BINARY):
            cast = self._space.text
        return self._turned(code, cast, wanted)

    def _turned(self, code: Code, cast: Callable[[Value], Value], wanted: Type) -> Code:
        if code.is_constant:
            with suppress(RecordError):  # every record raises it, and is counted
                return self._space.constant(cast(code.constant), wanted, code.position)
        return Code(f"{self._space.given(cast)}({code.text})", wanted, position=code.position)

    def _converted(self, code: Code, wanted: Type | None) -> Code:
        if wanted is None or code.type == wanted:
            return code
        return self._turned(code, conversion(code.type, wanted), wanted)

    def _call(self, node: Call, depth: int) -> Code:
        found = function(node.name, node.position)
        _counted(found, node)
        form = _FORMS.get(node.name)
        if form is not None:
            return form(self, node, depth)
        codes = [self.value(argument, depth) for argument in node.arguments]
        binding = self._bound(found, codes, node.position)
        if binding.missing:
            for index, argument in enumerate(node.arguments):
                if isinstance(argument, Path):
                    text = self._paths.raw(argument.root, argument.steps, missing=True)
                    codes[index] = Code(text, codes[index].type, position=argument.position)
        return self._applied(binding, codes, node.position, found.cost)

    def _bound(self, found: Function, codes: list[Code], position: int) -> Binding:
        if found.bind is None:
            raise QueryError(f"{found.name} cannot be here", position)
        return found.bind(tuple(code.argument for code in codes))

    def _applied(self, binding: Binding, codes: list[Code], position: int, cost: Cost = LOOKS) -> Code:
        """The call of a function, held to what it may cost."""
        codes = [self._converted(code, want) for code, want in zip(codes, binding.wants, strict=True)]
        if binding.strict and any(code.is_constant and code.constant is None for code in codes):
            return self._space.constant(None, binding.result, position)
        if all(code.is_constant for code in codes):
            folded = self._folded(binding, codes, position, cost)
            if folded is not None:
                return folded
        call = self._space.given(asking(binding.call, cost))
        if not binding.strict:
            text = f"{call}({', '.join(self._read(code.text, code, cost) for code in codes)})"
            return Code(self._counted(text, cost), binding.result, position=position)
        tests, arguments = [], []
        for code in codes:
            test, argument = self._named(code)
            arguments.append(self._read(argument, code, cost))
            if not code.is_constant:
                tests.append(f"{test} is None")
        text = self._counted(f"{call}({', '.join(arguments)})", cost)
        return Code(
            f"(None if {' or '.join(tests)} else {text})" if tests else text,
            binding.result,
            position=position,
        )

    def _read(self, text: str, code: Code, cost: Cost) -> str:
        """Write an argument of a call; if it may be long, and the call reads all of it, that is counted."""
        kind = code.type.kind
        if code.is_constant or cost.work is Work.CONSTANT or kind not in _LONG:
            return text
        read = f"{self._space.given(self._space.read)}({text}, {cost.pace})"
        most = _LONG[kind]
        if not text.isidentifier():
            return read
        # NULL has no length, and a call that is not strict takes it.
        measured = f"not {text} or len({text}) < {most}"
        short = measured if most else f"type({text}) in {self._space.given(_SHORT)}"
        return f"({text} if {short} else {read})"

    def _counted(self, text: str, cost: Cost) -> str:
        """The call, with what it makes counted."""
        if cost.makes is Makes.NOTHING:
            return text
        return f"{self._space.given(self._space.made)}({text})"

    def _folded(self, binding: Binding, codes: list[Code], position: int, cost: Cost) -> Code | None:
        """The result for constants; None if it cannot be known yet, as the records will say why, or is too
        large to be kept: then it is made for every record."""
        values = [code.constant for code in codes]
        looked_at = sum(len(value) for value in values if isinstance(value, str))
        if cost.work is Work.PATTERN and looked_at > MAX_FOLDED_PATTERN:
            return None
        try:
            value = Allowance().made(asking(binding.call, cost)(*values))
        except Exception:  # noqa: BLE001 (every record raises the same, and is counted)
            return None
        return None if _large(value) else self._space.constant(value, binding.result, position)

    def _named(self, code: Code) -> tuple[str, str]:
        """Source that evaluates it first, and a name for its value afterwards."""
        if code.is_constant or code.text.isidentifier():
            return code.text, code.text
        name = self._space.fresh("t")
        return f"({name} := {code.text})", name

    def _boolean(self, text: str) -> Code:
        return Code(text, BOOLEAN)

    # Forms

    def _condition(self, node: Node, depth: int, name: str) -> Code:
        """An operand of logic: True, False or None."""
        return self._logical(self.value(node, depth), name)

    def _logical(self, code: Code, name: str) -> Code:
        if code.type in (BOOLEAN, NULL):
            return code
        if code.type == ANY:
            return self._turned(code, conversion(ANY, BOOLEAN), BOOLEAN)
        raise QueryError(f"{name} takes BOOLEAN, and this is {code.type}", code.position)

    def _logic(self, node: Call, depth: int) -> Code:
        codes = [self._condition(argument, depth, node.name) for argument in node.arguments]
        return self._joined(codes, conjunction=node.name == "and")

    def _joined(self, codes: list[Code], *, conjunction: bool) -> Code:
        """AND or OR of operands that are True, False or None."""
        decides = "False" if conjunction else "True"
        pairs = [self._named(code) for code in codes]
        decided = " or ".join(f"{test} is {decides}" for test, _ in pairs)
        unknown = " or ".join(f"{name} is None" for _, name in pairs)
        return self._boolean(f"({decides} if {decided} else None if {unknown} else {conjunction})")

    def _not(self, node: Call, depth: int) -> Code:
        test, name = self._named(self._condition(node.arguments[0], depth, "not"))
        return self._boolean(f"(None if {test} is None else not {name})")

    def _is(self, node: Call, depth: int) -> Code:
        """What is never NULL itself: its truth is its value."""
        return self._boolean(self._truth(node, True, depth))

    def _between(self, node: Call, depth: int) -> Code:
        return self._limited([self.value(argument, depth) for argument in node.arguments], node.position)

    def _limited(self, codes: list[Code], position: int) -> Code:
        """BETWEEN, with its first operand evaluated once."""
        name = codes[0].text
        subject = codes[0]
        if not subject.is_constant and not name.isidentifier():
            name = self._space.fresh("t")
            subject = Code(name, codes[0].type, position=codes[0].position)
        pair = []
        for operator, limit in ((">=", codes[1]), ("<=", codes[2])):
            binding = self._bound(function(operator), [subject, limit], position)
            pair.append(self._applied(binding, [subject, limit], position))
        both = self._joined(pair, conjunction=True)
        if name == codes[0].text:
            return both
        return self._boolean(f"(({name} := {codes[0].text}), {both.text})[1]")

    def _case(self, node: Call, depth: int) -> Code:
        arguments = list(node.arguments)
        if len(arguments) % 2 == 0:
            arguments.append(Literal(None, node.position))
        conditions = [self.truth(argument, True, depth) for argument in arguments[:-1:2]]
        values = [self.value(argument, depth) for argument in [*arguments[1::2], arguments[-1]]]
        values, met = self._met(values, node)
        ahead, values = self._ahead(values, met)
        chosen = self._chosen(list(zip(conditions, values[:-1], strict=True)), values[-1], met, node.position)
        return self._settled(ahead, chosen, values)

    def _chosen(self, choices: list[tuple[str, Code]], last: Code, met: Type, position: int) -> Code:
        """The value of the first condition that is true, else the last."""
        chosen = ""
        for condition, value in choices:
            if condition == "True":
                last = value
                break
            if condition != "False":
                chosen += f"{value.text} if {condition} else "
        if chosen:
            return Code(f"({chosen}{last.text})", met, position=position)
        return Code(last.text, met, last.constant, position)

    def _coalesce(self, node: Call, depth: int) -> Code:
        values, met = self._met([self.value(argument, depth) for argument in node.arguments], node)
        ahead, values = self._ahead(values, met)
        choices: list[tuple[str, Code]] = []
        for value in values[:-1]:
            if value.is_constant and value.constant is None:
                continue
            test, name = self._named(value)
            named = Code(name, value.type, value.constant, value.position)
            choices.append(("True" if value.is_constant else f"{test} is not None", named))
        return self._settled(ahead, self._chosen(choices, values[-1], met, node.position), values)

    def _ahead(self, values: list[Code], met: Type) -> tuple[list[str], list[Code]]:
        """If the type of a choice depends on the values of the record, all of them are needed: what evaluates
        them ahead, and the values as names."""
        if met != ANY or len([value for value in values if value.type != NULL]) < 2:
            return [], values
        tests: list[str] = []
        named: list[Code] = []
        for value in values:
            if value.type == ANY and not value.is_constant:
                test, name = self._named(value)
                tests += [test] if test != name else []
                value = Code(name, ANY, position=value.position)
            named.append(value)
        return [*tests, ""], named

    def _settled(self, ahead: list[str], chosen: Code, values: list[Code]) -> Code:
        """The choice in the type that Spark gives it for the types that all values have in this record."""
        if not ahead or (chosen.is_constant and chosen.constant is None):
            return chosen
        static = common(tuple(value.type for value in values if value.type != ANY)) or NULL
        settle = self._space.given(settler(static))
        names = [value.text for value in values if value.type == ANY]
        text = f"{settle}({', '.join([chosen.text, *names])})"
        if tests := ahead[:-1]:
            text = f"({', '.join([*tests, text])})[-1]"
        return Code(text, ANY, position=chosen.position)

    def _nvl2(self, node: Call, depth: int) -> Code:
        first = Call("is_null", node.arguments[:1], node.position)
        return self._case(Call("case", (first, node.arguments[2], node.arguments[1]), node.position), depth)

    def _met(self, values: list[Code], node: Call) -> tuple[list[Code], Type]:
        """The values in the type of all of them."""
        met = common(tuple(value.type for value in values))
        if met is None or (
            met == ANY and common(tuple(value.type for value in values if value.type != ANY)) is None
        ):
            listed = ", ".join(dict.fromkeys(str(value.type) for value in values))
            raise QueryError(f"{node.name} of {listed}: there is no type for all of them", node.position)
        keep = met in (ANY, NULL)
        return [value if keep or value.type == NULL else self._converted(value, met) for value in values], met

    # Truths

    def truth(self, node: Node, wanted: bool = True, depth: int = 0) -> str:
        """Source that is true where the expression is TRUE (wanted) or FALSE (not wanted)."""
        if not isinstance(node, Call):
            return self._plain(self.value(node, depth), wanted)
        name = node.name
        if name in {"and", "or", "not", "is_true", "is_false", "is_null", "in", "between", *_TESTS}:
            _counted(function(name, node.position), node)
            text = self._truth(node, wanted, depth + 1)
            return self._apart(text) if depth and depth % _SPLIT == 0 else text
        return self._plain(self.value(node, depth), wanted)

    def _truth(self, node: Call, wanted: bool, depth: int) -> str:
        name, arguments = node.name, node.arguments
        if name in {"and", "or"}:
            parts = [self.truth(argument, wanted, depth) for argument in arguments]
            return f"({(' and ' if (name == 'and') is wanted else ' or ').join(parts)})"
        if name == "not":
            return self.truth(arguments[0], not wanted, depth)
        if name in {"is_true", "is_false"}:
            if isinstance(arguments[0], Path) and (code := self.value(arguments[0], depth)).type != BOOLEAN:
                # 1 is true, and so is 'yes': as `<=> true` has it.
                same = f"{self._space.given(compare.same)}({code.text}, {name == 'is_true'})"
                return f"({same} is {'' if wanted else 'not '}True)"
            text = self.truth(arguments[0], name == "is_true", depth)
            return text if wanted else f"(not {text})"
        if name == "is_null":
            code = self.value(arguments[0], depth)
            if code.is_constant:
                return str((code.constant is None) is wanted)
            return f"({code.text} is {'' if wanted else 'not '}None)"
        codes = [self.value(argument, depth) for argument in arguments]
        if name == "in":
            return self._in(codes, wanted, node.position)
        if name == "between":
            if not codes[0].is_constant and not codes[0].text.isidentifier():
                return self._plain(self._limited(codes, node.position), wanted)
            pair = [
                self._compared(operator, [codes[0], limit], wanted, node.position)
                for operator, limit in ((">=", codes[1]), ("<=", codes[2]))
            ]
            return f"({(' and ' if wanted else ' or ').join(pair)})"
        return self._compared(name, codes, wanted, node.position)

    def _plain(self, code: Code, wanted: bool) -> str:
        if code.is_constant:
            return str(self._logical(code, "a condition").constant is wanted)
        if code.type != ANY:
            self._logical(code, "a condition")
        return f"({code.text} is {wanted})"

    def _compared(self, name: str, codes: list[Code], wanted: bool, position: int) -> str:
        binding = self._bound(function(name), codes, position)
        one, other = (self._converted(code, want) for code, want in zip(codes, binding.wants, strict=True))
        if one.is_constant and other.is_constant:
            return self._plain(self._applied(binding, codes, position), wanted)
        name = name if wanted else _OPPOSITE[name]
        if one.is_constant:
            one, other, name = other, one, _MIRRORED[name]
        if other.is_constant and other.constant is None:
            return "False"
        general = self._space.given(self._bound(function(name), [one, other], position).call)
        test, left = self._named(one)
        constant, kind = other.constant, type(other.constant)
        if kind is str:
            short = f"{left} {_TESTS[name]} {other.text} if type({test}) is str"
            return f"({short} else {left} is not None and {general}({left}, {other.text}) is True)"
        if (kind is int or kind is float) and abs(constant) <= _EXACT:  # type: ignore[arg-type]
            sort = self._space.fresh("k")
            short = _NUMBERS[name].format(left, other.text)
            numeric = f"({sort} := type({test})) is int or {sort} is float"
            return (
                f"({short} if {numeric} else {left} is not None and {general}({left}, {other.text}) is True)"
            )
        second, right = self._named(other)
        sort = self._space.fresh("k")
        alike = f"({sort} := type({test})) is type({second}) and ({sort} is int or {sort} is str)"
        there = "" if other.is_constant else f"{right} is not None and "
        slow = f"{left} is not None and {there}{general}({left}, {right}) is True"
        return f"({left} {_TESTS[name]} {right} if {alike} else {slow})"

    def _in(self, codes: list[Code], wanted: bool, position: int) -> str:
        binding = self._bound(function("in"), codes, position)
        codes = [self._converted(code, want) for code, want in zip(codes, binding.wants, strict=True)]
        items = [code.constant for code in codes[1:]]
        texts = all(type(item) is str for item in items)
        numbers = all(type(item) is int and abs(item) <= _EXACT for item in items)
        if codes[0].is_constant or not (texts or numbers):
            return self._plain(self._applied(binding, codes, position), wanted)
        test, left = self._named(codes[0])
        listed = self._space.given(frozenset(items), "s")
        general = self._space.given(binding.call)
        values = ", ".join([left, *(code.text for code in codes[1:])])
        slow = f"{left} is not None and {general}({values}) is {wanted}"
        sort = self._space.fresh("k")
        kinds = f"({sort} := type({test})) is " + ("str" if texts else f"int or {sort} is float")
        return f"({left} {'in' if wanted else 'not in'} {listed} if {kinds} else {slow})"


_FORMS: Final[dict[str, Callable[[Writer, Call, int], Code]]] = {
    "and": Writer._logic,
    "or": Writer._logic,
    "not": Writer._not,
    "is_null": Writer._is,
    "is_true": Writer._is,
    "is_false": Writer._is,
    "between": Writer._between,
    "case": Writer._case,
    "if": Writer._case,
    "coalesce": Writer._coalesce,
    "ifnull": Writer._coalesce,
    "nvl": Writer._coalesce,
    "nvl2": Writer._nvl2,
}


def _large(value: Value) -> bool:
    """Whether a result for constants is more than a query keeps of one."""
    if isinstance(value, list):
        return len(value) > MAX_FOLDED_ITEMS or sum(map(len, filter(_is_text, value))) > MAX_FOLDED
    return isinstance(value, str | bytes) and len(value) > MAX_FOLDED


def _is_text(value: Value) -> bool:
    return isinstance(value, str)


def _literal(node: Literal) -> Type:
    value = node.value
    if value is None:
        return NULL
    if isinstance(value, bool):
        return BOOLEAN
    if isinstance(value, str):
        return STRING
    if isinstance(value, float):
        return DOUBLE
    if convert.wrap(value, 32) == value:
        return INT
    if convert.wrap(value, 64) == value:
        return BIGINT
    raise QueryError("a whole number of more than 64 bits", node.position)


def _counted(found: Function, node: Call) -> None:
    least, most = found.arguments
    count = len(node.arguments)
    if count < least or (most is not None and count > most):
        takes = f"{least}" if most == least else f"{least} or more" if most is None else f"{least} to {most}"
        raise QueryError(
            f"{found.name} takes {takes} argument{'' if takes == '1' else 's'}, not {count}", node.position
        )
