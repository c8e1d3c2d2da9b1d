"""That a topic is another one is only believed if the broker says so twice."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import pytest

from kiwi_kafka.client.admin import BrokerAdminClient
from kiwi_kafka.ports import NO_ID, TopicDescription, UnreachableError

OLD, NEW, DAMAGED = b"o" * 16, b"n" * 16, b"o" * 15 + b"p"


class Answers:
    """Brokers who say that the topic has these ids, one after the other."""

    def __init__(self, ids: Sequence[bytes]) -> None:
        self.ids = list(ids)

    async def describe(self, topics: Collection[str], rights: bool) -> dict[str, TopicDescription]:
        assert list(topics) == ["t"]
        return {"t": TopicDescription("t", self.ids.pop(0), {0: 1})}


async def said(known: dict[str, bytes], *ids: bytes) -> bytes:
    """The id that an admin client tells."""
    brokers = Answers(ids)
    admin = BrokerAdminClient(brokers, 5, known)  # type: ignore[arg-type]
    try:
        info = (await admin.describe_topics(["t"]))["t"]
    finally:
        assert brokers.ids == []
    assert isinstance(info, TopicDescription)
    return info.id


@pytest.mark.parametrize(
    ("answers", "told"),
    [([OLD], OLD), ([NEW, NEW], NEW), ([DAMAGED, OLD], OLD), ([NO_ID], NO_ID), ([NEW, NO_ID], NO_ID)],
    ids=["the same", "created anew", "damaged on its way", "none", "none in the second answer"],
)
async def test_an_id_that_is_not_the_known_one(answers: list[bytes], told: bytes) -> None:
    known = {"t": OLD}
    assert await said(known, *answers) == told
    assert known == {"t": NEW if told == NEW else OLD}


async def test_an_id_that_nobody_knows_must_come_twice_too() -> None:
    known: dict[str, bytes] = {}
    assert await said(known, NEW, NEW) == NEW
    assert known == {"t": NEW}


async def test_two_answers_that_differ_are_none() -> None:
    known = {"t": OLD}
    with pytest.raises(UnreachableError, match="differ"):
        await said(known, DAMAGED, NEW)
    assert known == {"t": OLD}
