"""That a topic is another one is only believed if the broker says so twice."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest
from kiwi_kafka.client.asyncio_loop import client_loop

from kiwi_kafka.client.admin import AioAdminClient
from kiwi_kafka.ports import NO_ID, TopicDescription, UnreachableError

OLD, NEW, DAMAGED = b"o" * 16, b"n" * 16, b"o" * 15 + b"p"


class Answers:
    """A client of aiokafka whose broker says that the topic has these ids, one after the other."""

    def __init__(self, ids: Sequence[bytes]) -> None:
        self.ids = list(ids)
        self.cluster = SimpleNamespace(brokers=lambda: [SimpleNamespace(nodeId=1)])

    async def send(self, node: int, request: Any) -> Any:
        part = {"partition": 0, "leader": 1}
        topic = {"topic": "t", "error_code": 0, "topic_id": self.ids.pop(0), "partitions": [part]}
        return SimpleNamespace(to_object=lambda: {"topics": [topic]})


async def said(known: dict[str, bytes], *ids: bytes) -> bytes:
    """The id that a scout tells."""
    client = Answers(ids)
    async with client_loop(lambda message, error: None) as loop:
        admin = AioAdminClient(loop, client, 5, known)  # type: ignore[arg-type]
        try:
            info = (await admin.describe_topics(["t"]))["t"]
        finally:
            assert client.ids == []
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


async def test_an_answer_about_another_topic_is_none() -> None:
    client = Answers([OLD])
    async with client_loop(lambda message, error: None) as loop:
        admin = AioAdminClient(loop, client, 5, {})  # type: ignore[arg-type]
        with pytest.raises(UnreachableError, match="says nothing about u"):
            await admin.describe_topics(["u"])


async def test_two_answers_that_differ_are_none() -> None:
    known = {"t": OLD}
    with pytest.RaisesGroup(pytest.RaisesExc(UnreachableError, match="differ"), flatten_subgroups=True):
        await said(known, DAMAGED, NEW)
    assert known == {"t": OLD}
