from __future__ import annotations

import sys

import pytest

from kiwi_gw.model import FieldEncoding
from kiwi_kafka.event_schema import event_schema
from kiwi_kafka.live.topic_reader import to_columns
from kiwi_kafka.ports import FetchedPartition
from tests.plugins.kafka.fakes import Row


def names(shape_fields: object) -> list[str]:
    return [field.name for field in shape_fields]  # type: ignore[attr-defined]


def test_default_order() -> None:
    shape = event_schema()
    assert names(shape.fields) == [
        "sourceId",
        "sourceType",
        "key",
        "value",
        "payload",
        "partition",
        "offset",
        "timestamp",
    ]
    assert {
        field.name: field.base64_fallback for field in shape.fields if field.kind is FieldEncoding.TEXT
    } == {
        "key": True,
        "value": False,  # payload has it
    }


def test_the_originals_wire() -> None:
    assert names(event_schema(["key"]).of("original")) == [
        "sourceType",
        "key",
        "payload",
        "sourceId",
        "timestamp",
        "partition",
        "offset",
    ]


def test_chosen_fields_keep_the_source_and_lose_nothing() -> None:
    shape = event_schema(["headers", "value"])
    assert names(shape.fields) == ["sourceId", "sourceType", "value", "headers"]
    (value,) = [field for field in shape.fields if field.name == "value"]
    assert value.base64_fallback  # no payload on the wire: bytes that are not UTF-8 come as valueBase64


def test_columns_are_partition_by_partition() -> None:
    columns = to_columns(
        [
            FetchedPartition(3, [Row(7, b"a", b"k", 5), Row(9, None, None, -1)], 12),
            FetchedPartition(1, [Row(0, b"b")], 1),
        ],
        headers=False,
    )
    assert list(columns.partitions) == [3, 3, 1]
    assert list(columns.offsets) == [7, 9, 0]
    assert {name: list(column) for name, column in columns.columns.items()} == {
        "key": [b"k", None, None],
        "value": [b"a", None, b"b"],
        "timestamp": [5, -1, -1],
    }
    assert columns.ends == {3: 12, 1: 1}


@pytest.mark.parametrize("headers", [False, True])
@pytest.mark.parametrize("keyed", [False, True])
def test_cost_is_what_it_weighs(headers: bool, keyed: bool) -> None:
    pairs: list[tuple[str, bytes | None]] = [(f"name-{n}" * 3, b"v" * 40) for n in range(2)]
    rows = [
        Row(n, b"%06d" % n * 20, b"%06d" % n if keyed or n % 2 else None, n, tuple(pairs))
        for n in range(1000)
    ]
    columns = to_columns([FetchedPartition(0, rows, 1000)], headers)
    held: set[int] = set()

    def weigh(item: object) -> int:
        if item is None or isinstance(item, int) or id(item) in held:
            return 0
        held.add(id(item))
        inner = item if isinstance(item, (list, tuple)) else ()
        return sys.getsizeof(item) + sum(map(weigh, inner))

    real = weigh(columns.partitions) + weigh(columns.offsets) + sum(map(weigh, columns.columns.values()))
    if headers:  # the rows of this test share their headers; a real fetch decodes them one by one
        real += 999 * sum(sys.getsizeof(part) for pair in pairs for part in pair) + 0
        real += 999 * sum(sys.getsizeof(pair) for pair in pairs)
    assert columns.cost == pytest.approx(real, rel=0.15)
