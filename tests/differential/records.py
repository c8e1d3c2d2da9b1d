"""The records that generated expressions are evaluated over: made by a seed, the same in every run.

`typed` fits SCHEMA, but for members that are missing, null, or of the wrong type, as in real topics; `loose`
has members of another type in every record.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

SCHEMA: Final = (
    "i INT, l BIGINT, m INT, d DOUBLE, e DOUBLE, s STRING, u STRING, "
    "n STRING, w STRING, b BOOLEAN, c BOOLEAN, dt DATE, ts TIMESTAMP, ss ARRAY<STRING>, ls ARRAY<BIGINT>, "
    "xs ARRAY<DOUBLE>, o STRUCT<x: BIGINT, y: STRING, z: STRUCT<q: DOUBLE>>, "
    "os ARRAY<STRUCT<k: STRING, v: BIGINT>>, j STRING, mp MAP<STRING, BIGINT>, `odd name` STRING"
)
"""Of the typed records, as Spark writes it."""

LONGS: Final = (0, 1, -1, 2, 3, 7, -7, 10, 42, 100, 255, 1000, -1000, 86_400, 1_600_000_000)
EDGES: Final = (2**31 - 1, -(2**31), 2**31, 2**53 + 1, 2**63 - 1, -(2**63), 2**63 - 2, -(2**62))
DOUBLES: Final = (0.0, -0.0, 1.0, -1.0, 0.5, 1.5, 2.5, -2.5, 2.675, 1.005, 0.1, 0.001, 1e-3, 9.99e-4, 123.456)
WIDE: Final = (1e7, 9999999.0, 1e10, -1e20, 1e300, 1e-300, 3e9, -3e9, 9.3e18, 1e-310, 1.7976931348623157e308)
WORDS: Final = (
    "",
    "a",
    "abc",
    "Abc",
    "hello world",
    "a,b,c",
    "a,,b,",
    " x ",
    "x%y",
    "a_b",
    "a\\b",
    "aa",
    "b",
)
UNICODE: Final = (
    "",
    "é",
    "Straße",
    "日本語",
    "😀",
    "a😀b",
    "👩\u200d👧",
    "e\u0301",
    "ÀÉÎ",
    "ΑΣ",
    "naïve café",
    "\u00a0x\u00a0",
    "a\nb",
    "\tq",
)
NUMERALS: Final = (
    *("0", "1", "-1", "+5", " 12 ", "1.9", "-1.9", ".5", "5.", ".", "-", "", "abc", "1e1", "1E-2", "0x10"),
    *("2147483648", "9223372036854775807", "9223372036854775808", "-9223372036854775808", "1_000", "1,000"),
    *("NaN", "nan", "Infinity", "-inf", "+Infinity", "1d", "1f", "1e400", "٣", "007", "true", "10"),
)
DATES: Final = (
    *("2020-02-29", "2020-2-9", "2020", "2020-12", "2020-01-02 03:04:05", "2020-01-02T03:04:05.123456Z"),
    *("2020-01-02 03:04:05.1234567+02:30", "2020-01-02 3:4", "2020-01-02 3", "2020-01-02T", "2020-13-01"),
    *("2021-02-29", "20200102", " 2020-01-02 ", "2020-01-02 garbage", "1969-12-31 23:59:59.999999"),
    *("2020-01-02 03:04:05 UTC+1", "x", "", "2020-01-02 24:00:00"),
    *("1999-12-31", "2000-01-01 00:00:00", "0003-01-01", "9997-12-31 23:59:59", "2020/01/02", "+2020-01-01"),
)
TEXTS: Final = ("true", "T", "yes", "NO", "f", "0", "1", "maybe", "a", "10", "9", "2020-01-01", "1.5", "1.0")
JSONS: Final = (
    '{"a":1,"b":{"c":[1,2,{"d":"x"}]},"e":null}',
    '{"a":"text","b":{"c":[]}}',
    '{"a":1.50,"b":{"c":["p","q"]}}',
    '{"a":true}',
    '{"a":1e5,"x y":2,"ü":"é"}',
    '{"a":{"z":1,"y":[true,null]}}',
    "[1,2,3]",
    '["x",null,{"a":2}]',
    "[]",
    "{}",
    "17",
    '"s"',
    "null",
    "",
    "{",
    '{"a": 1 , "b" : [ 1 , 2 ] }',
    "not json",
)

_Make = Callable[[random.Random], Any]


def _of(*values: Any) -> _Make:
    return lambda source: source.choice(values)


def _some(make: _Make, most: int, null: float = 0.2) -> _Make:
    def items(source: random.Random) -> list[Any]:
        return [
            None if source.random() < null else make(source) for _ in range(source.choice(range(most + 1)))
        ]

    return items


def _day(source: random.Random) -> str:
    return f"{source.choice((1969, 1970, 1999, 2000, 2020, 2021, 2024))}-{source.randint(1, 12):02}-" + (
        f"{source.choice((1, 2, 15, 28)):02}"
    )


def _moment(source: random.Random) -> str:
    fraction = source.choice(("", ".5", ".123456", ".000001"))
    return (
        f"{_day(source)}T{source.randint(0, 23):02}:{source.randint(0, 59):02}:{source.randint(0, 59):02}"
        f"{fraction}Z"
    )


_WORD, _NUMBER, _NUMERAL = _of(*WORDS), _of(*LONGS, *EDGES), _of(*NUMERALS)
_MEMBERS: Final[Mapping[str, _Make]] = {
    "i": _of(*LONGS, 2**31 - 1, -(2**31)),
    "l": _NUMBER,
    "m": _of(*range(-4, 9)),
    "h": _of(0, 1, -1, 300, 32767, -32768),
    "y": _of(0, 1, -1, 127, -128),
    "d": _of(*DOUBLES),
    "e": _of(*DOUBLES, *WIDE, "NaN", "Infinity", "-Infinity"),
    "f": _of(0.0, 0.5, -1.25, 0.1, 3.3, 16777217.0, 1e10),
    "s": _WORD,
    "u": _of(*UNICODE),
    "n": _NUMERAL,
    "w": _of(*DATES),
    "b": _of(True, False),
    "c": _of(True, False),
    "dt": _day,
    "ts": _moment,
    "ss": _some(_WORD, 4),
    "ls": _some(_NUMBER, 4),
    "xs": _some(_of(*DOUBLES), 4),
    "o": lambda source: {
        "x": source.choice((1, 2, None)),
        "y": source.choice(WORDS),
        "z": source.choice(({"q": 1.5}, {"q": None}, {}, None)),
    },
    "os": _some(lambda source: {"k": source.choice(WORDS), "v": source.choice((1, 2**40, None))}, 3),
    "j": _of(*JSONS),
    "mp": _of({}, {"a": 1}, {"b": None, "ü": 2**40}),
    "odd name": _WORD,
}

_ANY: Final = _of(
    *(None, True, False, 0, 1, -7, 2**31, 4_000_000_000, 0.0, -0.0, 1.0, 1.5, -2.5, 1e10, 1e-7),
    *("", "a", "1", "1.5", " 7 ", "true", "no", "abc", "2020-01-02", "x,y", "ß😀", "3000000000"),
    *([], [1, 2, None], ["a", "b"], [1.5, 2], {}, {"x": 1, "y": "s"}, {"x": {"q": 2.5}}),
)


def typed(count: int, seed: int) -> Sequence[Mapping[str, Any]]:
    """Records that have the members of SCHEMA; the first has none, the second nothing but nulls."""
    source = random.Random(seed)
    records: list[dict[str, Any]] = [{}, dict.fromkeys(_MEMBERS)]
    while len(records) < count:
        record = {}
        for name, make in _MEMBERS.items():
            chance = source.random()
            if chance >= 0.06:
                record[name] = None if chance < 0.12 else make(source)
        records.append(record)
    return records


def loose(count: int, seed: int) -> Sequence[Mapping[str, Any]]:
    """Records whose members `p`, `q` and `r` are of any type; the others are as in the typed ones."""
    source = random.Random(seed)
    records = []
    for record in typed(count, seed + 1):
        more = {name: _ANY(source) for name in ("p", "q", "r") if source.random() > 0.06}
        records.append({**record, **more})
    # A number with a point is a decimal in a VARIANT, and -0.0 none.
    found: Sequence[Mapping[str, Any]] = json.loads(
        json.dumps(records).replace("-0.0,", "0.0,").replace("-0.0}", "0.0}").replace("-0.0]", "0.0]")
    )
    return found
