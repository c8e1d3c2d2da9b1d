"""Which batch cannot be decoded is only believed if the broker sends it twice."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest
from aiokafka.record.default_records import DefaultRecordBatchBuilder
from kiwi_kafka.client.asyncio_loop import client_loop
from kiwi_kafka.client.internals import first_corrupt_batch

from kiwi_kafka.client.admin import AioAdminClient
from kiwi_kafka.ports import TopicDescription, TopicPartition

TP = TopicPartition("t", 0)
TOPIC = TopicDescription("t", b"", {0: 1}, None)


def batch(first: int, count: int) -> bytes:
    builder = DefaultRecordBatchBuilder(2, 0, False, -1, -1, 0, 1 << 20)
    for n in range(count):
        builder.append(n, 1000, None, b"value", [])
    return first.to_bytes(8, "big") + bytes(builder.build())[8:]


def spoiled(data: bytes, at: int) -> bytes:
    return data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]


GOOD = batch(0, 3) + batch(3, 2) + batch(5, 4)
SECOND = len(batch(0, 3))
THIRD = SECOND + len(batch(3, 2))


def test_the_batch_and_where_it_ends() -> None:
    assert first_corrupt_batch(GOOD) is None
    assert first_corrupt_batch(spoiled(GOOD, SECOND + 70)) == (3, 5, THIRD)
    assert first_corrupt_batch(spoiled(GOOD, len(GOOD) - 3)) == (5, 9, len(GOOD))


class Answers:
    """A client of aiokafka whose broker answers fetches with these bytes."""

    def __init__(self, answers: Sequence[bytes]) -> None:
        self.answers = list(answers)

    async def send(self, node: int, request: Any) -> Any:
        assert node == 1
        return SimpleNamespace(topics=[("t", [(0, 0, 9, 9, [], self.answers.pop(0))])])


@pytest.mark.parametrize(
    ("answers", "found"),
    [
        ([GOOD], None),
        ([spoiled(GOOD, THIRD - 3), GOOD], None),
        ([spoiled(GOOD, THIRD - 3), spoiled(GOOD, THIRD - 4)], None),
        ([spoiled(GOOD, THIRD - 3)] * 2, (3, 5)),
        ([spoiled(GOOD, THIRD - 3), spoiled(GOOD, THIRD - 3) + batch(9, 1)], (3, 5)),
    ],
    ids=["sound", "damaged on its way", "damaged on its way twice", "damaged", "damaged, and more behind it"],
)
async def test_what_was_damaged_on_its_way_is_not(
    answers: list[bytes], found: tuple[int, int] | None
) -> None:
    client = Answers(answers)
    async with client_loop(lambda message, error: None) as loop:
        admin = AioAdminClient(loop, client, 5, {})  # type: ignore[arg-type]
        assert await admin.find_corrupt_batch(TOPIC, TP, 0) == found
    assert client.answers == []
