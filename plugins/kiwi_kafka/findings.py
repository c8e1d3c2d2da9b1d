"""What `kiwi-gw check` finds out about a cluster: brokers, topics, rights."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Sequence
from typing import cast

import trio

from kiwi_gw.api import Finding, PluginContext, Section
from kiwi_kafka.aio_loop import client_loop
from kiwi_kafka.noise import quiet_client
from kiwi_kafka.seam import Missing, Place, Scout, TopicView, Transport, UnreachableError
from kiwi_kafka.settings import KafkaSettings, KafkaSourceSettings
from kiwi_kafka.transport import AioTransport

_TRIES = 5
_PAUSE_S = 0.4


def kafka_check(
    context: PluginContext, sources: Sequence[Section]
) -> Callable[[], Awaitable[Sequence[Finding]]] | None:
    """The check of the section `kafka` and the topics of all Kafka sources; None without such sources."""
    topics = sorted({source.topic for source in sources if isinstance(source, KafkaSourceSettings)})
    if not topics:
        return None
    settings = cast("KafkaSettings", context.section("kafka"))

    async def check() -> Sequence[Finding]:
        return await check_kafka(settings, topics)

    return check


async def check_kafka(settings: KafkaSettings, topics: Collection[str]) -> list[Finding]:
    """Asks every bootstrap server by itself, then the cluster for the topics. Raises nothing for what it
    finds, and creates nothing."""
    findings: list[Finding] = []
    reached: KafkaSettings | None = None
    with quiet_client():
        async with client_loop(_ignore) as loop:
            for server in settings.servers:
                alone = settings.model_copy(update={"bootstrap_servers": server})
                finding = await _check_server(AioTransport(loop, alone), server)
                findings.append(finding)
                if finding.level == "ok" and reached is None:
                    reached = alone
            if reached is not None:
                findings += await check_topics(AioTransport(loop, reached), topics)
    return findings


def _ignore(message: str, error: BaseException | None) -> None:
    """What fails in the client's own tasks is found out by asking."""


async def _check_server(transport: Transport, server: str) -> Finding:
    subject = f"kafka broker {server}"
    try:
        scout = await transport.scout()
    except UnreachableError as error:
        return Finding("error", subject, f"cannot be reached: {error}")
    await scout.close()
    return Finding("ok", subject, "answers")


async def check_topics(transport: Transport, topics: Collection[str]) -> list[Finding]:
    """One finding per topic: whether it exists, can be read, and all its partitions have leaders."""
    try:
        scout = await transport.scout()
        try:
            views = await scout.describe(topics, rights=True)
            return [await _check_topic(scout, views[topic]) for topic in topics]
        finally:
            await scout.close()
    except UnreachableError as error:
        return [Finding("error", "kafka cluster", str(error))]


async def _check_topic(scout: Scout, view: TopicView | Missing) -> Finding:
    subject = f"kafka topic {view.name}"
    if isinstance(view, Missing):
        if view.denied:
            return Finding("error", subject, "this client has no right to look at it")
        return Finding("warning", subject, "does not exist (or may not be seen); it will be waited for")
    if view.readable is False:
        return Finding("error", subject, "this client has no right to read it")
    silent: list[str] = []
    for _ in range(_TRIES):
        ends = await scout.ends([view], stable=True)
        silent = [str(p) for p in view.leaders if Place(view.name, p) not in ends.known]
        if not silent:
            return Finding("ok", subject, f"can be read; partitions: {len(view.leaders)}")
        await trio.sleep(_PAUSE_S)  # a leader that is just taking over, or a topic that is just made
    return Finding("error", subject, f"no leader answers for partition {', '.join(silent)}")
