"""Answers that make no sense are errors with a reason, and nobody is asked all the time for more of them."""

from __future__ import annotations

import os
from collections.abc import Callable

import pytest
import trio
from trio.testing import MockClock

from kiwi_kafka.client.factory import BrokerClientFactory
from kiwi_kafka.ports import TopicDescription, UnreachableError
from tests.plugins.kafka.faulty_answers import instead
from tests.plugins.kafka.readers import reader_of
from tests.plugins.kafka.scripted_broker import (
    EPOCHS,
    FETCH,
    METADATA,
    OFFSETS,
    SECONDS,
    VERSIONS,
    cluster_of,
    whole,
)

HTTP = b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n"


def _random(answer: bytes) -> bytes:
    """Say the right size and correlation id, and then anything."""
    return answer[:8] + os.urandom(len(answer) - 8)


NONSENSE: dict[str, tuple[Callable[[bytes], bytes], str]] = {
    "HTTP": (lambda answer: HTTP, "does not speak Kafka's protocol"),
    "huge": (lambda answer: (2**31 - 1).to_bytes(4) + answer[4:], "does not speak Kafka's protocol"),
    "negative": (lambda answer: b"\xff" * 4 + answer[4:], "does not speak Kafka's protocol"),
    "too small": (lambda answer: bytes(4), "cannot be read|has no header"),
    "two small": (lambda answer: b"\0\0\0\2\0\0", "cannot be read|has no header"),
    "more than the answer": (lambda answer: answer + b"!", "more came than was asked for"),
    "another answer": (
        lambda answer: answer[:4] + (int.from_bytes(answer[4:8]) + 1).to_bytes(4) + answer[8:],
        "answer .* came for request",
    ),
    "cut": (lambda answer: (len(answer) - 7).to_bytes(4) + answer[4:-3], "cannot be read"),
    "nulls": (lambda answer: answer[:8] + b"\xff" * (len(answer) - 8), "cannot be read"),
}


@pytest.mark.parametrize("api", [VERSIONS, METADATA])
@pytest.mark.parametrize("kind", NONSENSE)
async def test_nonsense_is_an_error_with_a_reason(clock: MockClock, kind: str, api: int) -> None:
    change, reason = NONSENSE[kind]
    async with cluster_of() as cluster, trio.open_nursery() as nursery:
        node = cluster.nodes[1]
        node.send = instead(api, change)
        factory = BrokerClientFactory(cluster.settings(), nursery)
        with trio.fail_after(SECONDS), pytest.raises(UnreachableError, match=reason):
            await factory.admin()
        assert cluster.requests <= 2
        await cluster.until(lambda: node.open == 0)
        node.send = whole
        admin = await factory.admin()
        cluster.create("t", 1)
        info = (await admin.describe_topics(["t"]))["t"]
        assert isinstance(info, TopicDescription)
        node.send = instead(OFFSETS, change)
        if kind == "nulls":
            with pytest.raises(UnreachableError, match="cannot be read"):
                await admin.end_offsets([info], stable=True)
        else:
            assert (await admin.end_offsets([info], stable=True)).silent_nodes == {1}
        node.send = whole
        assert not (await admin.end_offsets([info], stable=True)).silent_nodes
        await admin.close()


@pytest.mark.parametrize("api", [METADATA, FETCH])
@pytest.mark.parametrize("kind", NONSENSE)
async def test_a_consumer_survives_nonsense(clock: MockClock, kind: str, api: int) -> None:
    change, _ = NONSENSE[kind]
    async with cluster_of(2) as cluster:
        tps = cluster.create("t", 1, 2)
        async with reader_of(cluster, request_timeout_ms=1_000) as reader:
            for tp in tps:
                cluster.append(tp)
            await reader.read_all()
            node = cluster.nodes[1]
            node.send = instead(api, change)
            before = cluster.requests
            for n in range(2):
                cluster.append(tps[0])
                cluster.append(tps[1])
                with trio.fail_after(5):
                    await reader.read_all([tps[1]])
                await trio.sleep(1)
                assert reader.next[tps[1]] == n + 2
            assert cluster.requests - before < 200  # in 2 s, with fetches that wait 0.1 s
            node.send = whole
            await reader.read_all()
        assert reader.count == 6


@pytest.mark.parametrize("kind", NONSENSE)
async def test_one_broker_alone_that_makes_no_sense_is_not_asked_all_the_time(
    clock: MockClock, kind: str
) -> None:
    change, _ = NONSENSE[kind]
    async with cluster_of() as cluster:
        [tp] = cluster.create("t", 1)
        async with reader_of(cluster, request_timeout_ms=1_000) as reader:
            await trio.sleep(1)
            node = cluster.nodes[1]
            node.send = instead(FETCH, change)
            before = cluster.requests
            cluster.append(tp)
            with trio.move_on_after(3):
                while cluster.requests - before < 300:
                    await reader.read()
            assert cluster.requests - before < 150  # at most 3 in 0.1 s
            node.send = whole
            await reader.read_all()


@pytest.mark.parametrize("versions", [12, 5])
@pytest.mark.parametrize("api", [VERSIONS, METADATA])
async def test_a_damaged_answer_is_an_answer_or_an_error(clock: MockClock, api: int, versions: int) -> None:
    """Whichever byte of it is another one."""
    async with cluster_of() as cluster, trio.open_nursery() as nursery:
        cluster.create("t", 1)
        cluster.versions[METADATA] = (0, versions)
        node = cluster.nodes[1]
        factory = BrokerClientFactory(cluster.settings(), nursery)
        sizes: list[int] = []

        def damaged(at: int, to: int) -> Callable[[bytes], bytes]:
            def change(answer: bytes) -> bytes:
                sizes.append(len(answer))
                at_most = min(at, len(answer) - 1)
                return answer[:at_most] + bytes([to]) + answer[at_most + 1 :]

            return change

        at = 8
        while not sizes or at < max(sizes):
            for to in (0, 1, 0x7F, 0xFF):
                node.send = instead(api, damaged(at, to))
                with trio.fail_after(SECONDS):
                    try:
                        admin = await factory.admin()
                        try:
                            await admin.describe_topics(["t"])
                        finally:
                            await admin.close()
                    except UnreachableError:
                        pass
            at += 1
        node.send = whole
        await (await factory.admin()).close()


async def test_a_broker_that_is_too_old_is_an_error_with_a_reason(clock: MockClock) -> None:
    async with cluster_of() as cluster, trio.open_nursery() as nursery:
        cluster.versions[METADATA] = (0, 4)
        factory = BrokerClientFactory(cluster.settings(), nursery)
        with pytest.raises(UnreachableError, match="speaks versions 0 to 4 of TopicMetadataRequest"):
            await factory.admin()


async def test_a_broker_that_is_too_old_to_say_where_an_epoch_ends_refuses_it(clock: MockClock) -> None:
    async with cluster_of() as cluster, trio.open_nursery() as nursery:
        [tp] = cluster.create("t", 1)
        cluster.versions[EPOCHS] = (0, 2)
        admin = await BrokerClientFactory(cluster.settings(), nursery).admin()
        info = (await admin.describe_topics(["t"]))["t"]
        assert isinstance(info, TopicDescription)
        said = await admin.epoch_end_offsets(info, {0: 0})
        assert "speaks versions 0 to 2 of OffsetForLeaderEpochRequest" in said.refused[tp]
        await admin.close()
