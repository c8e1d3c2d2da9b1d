"""Every decoder of Lenses, in and out, in keys and in values: v1 writes and reads, v2 and aiokafka read."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple
from uuid import UUID

import pytest
import trio

from kiwi_demo.broker import Broker
from tests.edge.admin import scrape, value
from tests.integration.gateway import GatewayProcess, gateway
from tests.integration.kafka.test_writing import read_pairs
from tests.integration.test_lenses import Message, answer, config, in_python, records, request, select
from tests.integration.test_lenses_sql import executed
from tests.topics import Record, Topics

pytestmark = pytest.mark.integration

NewTopic = Callable[[], str]

TOKEN = "a-token-of-a-machine"
BEARER = {"Authorization": f"Bearer {TOKEN}"}
BEGAN: Final = 1_795_250_845_000
ABSENT: Final = object()
FROM_BEGIN: Final = "AND _meta.offset >= 0"


class Written(NamedTuple):
    """Hold a key or a value. given: to PUBLISH; raw: as Kafka has it; text: in v1; seen: in v2."""

    given: object
    raw: bytes | None
    text: object
    seen: object


NULLS = [Written(None, None, ABSENT, None), Written(ABSENT, None, ABSENT, None)]
WRITTEN = {
    "STRING": [
        Written("\u00e9\U0001f600", b"\xc3\xa9\xf0\x9f\x98\x80", "\u00e9\U0001f600", "\u00e9\U0001f600"),
        Written("", b"", "", ""),
        Written("null", b"null", "null", "null"),
        Written(12, b"12", "12", "12"),
        *NULLS,
    ],
    "JSON": [
        Written('{"n" : 1.50}', b'{"n" : 1.50}', '{"n" : 1.50}', {"n": 1.5}),
        Written({"a": [1, None]}, b'{"a": [1, null]}', '{"a": [1, null]}', {"a": [1, None]}),
        Written('"\u00e9"', b'"\xc3\xa9"', '"\u00e9"', "\u00e9"),
        Written("null", b"null", "null", None),
        *NULLS,
    ],
    "INT": [
        Written("-2", b"\xff\xff\xff\xfe", "-2", -2),
        Written(2**31 - 1, b"\x7f\xff\xff\xff", "2147483647", 2**31 - 1),
        Written(-(2**31), b"\x80\0\0\0", "-2147483648", -(2**31)),
        *NULLS,
    ],
    "LONG": [
        Written(2**53 + 1, b"\0\x20\0\0\0\0\0\x01", "9007199254740993", 2**53 + 1),
        Written("9223372036854775807", b"\x7f" + b"\xff" * 7, "9223372036854775807", 2**63 - 1),
        Written(-(2**63), b"\x80" + b"\0" * 7, "-9223372036854775808", -(2**63)),
        *NULLS,
    ],
    "BINARY": [
        Written("AP8=", b"\0\xff", "AP8=", "AP8="),
        Written("", b"", "", ""),
        Written("e30=", b"{}", "e30=", "e30="),
        *NULLS,
    ],
}
"""By what they are written as, and read as."""

WRONG = [
    (
        "AVRO",
        "x",
        "records cannot be written as 'AVRO', but as one of STRING, JSON, INT, LONG, BINARY, BYTES",
    ),
    ("JSON", "{", "it must be JSON"),
    ("INT", "2147483648", "it must be an integer of 32 bits"),
    ("LONG", "1.5", "it must be an integer of 64 bits"),
    ("BINARY", "%", "it must be base64"),
]

FORMS = [*WRITTEN]
PAIRS = pytest.mark.parametrize(("ktype", "vtype"), [*zip(FORMS, [*FORMS[1:], FORMS[0]], strict=True)])


def pairs(keys: Sequence[Written], values: Sequence[Written]) -> list[tuple[Written, Written]]:
    """Put each with one of the others; never two of the same place in their tables."""
    most = max(len(keys), len(values))
    return [(keys[n % len(keys)], values[(n + 1) % len(values)]) for n in range(most)]


def present(**members: object) -> dict[str, object]:
    return {name: member for name, member in members.items() if member is not ABSENT}


def read_as(ktype: str, vtype: str, more: str = "") -> str:
    return f"WHERE _ktype='{ktype}' AND _vtype='{vtype}' {more}"


async def executes(running: GatewayProcess, name: str, rest: str, **more: Any) -> list[Message]:
    """Execute the statement in v2; what it says behind METADATA. more: `columns`, `before` the statement."""
    columns, before = more.pop("columns", "*"), more.pop("before", "")
    sql = f"{before} SELECT {columns} FROM `{name}` {rest}"  # noqa: S608  (no database)
    metadata, *said = await executed(running.address, sql, token=TOKEN, **more)
    assert metadata["type"] == "METADATA", metadata
    return said


def parts(heard: Sequence[Message]) -> list[dict[str, object]]:
    """Leave of records of v1 their keys and values."""
    return [{name: each[name] for name in ("key", "value") if name in each} for each in heard]


@PAIRS
async def test_what_is_published_is_read_as_the_same_by_everyone(
    ktype: str, vtype: str, broker: Broker, topics: Topics, new_topic: NewTopic, tmp_path: Path
) -> None:
    name = await topics.create(new_topic(), 1)
    wanted = pairs(WRITTEN[ktype], WRITTEN[vtype])
    rest = read_as(ktype.lower(), vtype)
    async with gateway(tmp_path, config(broker, name)) as running:
        async with in_python(running.address, "page") as page:
            await answer(page, "SUBSCRIBE", 1, select(name, rest), TOKEN)
            for offset, (key, one) in enumerate(wanted):
                kinds = {"ktype": ktype, "vtype": vtype.lower()}
                content = present(topic=name, key=key.given, value=one.given, **kinds)
                said = await answer(page, "PUBLISH", 2, content, TOKEN)
                assert json.loads(said) == {"topic": name, "partition": 0, "offset": offset}
            heard = await records(page, len(wanted))
        found = await executes(running, name, rest)
        columns = await executes(running, name, rest, columns="_key AS k, _value AS v")
    assert await read_pairs(broker.bootstrap, name) == {
        (0, offset): (key.raw, one.raw) for offset, (key, one) in enumerate(wanted)
    }
    assert parts(heard) == [present(key=key.text, value=one.text) for key, one in wanted]
    assert [each["offset"] for each in heard] == [*range(len(wanted))]
    for message, (key, one) in zip(found, wanted, strict=True):
        data = message["data"]
        no_key = ABSENT if key.seen is None else key.seen
        assert {each: data[each] for each in ("key", "value") if each in data} == present(
            key=no_key, value=one.seen
        )
        sizes = [data["metadata"][each] for each in ("__keysize", "__valuesize")]
        assert sizes == [len(key.raw or b""), len(one.raw or b"")]
    assert [m["data"]["value"] for m in columns] == [{"k": key.seen, "v": one.seen} for key, one in wanted]


async def test_what_cannot_be_written_so_is_refused_and_not_written(
    broker: Broker, topics: Topics, new_topic: NewTopic, tmp_path: Path
) -> None:
    name = await topics.create(new_topic(), 1)
    async with (
        gateway(tmp_path, config(broker, name)) as running,
        in_python(running.address, "page") as page,
    ):
        for part in ("key", "value"):
            for form, given, words in WRONG:
                content = {"topic": name, f"{part[0]}type": form, part: given}
                await page.send(request("PUBLISH", 1, content, TOKEN))
                said = await page.hear()
                assert (said["type"], said["content"]) == ("ERROR", f"{part}: {words}")
        written = json.loads(await answer(page, "PUBLISH", 2, {"topic": name, "value": "good"}, TOKEN))
    assert written["offset"] == 0


class Reads(NamedTuple):
    """Hold what a decoder reads and what it does not. unchecked: what only v2, and a query that looks inside,
    finds out."""

    good: bytes
    bad: Sequence[bytes]
    unchecked: Sequence[bytes] = ()


READS = {
    "STRING": Reads(b"ok", [b"\xff", b"cut \xc3", b"\xed\xa0\x80"]),
    "JSON": Reads(b'{"n":1}', [b"\xff", b'{"n":"\xff"}'], [b"{", b"", b"nul", b"1 2"]),
    "INT": Reads(b"\0\0\0\x07", [b"", b"\0\0\x07", b"\0\0\0\0\x07", b"\0" * 8]),
    "LONG": Reads(b"\0" * 7 + b"\x07", [b"", b"\0" * 4, b"\0" * 7, b"\0" * 9]),
}
DAMAGED = pytest.mark.parametrize(
    ("ktype", "vtype"), [("STRING", "INT"), ("INT", "JSON"), ("JSON", "LONG"), ("LONG", "STRING")]
)


def damaged(ktype: str, vtype: str) -> tuple[list[Record], dict[str, list[int]]]:
    """Make records, good ones between all that are damaged, in one part or in both. Returns with them the
    offsets of those that are `good`, that v1 does not look at (`unchecked`), and that are `bad` to it."""
    keys, values = READS[ktype], READS[vtype]
    found: list[tuple[str, bytes, bytes]] = []
    for kind in ("bad", "unchecked"):
        broken_keys, broken = getattr(keys, kind), getattr(values, kind)
        found += [(kind, key, values.good) for key in broken_keys]
        found += [(kind, keys.good, each) for each in broken]
    found.append(("bad", keys.bad[0], values.bad[0]))
    good = "good", keys.good, values.good
    mixed = [good, *(each for one in found for each in (one, good))]
    made = [Record(one, key, 0, BEGAN + n) for n, (_, key, one) in enumerate(mixed)]
    kinds = ("good", "unchecked", "bad")
    return made, {kind: [n for n, each in enumerate(mixed) if each[0] == kind] for kind in kinds}


async def counted(running: GatewayProcess, name: str, count: int) -> None:
    """Wait until so many bad records of the source are counted, and never more."""
    (line,) = [line for line in running.log if line["event"] == "gateway listens"]
    with trio.fail_after(10):
        while (bad := value(await scrape(line["admin"], BEARER), "events_bad_total", source=name)) < count:
            await trio.lowlevel.checkpoint()
    assert bad == count


def with_metrics(settings: dict[str, Any]) -> dict[str, Any]:
    settings["tokens"]["roles"]["writer"]["actions"].append("admin")
    return {**settings, "server": {"address": "127.0.0.1:0", "admin_address": "127.0.0.1:0"}}


def places(heard: Sequence[Message], kind: str) -> list[int]:
    return [each["data"]["metadata"]["offset"] for each in heard if each["type"] == kind]


def check_bad(heard: Sequence[Message], name: str, bad: Sequence[int]) -> None:
    """Check that these are bad records, and all that is said of them."""
    found = [each["data"]["metadata"] for each in heard if each["type"] == "BADRECORD"]
    sources = {each.pop("sourceId") for each in found}
    assert [UUID(source).version for source in sources] == [5]
    assert found == [{"offset": n, "partition": 0, "timestamp": BEGAN + n, "table": name} for n in bad]


@DAMAGED
async def test_damaged_records_are_left_out_and_counted_by_v1_and_named_by_v2(
    ktype: str, vtype: str, broker: Broker, topics: Topics, new_topic: NewTopic, tmp_path: Path
) -> None:
    name = await topics.create(new_topic(), 1)
    made, offsets = damaged(ktype, vtype)
    await topics.produce(name, made)
    broken = sorted([*offsets["unchecked"], *offsets["bad"]])
    async with gateway(tmp_path, with_metrics(config(broker, name))) as running:
        said = await executes(running, name, read_as(ktype, vtype), stats=60_000)
        await counted(running, name, len(broken))
        hidden = await executes(running, name, read_as(ktype, vtype), before="SET show.bad.records=false;")
        await counted(running, name, 2 * len(broken))
        async with in_python(running.address, "page") as page:
            begin = read_as(ktype, vtype, FROM_BEGIN)
            await answer(page, "SUBSCRIBE", 1, select(name, begin), TOKEN)
            whole = await records(page, len(made) - len(offsets["bad"]))
            await counted(running, name, 2 * len(broken) + len(offsets["bad"]))
            inside = select(name, begin, "_key AS k, _value AS v")
            await answer(page, "SUBSCRIBE", 2, inside, TOKEN)
            looked = await records(page, len(offsets["good"]))
            await counted(running, name, 3 * len(broken) + len(offsets["bad"]))
    *said, stats = said
    assert places(said, "RECORD") == places(hidden, "RECORD") == offsets["good"]
    assert [each["type"] for each in said] == [
        "BADRECORD" if n in broken else "RECORD" for n in range(len(made))
    ]
    check_bad(said, name, broken)
    assert len(hidden) == len(offsets["good"])
    assert stats["data"]["badRecordsTotal"] == len(broken)
    assert [each["offset"] for each in whole] == sorted([*offsets["good"], *offsets["unchecked"]])
    assert parts(whole) == [texts(made[each["offset"]], ktype, vtype) for each in whole]
    assert [each["offset"] for each in looked] == offsets["good"]
    assert {each["correlationId"] for each in looked} == {2}


def texts(record: Record, ktype: str, vtype: str) -> Mapping[str, str]:
    """Return what v1 says of a record that it can read."""
    assert record.key is not None
    assert record.value is not None
    numbers = ("INT", "LONG")
    return {
        "key": "7" if ktype in numbers else record.key.decode(),
        "value": "7" if vtype in numbers else record.value.decode(),
    }


async def test_a_damaged_record_ends_what_reads_it_where_the_source_says_so(
    broker: Broker, topics: Topics, new_topic: NewTopic, tmp_path: Path
) -> None:
    name = await topics.create(new_topic(), 1)
    settings = with_metrics(config(broker, name))
    settings["sources"][0]["subscriber"] = {"on_bad_record": "close"}
    async with gateway(tmp_path, settings) as running:
        async with in_python(running.address, "page") as page:
            await answer(page, "SUBSCRIBE", 7, select(name, "WHERE _vtype='STRING'"), TOKEN)
            await topics.produce(name, [Record(b"good", None, 0)])
            assert parts(await records(page, 1)) == [{"value": "good"}]
            await topics.produce(name, [Record(b"\xff", None, 0)])
            while (heard := await page.hear())["type"] == "HEARTBEAT":
                pass
            assert (heard["type"], heard["correlationId"]) == ("ERROR", 7)
            assert heard["content"].startswith(f"{name}: ")
            assert heard["content"].endswith("partition 0, offset 1")
            await topics.produce(name, [Record(b"more", None, 0)])
            # The connection stays, and so does the source: another decoder reads all of it.
            await answer(page, "SUBSCRIBE", 8, select(name, read_as("BINARY", "BINARY", FROM_BEGIN)), TOKEN)
            assert [each["value"] for each in await records(page, 3)] == ["Z29vZA==", "/w==", "bW9yZQ=="]
            # From the beginning, what is before it comes first, and nothing is said to be lost.
            await answer(page, "SUBSCRIBE", 9, select(name, f"WHERE _vtype='STRING' {FROM_BEGIN}"), TOKEN)
            assert parts(await records(page, 1)) == [{"value": "good"}]
            last = await page.hear()
            assert (last["type"], last["correlationId"]) == ("ERROR", 9)
            assert last["content"].endswith("partition 0, offset 1")
        *before, last = await executes(running, name, "WHERE _vtype='STRING'")
        assert places(before, "RECORD") == [0]
        assert {each["type"] for each in before} <= {"RECORD", "HEARTBEAT"}, "nothing is said to be lost"
        assert last["type"] == "ERROR"
        assert last["data"].endswith("partition 0, offset 1")
        await counted(running, name, 3)
