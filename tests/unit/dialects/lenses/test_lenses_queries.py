"""Statements before the records of a source: what passes, what it becomes, and what a source has not."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest

from kiwi_gw.core.notices import Unanswered
from kiwi_gw.dialect_api.limits import SessionLimits
from kiwi_gw.dialects.compiling import BUSY, CompilingBudget
from kiwi_gw.dialects.lenses import any_queries, queries
from kiwi_gw.dialects.lenses.queries import Applied, ReadStatement, checked, offloaded, parse
from kiwi_gw.dialects.lenses.sql import Statement
from kiwi_gw.dialects.lenses.v1.records import records_wire
from kiwi_gw.errors import SubscribeRefused
from kiwi_gw.model import Batch, Decode, Encoded, SourceInfo, WireFormat
from kiwi_gw.query.errors import QueryError
from kiwi_gw.query.worker_messages import answer, is_small
from kiwi_kafka.event_schema import FIELD_NAMES, event_schema
from tests.encoding import encoded
from tests.fuzz.targets import forget
from tests.processor import least

INFO = SourceInfo("s", "kafka", event_schema(FIELD_NAMES))
AVRO = '{"type":"record","name":"r","fields":[{"name":"n","type":"int"}]}'


def records(statement: Statement, applied: Applied) -> WireFormat:
    projects = statement.query.select is not None
    written = records_wire(statement.table, applied.source.decode, projects=projects)
    return replace(written, chosen=applied.chosen, transform=applied.transform)


def wire(read: ReadStatement, info: SourceInfo = INFO) -> WireFormat:
    return read.wire(records, CompilingBudget(SessionLimits()))(info)


def made_of(sql: str, *values: bytes | None, info: SourceInfo = INFO) -> Encoded:
    """Return what is made of these values, whose keys are the number of each (4 bytes)."""
    size = len(values)
    columns: dict[str, Sequence[object]] = {
        "key": [number.to_bytes(4, "big") for number in range(size)],
        "value": values,
        "timestamp": [1000 + number for number in range(size)],
        "headers": [[("h", b"%d" % number)] for number in range(size)],
    }
    batch = Batch({0: 0}, [0] * size, range(size), columns, cost=1)
    return encoded(wire(parse(checked(sql)), info), batch)


def seen(sql: str, *values: bytes | None, info: SourceInfo = INFO) -> list[tuple[int, object]]:
    """Return the offsets and values that are sent of these, as above."""
    made = made_of(sql, *values, info=info)
    found = json.loads(b"[" + made.buffer[:-1] + b"]")
    return [(record["offset"], record.get("value")) for record in found]


def number(n: int, size: int) -> bytes:
    return n.to_bytes(size, "big", signed=True)


TWO = (b'{"a":1,"b":{"c":"x"}}', b'{"a":2,"b":null}')


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        ("SELECT * FROM t", [(0, TWO[0].decode()), (1, TWO[1].decode())]),
        ("SELECT * FROM t WHERE a = 2", [(1, TWO[1].decode())]),
        ("SELECT * FROM t WHERE _value.b.c = 'x'", [(0, TWO[0].decode())]),
        ("SELECT a FROM t WHERE _headers.h = '1'", [(1, '{"a":2}')]),
        ("SELECT b.c FROM t", [(0, '{"c":"x"}'), (1, '{"c":null}')]),
        ("SELECT _meta.* FROM t WHERE _meta.offset = 1",
         [(1, '{"offset":1,"partition":0,"timestamp":1001,"__keysize":4,"__valuesize":16}')]),
        ("SELECT _key FROM t WHERE _ktype='INT' AND _key > 0", [(1, '{"_key":1}')]),
        ("SELECT _value FROM t WHERE _offset = 1", [(1, '{"_value":{"a":2,"b":null}}')]),
        ("SELECT _value.* FROM t WHERE a = 2", [(1, '{"a":2,"b":null}')]),
        ("SELECT _value.*, upper(b.c) AS b, _offset FROM t LIMIT 1",
         [(0, '{"a":1,"b":"X","_offset":0}'), (1, '{"a":2,"b":null,"_offset":1}')]),
        ("SELECT 5 AS a, _value.*, _key.* FROM t WHERE a = 2", [(1, '{"a":5,"b":null}')]),
        ("SELECT * FROM t WHERE _vtype='BYTES' AND _meta.__valuesize < 20",
         [(1, "eyJhIjoyLCJiIjpudWxsfQ==")]),
    ],
)  # fmt: skip
def test_what_comes(sql: str, expected: list[tuple[int, object]]) -> None:
    found = seen(sql, *TWO)
    assert [(offset, _parsed(value)) for offset, value in found] == [(o, _parsed(v)) for o, v in expected]


def _parsed(value: object) -> object:
    """Read what is JSON: the order of its members means nothing."""
    return json.loads(value) if isinstance(value, str) and value[:1] == "{" else value


@pytest.mark.parametrize(
    ("sql", "values", "expected"),
    [
        ("_vtype='int' AND _value > 1", [number(1, 4), number(7, 4), b"xx", None], [(1, "7")]),
        ("_vtype='LONG' AND _value < 0", [number(-9, 8), number(9, 8)], [(0, "-9")]),
        ("_vtype='STRING' AND _value LIKE 'a%'", [b"ab", b"b", b"a\xff"], [(0, "ab")]),
        ("_vtype='INT'", [number(5, 4), b"xx", None], [(0, "5"), (2, None)]),
        ("a > 1", [b"no json", b'{"a":2}'], [(1, '{"a":2}')]),
    ],
)
def test_decoders_for_conditions_and_for_what_is_written(
    sql: str, values: list[bytes | None], expected: list[tuple[int, object]]
) -> None:
    assert seen(f"SELECT * FROM t WHERE {sql}", *values) == expected  # noqa: S608


def test_a_value_of_no_object_has_no_members() -> None:
    assert seen("SELECT _value.* FROM t WHERE _vtype='STRING'", b"x") == [(0, "{}")]


def test_avro_works_where_the_source_declares_it() -> None:
    info = replace(INFO, decode=Decode("avro", "string", avro_schema=AVRO))
    assert seen("SELECT n FROM t WHERE _vtype='AVRO' AND n > 1", b"\x0e", b"\x00", info=info) == [
        (0, '{"n":7}')
    ]
    assert seen("SELECT * FROM t", b"\x0e", b"", info=info) == [(0, '{"n":7}')]
    for part, its_info in (("_vtype", INFO), ("_ktype", INFO), ("_ktype", info)):
        with pytest.raises(SubscribeRefused, match=r"does not declare it as AVRO .*at character 30"):
            wire(parse(checked(f"SELECT * FROM t WHERE {part}='AVRO'")), its_info)  # noqa: S608


def test_a_bad_record_ends_it_where_the_source_says_so() -> None:
    info = replace(INFO, decode=Decode(close=True))
    for sql in ("SELECT * FROM t WHERE _vtype='INT'", "SELECT * FROM t WHERE _vtype='INT' AND _value > 1"):
        made = made_of(sql, number(5, 4), b"xx", number(6, 4), b"yy", info=info)
        assert (made.failing, made.decode_errors) == ((1, 3), 0)


def test_a_schema_is_about_values_as_the_source_declares_them() -> None:
    info = replace(INFO, decode=Decode(fields="a INT"), members="a INT")
    for sql in ("SELECT b FROM t", "SELECT * FROM t WHERE b = 1"):
        with pytest.raises(SubscribeRefused, match=r"^value has no 'b'.*character"):
            wire(parse(checked(sql)), info)
    assert wire(parse(checked("SELECT b FROM t WHERE _vtype='STRING'")), info)


def test_headers_are_read_where_the_source_says_so() -> None:
    with pytest.raises(SubscribeRefused, match="headers of this source are not read"):
        wire(parse(checked("SELECT _headers.h FROM t")), SourceInfo("s", "kafka", event_schema()))


def test_what_the_compiler_finds_has_its_place() -> None:
    with pytest.raises(QueryError) as caught:
        parse(checked("SELECT a FROM t WHERE nosuch(a)"))
    assert caught.value.position == 22


def test_what_was_refused_lately_is_not_read_again() -> None:
    sql = "SELECT a FROM t WHERE refused("
    with pytest.raises(QueryError) as first:
        parse(checked(sql))
    with pytest.raises(QueryError) as second:
        checked(sql)
    assert str(second.value) == str(first.value)


def test_a_long_text_is_refused_unread() -> None:
    with pytest.raises(QueryError, match="longer than 50 bytes"):
        checked("SELECT " + "é" * 30, 50)


@pytest.mark.parametrize(
    "sql",
    ["SELECT * FROM t", "SELECT a, _meta.__keysize FROM t WHERE _ktype='INT' AND _key > 0 AND a > 1 LIMIT 5"],
)
def test_a_worker_reads_the_same(sql: str) -> None:
    text = checked(sql)
    assert text.is_small
    here, there = parse(text), offloaded(text, answer(text.question))
    assert there.statement == here.statement
    assert there.key == here.key
    assert bool(there.bytecode) == bool(there.key)
    assert wire(there).key == wire(here).key


def test_a_worker_refuses_the_same() -> None:
    text = checked("SELECT a FROM t WHERE of_worker(a)")
    with pytest.raises(QueryError) as there:
        offloaded(text, answer(text.question))
    with pytest.raises(QueryError) as here:
        parse(text)
    assert (str(there.value), there.value.position) == (str(here.value), here.value.position)


def test_a_worker_that_is_busy_is_asked_again() -> None:
    text = checked("SELECT a FROM busy")
    with pytest.raises(QueryError, match=BUSY):
        offloaded(text, Unanswered.BUSY)
    assert checked("SELECT a FROM busy") == text
    with pytest.raises(QueryError, match="too much time"):
        offloaded(text, next(each for each in Unanswered if each is not Unanswered.BUSY))
    with pytest.raises(QueryError, match="too much time"):
        checked("SELECT a FROM busy")


def test_large_statements_are_for_the_worker() -> None:
    assert not checked("SELECT * FROM t WHERE " + "a = 1 AND " * 40 + "b").is_small


def test_equal_statements_share_the_bytes_of_what_they_make() -> None:
    one, other = (wire(parse(checked(sql))) for sql in ("SELECT a FROM t", "select  a from t limit 3"))
    assert one.transform is not None
    assert other.transform is not None
    assert (one.key, one.transform.key) == (other.key, other.transform.key)
    assert queries.parse(checked("SELECT * FROM t")).key == ""


DEAREST = ("-a{}>1", "a{}=1", "trim(_key)={}", "_key||{}=_key", "_value.a{}=1")
"""What takes longest to read and compile, for its length."""


def read_here(text: str) -> None:
    """Do what the loop does of a small statement: read and compile it, and put it before a source."""
    wire(parse(checked(text)))


def read_any_here(text: str) -> None:
    any_queries.parse_any(any_queries.checked_any(text))


@pytest.mark.cost
@pytest.mark.parametrize("term", DEAREST)
@pytest.mark.parametrize(
    ("read", "head", "joint"),
    [
        (read_here, "SELECT * FROM t WHERE ", " OR "),
        (read_here, "SELECT * FROM t WHERE ", " AND "),
        (read_any_here, "SELECT count(*) FROM t WHERE ", " OR "),
        (read_any_here, "SELECT count(*) AS c FROM t GROUP BY ", ", "),
        (read_any_here, "SELECT a FROM t ORDER BY ", ", "),
    ],
)
def test_what_the_loop_reads_itself_takes_it_less_than_5_ms(
    read: Callable[[str], None], head: str, joint: str, term: str
) -> None:
    def written(terms: int) -> str:
        return head + joint.join(term.format(n) for n in range(terms))

    text = written(next(n for n in range(1, 80) if not is_small(written(n + 1))))

    def work() -> None:
        forget()
        read(text)

    assert least(work, 0.005) < 0.005


LARGE = {
    "many terms": " OR ".join(f"a{n} = {n}" for n in range(70)),
    "deep": f"{'NOT ' * 20}({'(' * 20}a{')' * 20})" + " AND b = 1" * 40,
    "a list": f"a IN ({', '.join(map(str, range(250)))}) OR TRUE",
    "long texts": f"a IN ({', '.join(repr(f'{n:02}' * 30) for n in range(60))})",
    "patterns": " OR ".join(f"a LIKE '%x{n}%y%'" for n in range(30)),
}


@pytest.mark.cost
@pytest.mark.parametrize("condition", LARGE.values(), ids=LARGE)
def test_of_what_another_process_has_read_the_loop_has_less_than_5_ms_to_do(condition: str) -> None:
    text = checked(f"SELECT * FROM t WHERE {condition}")  # noqa: S608
    assert not text.is_small
    found = answer(text.question)

    def take() -> None:
        forget()
        wire(offloaded(text, found))

    assert least(take, 0.005) < 0.005
