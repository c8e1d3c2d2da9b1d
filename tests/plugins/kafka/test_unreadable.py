"""Which batch cannot be decoded is only believed if the broker sends it twice."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest
from aiokafka.record.legacy_records import LegacyRecordBatchBuilder

from kiwi_kafka.client.admin import BrokerAdminClient
from kiwi_kafka.client.fetched_records import first_corrupt_batch
from kiwi_kafka.ports import TopicDescription, TopicPartition
from tests.plugins.kafka.batches import batch, spoiled

TP = TopicPartition("t", 0)
TOPIC = TopicDescription("t", b"", {0: 1}, None)

PARTS = [batch(0, [b"value"] * 3), batch(3, [b"value"] * 2), batch(5, [b"value"] * 4)]
GOOD = b"".join(PARTS)
SECOND = len(PARTS[0])
THIRD = SECOND + len(PARTS[1])


def old_batch(first: int, count: int, codec: int) -> bytes:
    """Of the format before transactions, whose compressed batches have the offset of their last record."""
    builder = LegacyRecordBatchBuilder(1, codec, 1 << 20)
    for n in range(count):
        builder.append(n, 1000, None, b"value")
    return (first + count - 1).to_bytes(8, "big") + bytes(builder.build())[8:]


def test_the_batch_and_where_it_ends() -> None:
    assert first_corrupt_batch(GOOD) is None
    assert first_corrupt_batch(spoiled(GOOD, SECOND + 70)) == (3, 5, THIRD)
    assert first_corrupt_batch(spoiled(GOOD, len(GOOD) - 3)) == (5, 9, len(GOOD))


def test_a_batch_of_an_older_format_begins_at_the_latest_where_it_says() -> None:
    data = old_batch(0, 3, 1) + old_batch(3, 1, 0)
    second, whole = len(data), data + old_batch(4, 2, 1)
    assert first_corrupt_batch(whole) is None
    assert first_corrupt_batch(spoiled(whole, 30)) == (0, 3, len(old_batch(0, 3, 1)))
    assert first_corrupt_batch(spoiled(whole, second - 1)) == (3, 4, second)
    assert first_corrupt_batch(spoiled(whole, len(whole) - 9)) == (4, 6, len(whole))
    assert first_corrupt_batch(spoiled(whole, 30)[: second - 5]) == (0, 3, len(old_batch(0, 3, 1)))


class Answers:
    """Brokers that answer fetches with these bytes."""

    def __init__(self, answers: Sequence[bytes]) -> None:
        self.answers = list(answers)

    async def ask(self, node: int, request: Any) -> Any:
        assert node == 1
        return SimpleNamespace(topics=[("t", [(0, 0, 9, 9, [], self.answers.pop(0))])])


@pytest.mark.parametrize(
    ("answers", "found"),
    [
        ([GOOD], None),
        ([spoiled(GOOD, THIRD - 3), GOOD], None),
        ([spoiled(GOOD, THIRD - 3), spoiled(GOOD, THIRD - 4)], None),
        ([spoiled(GOOD, THIRD - 3)] * 2, (3, 5)),
        ([spoiled(GOOD, THIRD - 3), spoiled(GOOD, THIRD - 3) + batch(9, [b"more"])], (3, 5)),
    ],
    ids=["sound", "damaged on its way", "damaged on its way twice", "damaged", "damaged, and more behind it"],
)
async def test_what_was_damaged_on_its_way_is_not(
    answers: list[bytes], found: tuple[int, int] | None
) -> None:
    brokers = Answers(answers)
    admin = BrokerAdminClient(brokers, 5, {})  # type: ignore[arg-type]
    assert await admin.find_corrupt_batch(TOPIC, TP, 0) == found
    assert brokers.answers == []
