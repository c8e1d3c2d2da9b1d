"""What `kiwi-gw check` finds out about a cluster: brokers, topics, rights."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Sequence
from typing import cast

import trio

from kiwi_gw.api import Diagnostic, PluginContext, Section
from kiwi_kafka.client.factory import BrokerClientFactory
from kiwi_kafka.group_diagnostics import SoughtGroups, check_groups
from kiwi_kafka.ports import (
    AdminClient,
    ClientFactory,
    MissingTopic,
    TopicDescription,
    TopicPartition,
    UnreachableError,
)
from kiwi_kafka.registry.documents import RegistryUnavailable
from kiwi_kafka.service import NO_REGISTRY
from kiwi_kafka.settings import KafkaSettings, KafkaSourceSettings, RegistrySettings

_TRIES = 5
_PAUSE_S = 0.4


def kafka_check(
    context: PluginContext, sources: Sequence[Section]
) -> Callable[[], Awaitable[Sequence[Diagnostic]]] | None:
    """Make the check of the section `kafka` and of the topics of all Kafka sources; None without such
    sources."""
    ours = [source for source in sources if isinstance(source, KafkaSourceSettings)]
    topics = sorted({source.topic for source in ours})
    written = frozenset(source.topic for source in ours if source.publish)
    if not topics:
        return None
    settings = cast("KafkaSettings", context.section("kafka"))

    registered = any(source.decode.registry for source in ours)
    sought = [
        SoughtGroups(begins, source_id, source.topic)
        for source_id, source in context.sources.items()
        if isinstance(source, KafkaSourceSettings)
        for begins in context.groups.get(source_id, ())
    ]

    async def check() -> Sequence[Diagnostic]:
        findings = await check_kafka(settings, topics, written, sought)
        return [*findings, await check_registry(settings.registry)] if registered else findings

    return check


async def check_registry(settings: RegistrySettings | None) -> Diagnostic:
    """Ask the schema registry for an id, as sources do. Raises nothing for what it finds."""
    if settings is None:
        return Diagnostic("error", "kafka schema registry", NO_REGISTRY)
    from kiwi_kafka.registry.client import RegistryClient

    subject = f"kafka schema registry {settings.url}"
    try:
        client = await trio.to_thread.run_sync(RegistryClient, settings)
        await client.check()
    except OSError as error:
        return Diagnostic("error", subject, f"ca cannot be used: {error}")
    except RegistryUnavailable as error:
        return Diagnostic("error", subject, str(error))
    return Diagnostic("ok", subject, "answers")


async def check_kafka(
    settings: KafkaSettings,
    topics: Collection[str],
    written: Collection[str] = (),
    sought: Sequence[SoughtGroups] = (),
) -> list[Diagnostic]:
    """Ask every bootstrap server by itself, then the cluster for the topics, of which some are to be written,
    and for groups. Raises nothing for what it finds, and creates nothing."""
    findings: list[Diagnostic] = []
    reached: KafkaSettings | None = None
    async with trio.open_nursery() as nursery:
        for server in settings.servers:
            alone = settings.model_copy(update={"bootstrap_servers": server})
            finding = await _check_server(BrokerClientFactory(alone, nursery), server)
            findings.append(finding)
            if finding.level == "ok" and reached is None:
                reached = alone
        if reached is not None:
            clients = BrokerClientFactory(reached, nursery)
            findings += await check_topics(clients, topics, written)
            if sought:
                findings += await check_groups(clients, sought)
    return findings


async def _check_server(clients: ClientFactory, server: str) -> Diagnostic:
    subject = f"kafka broker {server}"
    try:
        admin = await clients.admin()
    except UnreachableError as error:
        return Diagnostic("error", subject, f"cannot be reached: {error}")
    await admin.close()
    return Diagnostic("ok", subject, "answers")


async def check_topics(
    clients: ClientFactory, topics: Collection[str], written: Collection[str] = ()
) -> list[Diagnostic]:
    """Say of every topic whether it exists, can be read, all its partitions have leaders, and of those in
    `written` whether they can be written."""
    try:
        admin = await clients.admin()
        try:
            infos = await admin.describe_topics(topics, rights=True)
            return [await _check_topic(admin, infos[topic], written=topic in written) for topic in topics]
        finally:
            await admin.close()
    except UnreachableError as error:
        return [Diagnostic("error", "kafka cluster", str(error))]


async def _check_topic(
    admin: AdminClient, info: TopicDescription | MissingTopic, *, written: bool
) -> Diagnostic:
    subject = f"kafka topic {info.name}"
    if isinstance(info, MissingTopic):
        if info.denied:
            return Diagnostic("error", subject, "this client has no right to look at it")
        return Diagnostic("warning", subject, "does not exist (or may not be seen); it will be waited for")
    if info.readable is False:
        return Diagnostic("error", subject, "this client has no right to read it")
    if written and info.writable is False:
        return Diagnostic("error", subject, "this client has no right to write to it (`publish: true`)")
    able = "can be read"
    if written:
        able += " and written" if info.writable else "; whether it can be written the broker does not say"
    silent: list[str] = []
    for _ in range(_TRIES):
        ends = await admin.end_offsets([info], stable=True)
        silent = [str(p) for p in info.leaders if TopicPartition(info.name, p) not in ends.known]
        if not silent:
            return Diagnostic("ok", subject, f"{able}; partitions: {len(info.leaders)}")
        await trio.sleep(_PAUSE_S)  # a leader that is just taking over, or a topic that is just made
    return Diagnostic("error", subject, f"no leader answers for partition {', '.join(silent)}")
