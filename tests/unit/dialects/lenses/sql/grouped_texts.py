"""Texts that may be statements of SQL v2: most are, some of what is in them is not what it seems."""

from __future__ import annotations

from hypothesis import strategies as st

NASTY = (
    "'", '"', "`", "\\", "\\\\", "'; DROP TABLE t0; --", "` FROM t0 --", "/* ", "*/", "--", ";",
    "${env:HOME}", "$", "{", "\\u0027", "\\'", "''", "\n", "\x00", "\x1a", "\ud83d", "é", "😀", "%",
    "_", "'] --", "t0", "__c0", "__key0", "?", ":x",
)  # fmt: skip
"""What would end a text or a name, were it not written with care."""

_nasty = st.lists(st.sampled_from(NASTY), max_size=3).map("".join)


def quoted(text: str) -> str:
    """Write a text as a client does."""
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def named(text: str) -> str:
    return "`" + text.replace("`", "``") + "`"


_members = st.one_of(
    st.sampled_from(("a", "b.c", "_key", "_value", "_offset", "_meta.timestamp", "_headers.h", "a[0]")),
    _nasty.map(named),
    st.builds("a[{}]".format, _nasty.map(quoted)),
)
_constants = st.one_of(
    st.integers(-(2**63), 2**63 - 1).map(str),
    st.floats(allow_nan=False, allow_infinity=False).map(lambda number: f"{number!r}D"),
    st.sampled_from(("NULL", "TRUE", "FALSE", "1.5", "DATE '2020-01-01'")),
    _nasty.map(quoted),
)
_TWO = st.sampled_from(
    ("({} = {})", "({} <=> {})", "({} < {})", "({} + {})", "({} - {})", "({} DIV {})", "({} || {})",
     "ifnull({}, {})", "trim({} FROM {})", "({} IN (1, {}))", "nullif({}, {})", "({} BETWEEN 1 AND {})",
     "if({} IS NULL, 1, {})", "CASE WHEN {} IS TRUE THEN {} END", "substring({}, {})")
)  # fmt: skip
_ONE = st.sampled_from(
    ("upper({})", "(-{})", "({} IS NULL)", "({} IS NOT TRUE)", "CAST({} AS INT)", "{}::string", "ltrim({})",
     "({} LIKE 'a%')", "({} LIKE 'x$%' ESCAPE '$')", "({} RLIKE 'a[`]+')", "to_date({})")
)  # fmt: skip
_AGGREGATES = st.sampled_from(
    ("count({})", "sum({})", "count(DISTINCT {})", "max({})", "min_by({0}, {0})", "count_if({} = 1)",
     "median({})", "reflect({})", "java_method('java.lang.System', {})", "max(max({}))")
)  # fmt: skip
_TABLES = st.sampled_from(("t", "a-b.c")) | _nasty.map(named)
_aliases = st.sampled_from(("", "", " AS n", " AS m")) | _nasty.map(lambda text: f" AS {named(text)}")


def _expressions(prefixes: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    def larger(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
        return st.builds(str.format, _TWO, inner, inner) | st.builds(str.format, _ONE, inner)

    return st.recursive(st.builds(str.__add__, prefixes, _members) | _constants, larger, max_leaves=4)


@st.composite
def _texts(draw: st.DrawFn) -> str:
    joined = draw(st.booleans())
    expressions = _expressions(st.sampled_from(("x.", "y.") if joined else ("", "x.")))
    grouped = draw(st.booleans())
    groups = draw(st.lists(expressions, max_size=2)) if grouped else []
    of_groups = st.builds(str.format, _AGGREGATES, expressions) | st.sampled_from(("count(*)", *groups))
    values = of_groups if grouped else expressions
    columns = draw(st.lists(values, min_size=1, max_size=3))
    distinct = draw(st.sampled_from(("", "", "DISTINCT ")))
    text = f"SELECT {distinct}{', '.join(each + draw(_aliases) for each in columns)}"
    if not joined and not grouped and draw(st.booleans()):
        text = f"SELECT {distinct}*"
    text += f" FROM {draw(_TABLES)} x"
    if joined:
        side = draw(st.sampled_from(("", "LEFT ", "FULL OUTER ")))
        text += f" {side}JOIN {draw(_TABLES)} AS y ON x.a = y._key AND {draw(expressions)} IS NOT NULL"
    if draw(st.booleans()):
        text += f" WHERE {draw(expressions)} = 1 AND x._vtype = 'JSON'"
    if groups:
        text += f" GROUP BY {', '.join(groups)}"
    if grouped and draw(st.booleans()):
        text += f" HAVING {draw(values)} > 1"
    order = draw(st.sampled_from(columns) if distinct else values)
    text += f" ORDER BY {order} {draw(st.sampled_from(('', 'DESC NULLS FIRST', 'NULLS LAST')))}"
    return text + draw(st.sampled_from(("", " LIMIT 5", " LIMIT 20000")))


grouped_texts = _texts()
