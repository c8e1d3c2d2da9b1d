"""Members of consumer groups: who has which partitions, and what becomes of commits, at a real broker."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest
import trio
from aiokafka import AIOKafkaConsumer, TopicPartition
from py4j.protocol import Py4JJavaError

from kiwi_demo.broker import Broker
from kiwi_demo.jars import fetch_broker
from kiwi_gw.api import CommitRefused, GroupAssignment, GroupMember, Positions, RefusalCode, Sharing
from kiwi_kafka.client.group_member import TopicGroupMember
from kiwi_kafka.source import KafkaSource
from tests.integration.kafka.support import kafka_on, running
from tests.integration.test_pulsar import java_gateway
from tests.topics import Record, Topics

pytestmark = pytest.mark.integration

NewTopic = Callable[[], str]
SESSION_SECONDS = 6
KIND = "kiwi-gw.shared"


@dataclass
class Member:
    """A member, as its user sees it."""

    member: GroupMember
    has: dict[int, tuple[int, str]] = field(default_factory=dict)

    async def until(self, *partitions: int) -> GroupAssignment:
        """Take assignments until it has these."""
        while True:
            news = await self.take()
            if self.has.keys() == set(partitions):
                return news

    async def take(self) -> GroupAssignment:
        """Take the next assignment."""
        news = await self.member.next_assignment()
        kept = {p: cursor for p, cursor in self.has.items() if p in news.kept}
        self.has = kept | dict(news.given)
        return news


@asynccontextmanager
async def member_of(
    source: KafkaSource, group: str, *, kind: str = KIND, sharing: Sharing = Sharing.SPREAD, begin: int = 0
) -> AsyncIterator[Member]:
    async def where() -> Positions:
        await trio.lowlevel.checkpoint()
        return dict.fromkeys(range(8), begin)

    async with source.join(group, kind, sharing, where) as member:
        yield Member(member)


@asynccontextmanager
async def gateways(broker: Broker, topic: str, count: int) -> AsyncIterator[list[KafkaSource]]:
    """So many clients of the cluster, each with the topic as a source."""
    async with trio.open_nursery() as nursery:
        found: list[KafkaSource] = []

        async def run(task_status: trio.TaskStatus[None]) -> None:
            settings = {"client": {"session_timeout_ms": SESSION_SECONDS * 1_000}}
            async with kafka_on(broker.bootstrap, **settings) as kafka, running(kafka, topic) as one:
                found.append(one.source)
                task_status.started()
                await trio.sleep_forever()

        for _ in range(count):
            await nursery.start(run)
        yield found
        nursery.cancel_scope.cancel()


async def test_members_share_partitions_and_take_over(
    broker: Broker, topics: Topics, new_topic: NewTopic
) -> None:
    name = await topics.create(new_topic(), 4)
    await topics.produce(name, [Record(b"x", partition=p) for p in range(4) for _ in range(3)])
    with trio.fail_after(60):
        async with gateways(broker, name, 2) as (first, second):
            async with member_of(first, name, begin=2) as one:
                news = await one.until(0, 1, 2, 3)
                assert (news.members, one.has[0]) == (1, (2, ""))
                await one.member.commit({0: (3, "a note")})
                async with member_of(second, name) as two:
                    await two.until(2, 3)
                    news = await one.until(0, 1)
                    assert (news.members, news.kept, dict(news.given)) == (2, frozenset({0, 1}), {})
                    assert two.has == {2: (2, ""), 3: (2, "")}
                    await two.member.commit({2: (3, "of two")})
                    with pytest.raises(CommitRefused) as refused:
                        await two.member.commit({2: (3, "x" * 4_097)})
                    assert refused.value.code == RefusalCode.POSITIONS
                    with pytest.raises(CommitRefused) as refused:
                        await two.member.commit({0: (3, "")})
                    assert refused.value.code == RefusalCode.MOVED
                    state = await first.group_state(name)
                    assert (state.members, state.committed[0]) == (2, (3, "a note"))
                    with pytest.raises(CommitRefused) as refused:
                        await first.forget_group(name)
                    assert refused.value.code == RefusalCode.GROUP_IN_USE
                news = await one.until(0, 1, 2, 3)
                assert (news.kept, news.given[2]) == (frozenset({0, 1}), (3, "of two"))
            state = await second.group_state(name)
            assert state.members == 0
            await second.forget_group(name)
            assert (await second.group_state(name)).committed == {}


async def test_one_has_all_until_it_goes(broker: Broker, topics: Topics, new_topic: NewTopic) -> None:
    name = await topics.create(new_topic(), 3)
    with trio.fail_after(60):
        async with gateways(broker, name, 2) as (first, second):
            one_kind = {"kind": "kiwi-gw.failover", "sharing": Sharing.ONE}
            async with member_of(first, name, **one_kind) as one:  # type: ignore[arg-type]
                await one.until(0, 1, 2)
                async with member_of(second, name, **one_kind) as two:  # type: ignore[arg-type]
                    news = await two.until()
                    assert news.members == 2
                    assert (await one.until(0, 1, 2)).kept == {0, 1, 2}
                    with pytest.raises(CommitRefused) as refused:
                        async with member_of(second, name, kind=KIND) as other:
                            await other.until(0)
                    assert refused.value.code == RefusalCode.GROUP_IN_USE


async def test_a_member_that_is_no_gateway(broker: Broker, topics: Topics, new_topic: NewTopic) -> None:
    """It and we refuse each other."""
    name = await topics.create(new_topic(), 1)

    async def consume(begun: Callable[[], object], over: asyncio.Event) -> None:
        consumer = AIOKafkaConsumer(name, bootstrap_servers=broker.bootstrap, group_id=name)
        async with consumer:
            await consumer.getmany(timeout_ms=100)
            assert consumer.assignment() == {TopicPartition(name, 0)}
            begun()
            await over.wait()

    with trio.fail_after(60):
        async with gateways(broker, name, 1) as (first,):
            loop_said = trio.Event()
            token = trio.lowlevel.current_trio_token()
            over: list[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = []

            def in_thread() -> None:
                async def main() -> None:
                    event = asyncio.Event()
                    over.append((asyncio.get_running_loop(), event))
                    await consume(lambda: token.run_sync_soon(loop_said.set), event)

                asyncio.run(main())

            async with trio.open_nursery() as nursery:
                nursery.start_soon(trio.to_thread.run_sync, in_thread)
                await loop_said.wait()
                with pytest.raises(CommitRefused) as refused:
                    async with member_of(first, name) as one:
                        await one.until(0)
                assert refused.value.code == RefusalCode.GROUP_IN_USE
                loop, event = over[0]
                loop.call_soon_threadsafe(event.set)


@pytest.mark.extended
async def test_consumers_of_the_newer_protocol(broker: Broker, topics: Topics, new_topic: NewTopic) -> None:
    """Kafka would have them share partitions with ours, in both orders; they do not (KIP-848)."""
    name = await topics.create(new_topic(), 2)
    jars = await fetch_broker()
    with trio.fail_after(100):
        async with gateways(broker, name, 1) as (first,):
            async with member_of(first, name) as one:
                await one.until(0, 1)
                said = await trio.to_thread.run_sync(
                    consume, jars, broker.bootstrap, name, name, lambda: "has partitions"
                )
                assert "unsupported custom assignor" in said
                await one.member.commit({0: (0, "")})

            async def join() -> str:
                with pytest.raises(CommitRefused) as refused:
                    async with member_of(first, other) as one:
                        await one.until(0)
                return refused.value.code

            other = f"{name}-of-others"
            code = await trio.to_thread.run_sync(
                consume, jars, broker.bootstrap, name, other, lambda: trio.from_thread.run(join)
            )
            assert code == RefusalCode.GROUP_IN_USE


def consume(jars: Sequence[Path], bootstrap: str, topic: str, group: str, then: Callable[[], str]) -> str:
    """Have Java's consumer be in a group, and do something then. Returns why it cannot be, if so."""
    with java_gateway(jars) as java:
        settings = java.jvm.java.util.Properties()
        text = "org.apache.kafka.common.serialization.StringDeserializer"
        settings.setProperty("bootstrap.servers", bootstrap)
        settings.setProperty("group.id", group)
        settings.setProperty("group.protocol", "consumer")
        settings.setProperty("key.deserializer", text)
        settings.setProperty("value.deserializer", text)
        consumer = java.jvm.org.apache.kafka.clients.consumer.KafkaConsumer(settings)
        consumer.subscribe([topic])
        try:
            while not len(consumer.assignment()):
                consumer.poll(java.jvm.java.time.Duration.ofMillis(100))
            return then()
        except Py4JJavaError as error:
            return str(error)  # the words are the JVM's, as long as that is there
        finally:
            consumer.close()


