"""Writes choices between values: CASE, IF, COALESCE and the like."""

from __future__ import annotations

from kiwi_gw.query.compiler.calls import CallCodegen
from kiwi_gw.query.compiler.code_fragments import CodeFragment
from kiwi_gw.query.errors import QueryError
from kiwi_gw.query.tree import FunctionCall
from kiwi_gw.query.values.implicit_casts import settler
from kiwi_gw.query.values.types import ANY, NULL, Type, common


class ChoiceCodegen:
    """Write choices whose conditions and values are written already."""

    def __init__(self, calls: CallCodegen) -> None:
        self._calls = calls
        self._namespace = calls.namespace

    def case(self, conditions: list[str], values: list[CodeFragment], node: FunctionCall) -> CodeFragment:
        """Write the value of the first condition that is true, else the last value, which has none."""
        values, met = self._met(values, node)
        ahead, values = self._ahead(values, met)
        chosen = self._chosen(list(zip(conditions, values[:-1], strict=True)), values[-1], met, node.position)
        return self._settled(ahead, chosen, values)

    def coalesce(self, values: list[CodeFragment], node: FunctionCall) -> CodeFragment:
        """Write the first value that is not NULL."""
        values, met = self._met(values, node)
        ahead, values = self._ahead(values, met)
        choices: list[tuple[str, CodeFragment]] = []
        for value in values[:-1]:
            if value.is_constant and value.constant is None:
                continue
            test, name = self._calls.bind_once(value)
            named = CodeFragment(name, value.type, value.constant, value.position)
            choices.append(("True" if value.is_constant else f"{test} is not None", named))
        return self._settled(ahead, self._chosen(choices, values[-1], met, node.position), values)

    def _chosen(
        self, choices: list[tuple[str, CodeFragment]], last: CodeFragment, met: Type, position: int
    ) -> CodeFragment:
        """Write the value of the first condition that is true, else the last."""
        chosen = ""
        for condition, value in choices:
            if condition == "True":
                last = value
                break
            if condition != "False":
                chosen += f"{value.text} if {condition} else "
        if chosen:
            return CodeFragment(f"({chosen}{last.text})", met, position=position)
        return CodeFragment(last.text, met, last.constant, position)

    def _ahead(self, values: list[CodeFragment], met: Type) -> tuple[list[str], list[CodeFragment]]:
        """Return source that evaluates the values ahead, and the values as names. All of them are needed
        where the type of a choice depends on the values of the record."""
        if met != ANY or len([value for value in values if value.type != NULL]) < 2:
            return [], values
        tests: list[str] = []
        named: list[CodeFragment] = []
        for value in values:
            if value.type == ANY and not value.is_constant:
                test, name = self._calls.bind_once(value)
                tests += [test] if test != name else []
                value = CodeFragment(name, ANY, position=value.position)
            named.append(value)
        return [*tests, ""], named

    def _settled(self, ahead: list[str], chosen: CodeFragment, values: list[CodeFragment]) -> CodeFragment:
        """Cast the choice to the type that Spark gives it, by the types of all values of this record."""
        if not ahead or (chosen.is_constant and chosen.constant is None):
            return chosen
        static = common(tuple(value.type for value in values if value.type != ANY)) or NULL
        settle = self._namespace.name_of(settler(static))
        names = [value.text for value in values if value.type == ANY]
        text = f"{settle}({', '.join([chosen.text, *names])})"
        if tests := ahead[:-1]:
            text = f"({', '.join([*tests, text])})[-1]"
        return CodeFragment(text, ANY, position=chosen.position)

    def _met(self, values: list[CodeFragment], node: FunctionCall) -> tuple[list[CodeFragment], Type]:
        """Cast the values to the type that all of them have in common.

        Raises:
            QueryError: they have none in common.
        """
        met = common(tuple(value.type for value in values))
        if met is None or (
            met == ANY and common(tuple(value.type for value in values if value.type != ANY)) is None
        ):
            listed = ", ".join(dict.fromkeys(str(value.type) for value in values))
            raise QueryError(f"{node.name} of {listed}: there is no type for all of them", node.position)
        keep = met in (ANY, NULL)
        return [
            value if keep or value.type == NULL else self._calls.convert(value, met) for value in values
        ], met
