"""How each operator and each function is written, with the kinds of its arguments.

`{l}` is an integer, `{k}` a small one, `{d}` a double, `{n}` either, `{s}` a string, `{w}` one that may be a
date (the years of Spark go on after 9999), `{b}` a boolean, `{D}` a
date, `{T}` a timestamp, `{ss}`, `{ls}`, `{xs}` arrays of strings, integers, doubles, `{x}` any one value,
`{p}` and `{q}` the members whose type changes, `{j}` JSON text, `{re}`, `{like}` constants for patterns.
A star after a kind marks results that no other function should get (they differ in the last bit, or in how
they are written).
"""

from __future__ import annotations

from typing import Final

OPERATORS: Final = {
    "b": (
        *("{n} = {n}", "{n} <> {n}", "{n} < {n}", "{n} <= {n}", "{n} > {n}", "{n} >= {n}"),
        *("{n} <=> {n}", "{s} = {s}", "{s} < {s}", "{s} >= {s}", "{s} <=> {s}", "{s} != {s}"),
        *("{b} = {b}", "{b} < {b}", "{b} >= {b}", "{b} <=> {b}", "{b} = 1", "{b} = 0", "{b} <> 1"),
        *("{b} = {l}", "{s} = {l}", "{s} > {l}", "{d} <= {s}", "{s} = 1", "{s} < 3000000000"),
        *("{s} <> {d}", "{s} = {b}", "{D} = {D}", "{D} < {T}", "{T} >= {T}", "{D} = {w}"),
        *("{w} > {T}", "{T} <=> {D}", "{D} <= '2020-2-9'", "{b} AND {b}", "{b} OR {b}", "NOT {b}"),
        *("{b} AND NULL", "NULL OR {b}", "NOT ({b} OR {b} AND {b})", "{n} BETWEEN {n} AND {n}"),
        *("{n} NOT BETWEEN {n} AND {n}", "{s} BETWEEN {s} AND {s}", "{s} BETWEEN {l} AND {d}"),
        *("{D} BETWEEN {w} AND {D}", "{l} IN (1, 2, {l})", "{n} IN ({n}, {n}, NULL)"),
        *("{s} IN ('a', 'abc', {s})", "{s} NOT IN ({s}, '')", "{l} IN ('1', '42', '-7')"),
        *("{d} IN ('1', '1.0', '0.5')", "{s} IN (1, 2, 10)", "{b} IN ({b}, NULL)"),
        *("{D} IN ({D}, DATE'2020-02-15')", "{l} NOT IN (1, NULL)", "{d} IN ({d}, {l})"),
        *("{x} IS NULL", "{x} IS NOT NULL", "{b} IS TRUE", "{b} IS NOT TRUE", "{b} IS FALSE"),
        *("{b} IS NOT FALSE", "{ss} IS NULL", "{s} LIKE {like}", "{s} NOT LIKE {like}"),
        *("{s} ILIKE {like}", "{s} LIKE 'x#%y' ESCAPE '#'", "{l} LIKE '1%'", "{s} LIKE {s}"),
        *("{d} LIKE '%.5'", "{s} NOT ILIKE 'A%'", "{s} ILIKE '_b/%' ESCAPE '/'", "{s} RLIKE {re}"),
        *("{s} NOT RLIKE {re}", "{l} RLIKE '^-?1'", "{s} REGEXP {re}"),
    ),
    "l": (
        *("{l} + {l}", "{l} - {l}", "{l} * {l}", "{l} % {l}", "{l} div {l}", "-{l}", "{i} + {i}"),
        *("{i} * {i}", "{i} - 1", "-{i}", "{k} * {k}", "{l} % -3", "{l} div -7"),
        *("2147483647 + {i}", "9223372036854775807 + {l}", "{ls}[0]"),
        *("CASE WHEN {b} THEN {l} ELSE {l} END", "CASE {l} WHEN 1 THEN {l} WHEN {l} THEN {l} END"),
        *("CASE WHEN {b} THEN {i} WHEN {b} THEN {l} END",),
        *("CASE {s} WHEN 1 THEN 10 WHEN 'a' THEN 20 ELSE 30 END",),
    ),
    "d": (
        *("{d} + {d}", "{d} - {d}", "{d} * {d}", "{d} / {d}", "{l} / {l}", "{d} % {d}"),
        *("{l} + {d}", "-{d}", "{s} + {l}", "{s} * {s}", "{s} / 2", "{l} % {s}", "-{s}"),
        *("{d} - {s}", "{l} / 0", "{d} / 0.0", "{i} / {k}", "{d} % 0"),
        *("{xs}[1]", "CASE WHEN {b} THEN {l} ELSE {d} END"),
        *("CASE {d} WHEN {l} THEN {d} END",),
    ),
    "s": (
        *("{s} || {s}", "{s} || {l}", "{b} || '-' || {d}", "{ss}[1]", "{ss}[0] || {D}"),
        *("CASE WHEN {b} THEN {s} ELSE {l} END", "CASE WHEN {b} THEN {s} END"),
        *("CASE {s} WHEN {s} THEN 'eq' END", "CASE WHEN {b} THEN {d} WHEN {b} THEN {s} END"),
        *("CASE WHEN {b} THEN {D} ELSE {s} END",),
    ),
    "D": (*("{D} + {k}", "{D} - {k}", "CASE WHEN {b} THEN {D} ELSE {D} END"),),
    "T": (*("CASE WHEN {b} THEN {T} ELSE {D} END",),),
}