@pytest.mark.extended
async def test_a_coordinator_that_is_killed_and_comes_back(own_broker: Broker, new_topic: NewTopic) -> None:
    """Its members go on where they were, and nobody waits for who they have been."""
    topics = Topics(own_broker.bootstrap)
    name = await topics.create(new_topic(), 4)
    with trio.fail_after(100):
        async with (
            gateways(own_broker, name, 2) as (first, second),
            member_of(first, name) as one,
            member_of(second, name) as two,
        ):
            for each in (one, two):
                while len(each.has) != 2:
                    await each.take()
            mine = min(one.has)
            await one.member.commit({mine: (0, "before")})
            await own_broker.kill()
            await one.until()
            with pytest.raises(CommitRefused) as refused:
                await one.member.commit({mine: (0, "meanwhile")})
            assert refused.value.code == RefusalCode.MOVED
            await two.until()
            await own_broker.start()
            with trio.fail_after(15):
                while len(one.has) != 2 or len(two.has) != 2:
                    for each in (one, two):
                        with trio.move_on_after(0.1):
                            await each.take()
            assert {**one.has, **two.has} == dict.fromkeys(range(4), (0, "")) | {mine: (0, "before")}
            owner = one if mine in one.has else two
            await owner.member.commit({mine: (0, "after")})
            assert (await first.group_state(name)).committed[mine] == (0, "after")


