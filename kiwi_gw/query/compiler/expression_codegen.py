"""Writes expressions as Python source: what the compiler puts into its loops.

An expression is written in one of two ways. As a value it gives what the expression is, None for NULL. As a
truth it is whether the expression is TRUE (or, on the other side of a NOT, whether it is FALSE): most of
three-valued logic is gone then. This walks the tree; `calls`, `comparisons` and `choices` write what has no
tree any more.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from kiwi_gw.query.compiler.calls import CallCodegen
from kiwi_gw.query.compiler.choices import ChoiceCodegen
from kiwi_gw.query.compiler.code_fragments import CodeFragment, Namespace
from kiwi_gw.query.compiler.comparisons import TESTS, ComparisonCodegen, boolean
from kiwi_gw.query.compiler.paths import Paths
from kiwi_gw.query.errors import QueryError
from kiwi_gw.query.functions import function
from kiwi_gw.query.functions.base import Function
from kiwi_gw.query.tree import Cast, FunctionCall, Literal, Node, Path
from kiwi_gw.query.values import compare, convert
from kiwi_gw.query.values.implicit_casts import conversion
from kiwi_gw.query.values.types import ANY, BIGINT, BOOLEAN, CASTS, DOUBLE, INT, NULL, STRING, Type

# Python nests 200 parentheses: deeper trees go on in a function of their own.
_SPLIT: Final = 10


class ExpressionCodegen:
    """Write the expressions of one loop. definitions: functions that the written source needs."""

    def __init__(self, namespace: Namespace, paths: Paths) -> None:
        self._namespace = namespace
        self._paths = paths
        self._calls = CallCodegen(namespace)
        self._comparisons = ComparisonCodegen(self._calls)
        self._choices = ChoiceCodegen(self._calls)
        self.definitions: list[str] = []

    # Values

    def value(self, node: Node, depth: int = 0) -> CodeFragment:
        """Write the value of an expression: None for NULL.

        Raises:
            QueryError: the expression cannot be; with the position.
        """
        if isinstance(node, Literal):
            return self._namespace.constant(node.value, _literal(node), node.position)
        if isinstance(node, Path):
            return self._paths.code(node)
        code = self._cast(node, depth + 1) if isinstance(node, Cast) else self._call(node, depth + 1)
        if depth and depth % _SPLIT == 0 and not code.is_constant:
            return CodeFragment(self._apart(code.text), code.type, position=node.position)
        return code

    def _apart(self, text: str) -> str:
        """Write the expression as a function of its own, and return the call of it."""
        name = self._namespace.fresh_name("f")
        self.definitions.append(f"def {name}({self._paths.parameters}):\n    return {text}\n")
        return f"{name}({self._paths.parameters})"

    def _cast(self, node: Cast, depth: int) -> CodeFragment:
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
        if wanted == STRING and code.type == ANY:
            cast = self._namespace.text
        return self._calls.cast(code, cast, wanted)

    def _call(self, node: FunctionCall, depth: int) -> CodeFragment:
        found = function(node.name, node.position)
        _check_count(found, node)
        form = _FORMS.get(node.name)
        if form is not None:
            return form(self, node, depth)
        codes = [self.value(argument, depth) for argument in node.arguments]
        binding = self._calls.bind(found, codes, node.position)
        if binding.missing:
            for index, argument in enumerate(node.arguments):
                if isinstance(argument, Path):
                    text = self._paths.raw(argument.root, argument.steps, missing=True)
                    codes[index] = CodeFragment(text, codes[index].type, position=argument.position)
        return self._calls.apply(binding, codes, node.position, found.cost)

    # Forms

    def _condition(self, node: Node, depth: int, name: str) -> CodeFragment:
        """Write an operand of logic: True, False or None."""
        return self._comparisons.require_boolean(self.value(node, depth), name)

    def _logic(self, node: FunctionCall, depth: int) -> CodeFragment:
        codes = [self._condition(argument, depth, node.name) for argument in node.arguments]
        return self._comparisons.connected(codes, conjunction=node.name == "and")

    def _not(self, node: FunctionCall, depth: int) -> CodeFragment:
        test, name = self._calls.bind_once(self._condition(node.arguments[0], depth, "not"))
        return boolean(f"(None if {test} is None else not {name})")

    def _is(self, node: FunctionCall, depth: int) -> CodeFragment:
        """Write an expression that is never NULL itself: its truth is its value."""
        return boolean(self._truth(node, True, depth))

    def _between(self, node: FunctionCall, depth: int) -> CodeFragment:
        return self._comparisons.between(
            [self.value(argument, depth) for argument in node.arguments], node.position
        )

    def _case(self, node: FunctionCall, depth: int) -> CodeFragment:
        arguments = list(node.arguments)
        if len(arguments) % 2 == 0:
            arguments.append(Literal(None, node.position))
        conditions = [self.truth(argument, True, depth) for argument in arguments[:-1:2]]
        values = [self.value(argument, depth) for argument in [*arguments[1::2], arguments[-1]]]
        return self._choices.case(conditions, values, node)

    def _coalesce(self, node: FunctionCall, depth: int) -> CodeFragment:
        return self._choices.coalesce([self.value(argument, depth) for argument in node.arguments], node)

    # Truths

    def truth(self, node: Node, wanted: bool = True, depth: int = 0) -> str:
        """Write source that is true where the expression is TRUE (wanted) or FALSE (not wanted)."""
        if not isinstance(node, FunctionCall):
            return self._comparisons.truth(self.value(node, depth), wanted)
        name = node.name
        if name in {"and", "or", "not", "is_true", "is_false", "is_null", "in", "between", *TESTS}:
            _check_count(function(name, node.position), node)
            text = self._truth(node, wanted, depth + 1)
            return self._apart(text) if depth and depth % _SPLIT == 0 else text
        return self._comparisons.truth(self.value(node, depth), wanted)

    def _truth(self, node: FunctionCall, wanted: bool, depth: int) -> str:
        name, arguments = node.name, node.arguments
        if name in {"and", "or"}:
            parts = [self.truth(argument, wanted, depth) for argument in arguments]
            return f"({(' and ' if (name == 'and') is wanted else ' or ').join(parts)})"
        if name == "not":
            return self.truth(arguments[0], not wanted, depth)
        if name in {"is_true", "is_false"}:
            if isinstance(arguments[0], Path) and (code := self.value(arguments[0], depth)).type != BOOLEAN:
                # 1 is true, and so is 'yes': as `<=> true` has it.
                same = f"{self._namespace.name_of(compare.same)}({code.text}, {name == 'is_true'})"
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
            return self._comparisons.among(codes, wanted, node.position)
        if name == "between":
            return self._comparisons.between_truth(codes, wanted, node.position)
        return self._comparisons.compared(name, codes, wanted, node.position)


_FORMS: Final[dict[str, Callable[[ExpressionCodegen, FunctionCall, int], CodeFragment]]] = {
    "and": ExpressionCodegen._logic,
    "or": ExpressionCodegen._logic,
    "not": ExpressionCodegen._not,
    "is_null": ExpressionCodegen._is,
    "is_true": ExpressionCodegen._is,
    "is_false": ExpressionCodegen._is,
    "between": ExpressionCodegen._between,
    "case": ExpressionCodegen._case,
    "if": ExpressionCodegen._case,
    "coalesce": ExpressionCodegen._coalesce,
    "ifnull": ExpressionCodegen._coalesce,
    "nvl": ExpressionCodegen._coalesce,
}


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


def _check_count(found: Function, node: FunctionCall) -> None:
    least, most = found.arguments
    count = len(node.arguments)
    if count < least or (most is not None and count > most):
        takes = f"{least}" if most == least else f"{least} or more" if most is None else f"{least} to {most}"
        raise QueryError(
            f"{found.name} takes {takes} argument{'' if takes == '1' else 's'}, not {count}", node.position
        )