FUNCTIONS: Final = {
    "b": (
        *("isnan({d})", "isnan({s})", "nvl({b}, false)", "if({b}, {b}, {b})", "startswith({s}, {s})"),
        *("endswith({s}, {s})", "contains({s}, {s})", "contains({s}, '')", "contains({l}, '1')"),
        *("startswith({s}, 'a')", "endswith({d}, '5')", "regexp_like({s}, {re})", "like({s}, {like})"),
        *("ilike({s}, {like})", "array_contains({ss}, {s})", "array_contains({ls}, {l})"),
        *("array_contains({xs}, {d})", "array_contains({ls}, {d})", "array_contains({xs}, 1)"),
        *("nullif({b}, {b})", "coalesce({b}, {b}, true)", "boolean({s})", "boolean({l})"),
        *("rlike({s}, {re})", "'a' LIKE {s}"),
    ),
    "l": (
        *("len({s})", "length({s})", "char_length({s})", "character_length({s})", "length({l})"),
        *("length({d})", "length({b})", "length({D})", "instr({s}, {s})", "locate({s}, {s})"),
        *("locate({s}, {s}, {k})", "position({s}, {s})", "position({s}, {s}, {k})", "abs({l})"),
        *("abs({i})", "mod({l}, {l})", "pmod({l}, {l})", "pmod({i}, {k})", "pmod({l}, -3)"),
        *("ceil({d})", "ceiling({d})", "floor({d})", "floor({l})", "ceil({s})", "round({l})"),
        *("round({l}, -1)", "round({i}, -2)", "round({l}, 2)", "greatest({l}, {l})"),
        *("least({l}, {l}, {l})", "greatest({i}, {l}, NULL)", "least({k}, {i})", "coalesce({l}, {l})"),
        *("nvl({l}, {l})", "ifnull({l}, {i})", "nullif({l}, {l})", "if({b}, {l}, {l})"),
        *("nullif({l}, {d})", "nullif({i}, {s})", "size({ss})", "size({ls})", "size(NULL)"),
        *("size(split({s}, ','))", "element_at({ls}, {k1})", "element_at({ls}, -1)", "year({D})"),
        *("month({D})", "day({D})", "dayofmonth({D})", "quarter({D})", "dayofyear({D})"),
        *("weekofyear({D})", "dayofweek({D})", "weekday({D})", "hour({T})", "minute({T})"),
        *("second({T})", "year({w})", "hour({w})", "year({T})", "hour({D})", "dayofweek({w})"),
        *("second({w})", "minute({w})", "datediff({D}, {D})", "date_diff({T}, {w})"),
        *("datediff({w}, {D})",),
        *("unix_seconds({T})", "unix_millis({T})", "unix_micros({T})", "bigint({s})", "int({d})"),
    ),
    "d": (
        *("pi()", "abs({d})", "abs({s})", "mod({d}, {d})", "pmod({d}, {d})", "pmod({d}, 2.5)"),
        *("round({d})", "round({d}, 1)", "round({d}, 2)", "round({d}, -2)", "round({s}, 1)"),
        *("sign({d})", "sqrt({d})", "sqrt({l})", "greatest({d}, {l})"),
        *("least({d}, {d})", "greatest({d}, {d}, {d})", "least({d}, NULL, {l})", "coalesce({l}, {d})"),
        *("nvl({d}, 0)", "nullif({d}, {l})", "if({b}, {l}, {d})", "element_at({xs}, {k1})"),
        *("double({s})", "radians({d})"),
    ),
    "d*": (
        *("pow({d}, {d})", "power({l}, {k})", "pow({d}, 0.5)", "sin({d})"),
        *("cos({d})", "asin({d})", "acos({d})", "atan2({d}, {d})"),
    ),
    "s": (
        *("upper({s})", "lower({s})", "ucase({s})", "lcase({s})", "upper({b})", "trim({s})"),
        *("ltrim({s})", "rtrim({s})", "trim('ab' FROM {s})", "trim(BOTH 'x ' FROM {s})"),
        *("trim(LEADING 'a' FROM {s})", "trim(TRAILING 'c' FROM {s})", "ltrim('a', {s})"),
        *("rtrim('c', {s})", "trim(LEADING FROM {s})", "substring({s}, {k})"),
        *("substring({s}, {k}, {k})", "substr({s}, {k}, {k})", "substring({s}, -2, 5)"),
        *("substring({s} FROM {k} FOR 2)", "substring({l}, 2)", "substring({s}, {d}, 2)"),
        *("substring({s}, 0)", "left({s}, {k})", "right({s}, {k})", "repeat({s}, {k})"),
        *("replace({s}, {s})", "replace({s}, {s}, {s})", "replace({s}, '', 'z')", "concat({s}, {s})"),
        *("concat({s}, {l}, {b})", "concat({d}, {D})", "concat({s})"),
        *("split({s}, ',')[1]", "split({s}, {re})[0]"),
        *("element_at({ss}, {k1})", "regexp_extract({s}, '([a-c])(b)?', 1)"),
        *("regexp_extract({s}, '([a-c])(b)?', 2)", "regexp_extract({s}, {re}, 0)"),
        *("regexp_extract({s}, '(.)(.)')", "regexp_replace({s}, {re}, 'Z')"),
        *("regexp_replace({s}, '(a)(b)', '$2$1')", "regexp_replace({s}, {re}, '')"),
        *("regexp_replace({s}, 'b', '\\\\$1')", "coalesce({s}, {s})", "coalesce({l}, {s})"),
        *("nvl({s}, {d})", "ifnull({s}, 'none')", "nullif({s}, {s})", "nullif({s}, {l})"),
        *("if({b}, {s}, {l})", "greatest({s}, {s})", "least({s}, {s}, 'b')"),
        *("get_json_object({j}, '$.a')", "get_json_object({j}, '$.b.c[0]')"),
        *("get_json_object({j}, '$.b.c[2].d')", "get_json_object({j}, '$.b')"),
        *("get_json_object({j}, '$')", "get_json_object({j}, '$[1]')"),
        *("get_json_object({j}, '$.b.c[*]')", "get_json_object({j}, '$[\\'x y\\']')"),
        *("get_json_object({j}, '$.e')", "get_json_object({j}, 'a')", "get_json_object({s}, '$.a')"),
        *("get_json_object({j}, '$.ü')", "get_json_object({j}, '$[*]')"),
        *("get_json_object({j}, '$.a.y[0]')", "string({l})", "string({d})", "string({T})"),
    ),
    "D": (
        *("date({w})", "date({T})", "to_date({w})", "to_date({T})", "date_add({D}, {k})"),
        *("date_sub({D}, {k})", "dateadd({D}, {k})", "date_add({w}, 1)", "greatest({D}, {D})"),
        *("least({D}, {D})", "coalesce({D}, {D})", "nvl({D}, DATE'2020-01-01')", "if({b}, {D}, {D})"),
        *("nullif({D}, {D})",),
    ),
    "T": (
        *("timestamp({w})", "timestamp({D})", "to_timestamp({w})"),
        *("timestamp_seconds({i})", "timestamp_millis({i})", "timestamp_micros({i})"),
        *("timestamp_seconds({d0})", "greatest({T}, {D})", "coalesce({T}, {D})", "if({b}, {T}, {T})"),
    ),
    "ss": (
        *("split({s}, {re})", "split({s}, ',', 2)", "split({s}, ',', 0)", "split({s}, '')"),
        *("if({b}, {ss}, {ss})", "nvl({ss}, {ss})"),
    ),
    "ls": (*("if({b}, {ls}, {ls})", "nvl({ls}, {ls})"),),
    "o": (*("{o}", "{os}", "{os}[1]", "{mp}"),),
}

# The type of a cast, and where to look for what it makes.
CASTS: Final = (
    *(("BIGINT", "l"), ("INT", "l"), ("DOUBLE", "d")),
    *(("STRING", "s"), ("BOOLEAN", "b"), ("DATE", "D"), ("TIMESTAMP", "T")),
)

PATTERNS: Final = (
    *("'a'", "','", "'[a-c]+'", "'(a)(b)?'", "'\\\\s+'", "'.'", "'[0-9]+'", "'b*'", "'(?i)ABC'", "'\\\\.'"),
    *("'^a'", "'c$'", "'a|b'", "'[^a]'", "''", "'(?s)a.b'", "'\\\\d'", "'é|ß'", "'x%'", "'^.$'", "'\\\\w+'"),
)
LIKES: Final = (
    *(
        "'a%'",
        "'%b%'",
        "'_'",
        "'%'",
        "''",
        "'x\\%y'",
        "'a\\_b'",
        "'a\\\\_b'",
        "'a_b'",
        "'%\\\\\\\\%'",
        "'___'",
    ),
    *("'%é'", "'%é%'", "'a%c'", "'%,%,%'", "'A%'", "'.*'", "'1%'", "'%\\n%'", "'STRASSE'", "'straße'"),
)
