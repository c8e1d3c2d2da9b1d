"""Conditions, and how a statement with one is written."""
# ruff: noqa: S608

from __future__ import annotations

from hypothesis import strategies as st

from kiwi_gw.query.tree import Cast, FunctionCall, Literal, Node, Path

_names = st.sampled_from(("a", "b c", "_key", "select", "it`s", "é"))
_steps = st.lists(_names | st.integers(0, 9), max_size=3).map(tuple)
_paths = st.one_of(
    st.builds(lambda first, rest: Path("value", (first, *rest)), _names, _steps),
    st.builds(Path, st.sampled_from(("value", "key", "headers")), _steps),
    st.sampled_from([Path(root) for root in ("offset", "partition", "timestamp", "key_size", "value_size")]),
)
_literals = st.builds(
    Literal,
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.text(st.characters(codec="utf-8"), max_size=5)
    | st.floats(allow_nan=False, allow_infinity=False, min_value=0),
)


def _calls(inner: st.SearchStrategy[Node]) -> st.SearchStrategy[Node]:
    two = st.tuples(inner, inner)
    return st.one_of(
        st.builds(FunctionCall, st.sampled_from(("=", "<", ">=", "+", "and", "or", "concat")), two),
        st.builds(FunctionCall, st.sampled_from(("upper", "not", "is_null")), st.tuples(inner)),
        st.builds(FunctionCall, st.just("in"), st.tuples(inner, inner, inner)),
        st.builds(Cast, inner, st.sampled_from(("INT", "STRING"))),
    )


conditions = st.recursive(_paths | _literals, _calls, max_leaves=12)

_ROOTS = {
    "value": "_value", "key": "_key", "headers": "_headers", "offset": "_meta.offset",
    "partition": "_partition", "timestamp": "_ts", "key_size": "_meta.__keysize",
    "value_size": "_meta.__valuesize",
}  # fmt: skip


def printed(condition: Node, table: str, limit: int | None) -> str:
    """Write the statement."""
    end = "" if limit is None else f" LIMIT {limit}"
    return f"SELECT * FROM {_name(table)} WHERE {_text(condition)}{end}"


def _name(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def _text(node: Node) -> str:
    match node:
        case Path(root, steps):
            inside = (f".{_name(step)}" if isinstance(step, str) else f"[{step}]" for step in steps)
            return _ROOTS[root] + "".join(inside)
        case Literal(str() as text):
            return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"
        case Literal(float() as number):
            return repr(number) if "." in repr(number) else f"{number!r}D"
        case Literal(None | bool() as constant):
            return {None: "NULL", True: "TRUE", False: "FALSE"}[constant]
        case Literal(number):
            return str(number)
        case Cast(value, to):
            return f"CAST({_text(value)} AS {to})"
        case FunctionCall("not", (value,)):
            return f"(NOT ({_text(value)}))"
        case FunctionCall("is_null", (value,)):
            return f"(({_text(value)}) IS NULL)"
        case FunctionCall("in", (value, *others)):
            return f"(({_text(value)}) IN ({', '.join(map(_text, others))}))"
        case FunctionCall("upper", (value,)):
            return f"upper({_text(value)})"
        case FunctionCall("concat", (left, right)):
            return f"(({_text(left)}) || ({_text(right)}))"
        case FunctionCall(name, (left, right)):
            return f"(({_text(left)}) {name.upper()} ({_text(right)}))"
    raise AssertionError(node)