async def test_who_is_killed_is_replaced_within_the_session(
    broker: Broker, topics: Topics, new_topic: NewTopic, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = await topics.create(new_topic(), 4)
    with trio.fail_after(60):
        async with gateways(broker, name, 2) as (first, second), member_of(second, name) as two:
            with monkeypatch.context() as changed:

                async def leaves_without_a_word(*_: object) -> None:
                    await trio.lowlevel.checkpoint()

                changed.setattr(TopicGroupMember, "_leave", leaves_without_a_word)
                await two.until(0, 1, 2, 3)
                async with member_of(first, name) as one:
                    await one.until(2, 3)
                    await one.member.commit({2: (0, "of one")})
                    await two.until(0, 1)
            began = trio.current_time()
            news = await two.until(0, 1, 2, 3)
            # Until Kafka has missed it for a session, and until the other hears of that.
            assert trio.current_time() - began < SESSION_SECONDS * 4 / 3 + 2
            assert news.given == {2: (0, "of one"), 3: (0, "")}


async def test_who_stands_still_is_put_out_and_knows_it(
    broker: Broker, topics: Topics, new_topic: NewTopic, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other has its partitions within the session; its own commits are refused, also those that it tries
    before it has heard from Kafka."""
    name = await topics.create(new_topic(), 2)
    with trio.fail_after(60):
        async with gateways(broker, name, 2) as (first, second), member_of(first, name) as one:
            await one.until(0, 1)

            heard = trio.Event()

            async def silence(*args: object) -> None:
                await heard.wait()

            monkeypatch.setattr(one.member, "_exchange", silence)
            monkeypatch.setattr(one.member, "_join", silence)
            async with member_of(second, name) as two:
                began = trio.current_time()
                await two.until(0, 1)
                assert trio.current_time() - began < 15
                monkeypatch.undo()
                heard.set()
                with pytest.raises(CommitRefused) as refused:
                    await one.member.commit({0: (0, "")})
                assert refused.value.code == RefusalCode.MOVED
                await one.until(1)  # it has joined again
