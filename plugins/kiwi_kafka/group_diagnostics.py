"""What `kiwi-gw check` finds out about the consumer groups in which protocols have members of sources."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Final, NamedTuple

import trio

from kiwi_gw.api import CommitRefused, Diagnostic
from kiwi_kafka.ports import (
    ClientFactory,
    GroupOffsets,
    MissingTopic,
    OffsetsResult,
    TopicDescription,
    TopicPartition,
    UnreachableError,
)

MOST_SHOWN: Final = 100
"""Groups that are asked for and shown; of the others it is said how many there are."""
_AT_ONCE: Final = 8
_WITHIN_SECONDS: Final = 20.0
"""For all of them."""
_SUBJECT: Final = "kafka groups"


class SoughtGroups(NamedTuple):
    """Say what the names of a source's groups begin with, and what the source and its topic are called."""

    begins: str
    source_id: str
    topic: str


class _Topic(NamedTuple):
    """Hold what is known of a topic whose groups are looked at."""

    info: TopicDescription | MissingTopic
    begins: OffsetsResult
    ends: OffsetsResult


async def check_groups(clients: ClientFactory, sought: Sequence[SoughtGroups]) -> list[Diagnostic]:
    """Say of every group whose name begins so how far behind it is, and what members it has. It takes half
    of the time that is left at most. Raises nothing for what it finds, and changes nothing."""
    now = trio.current_time()
    until = min(now + _WITHIN_SECONDS, (now + trio.current_effective_deadline()) / 2)
    try:
        with trio.fail_at(until):
            groups, silent_nodes, topics = await _find(clients, sought)
    except UnreachableError as error:
        return [Diagnostic("error", _SUBJECT, str(error))]
    except trio.TooSlowError:
        return [Diagnostic("error", _SUBJECT, "the brokers do not say in time which there are")]
    shown = dict(list(groups.items())[:MOST_SHOWN])
    found = await _ask(clients.groups(), shown, topics, until)
    findings = [found[group] for group in shown if group in found]
    if late := len(shown) - len(found):
        findings.append(Diagnostic("warning", _SUBJECT, f"{late} of them: no answer in time"))
    if more := len(groups) - len(shown):
        findings.append(Diagnostic("ok", _SUBJECT, f"{more} more, which are not shown"))
    if silent_nodes:
        nodes = ", ".join(map(str, sorted(silent_nodes)))
        findings.append(Diagnostic("warning", _SUBJECT, f"those of broker {nodes} are not known"))
    return findings or [Diagnostic("ok", _SUBJECT, "clients have made none yet")]


async def _find(
    clients: ClientFactory, sought: Sequence[SoughtGroups]
) -> tuple[dict[str, SoughtGroups], frozenset[int], dict[str, _Topic]]:
    """Return the groups, those of a source together, the nodes that do not say, and what is known of topics.
    Raises UnreachableError."""
    admin = await clients.admin()
    try:
        listed = await admin.list_groups()
        groups = _matched(listed.names, sought)
        infos = await admin.describe_topics(sorted({each.topic for each in groups.values()}))
        there = [info for info in infos.values() if isinstance(info, TopicDescription)]
        begins, ends = await admin.beginning_offsets(there), await admin.end_offsets(there, stable=True)
    finally:
        await admin.close()
    return groups, listed.silent_nodes, {name: _Topic(info, begins, ends) for name, info in infos.items()}


def _matched(names: Collection[str], sought: Sequence[SoughtGroups]) -> dict[str, SoughtGroups]:
    """Return what is sought of all these groups, those of a source together. A name is of the longest
    beginning that fits."""
    of = {each.begins: number for number, each in enumerate(sought)}
    lengths = sorted({len(begins) for begins in of}, reverse=True)
    matched = []
    for name in names:
        number = next((of[name[:length]] for length in lengths if name[:length] in of), None)
        if number is not None:
            matched.append((number, name))
    return {name: sought[number] for number, name in sorted(matched)}


async def _ask(
    client: GroupOffsets, groups: Mapping[str, SoughtGroups], topics: Mapping[str, _Topic], until: float
) -> dict[str, Diagnostic]:
    """Ask for these groups, a few at a time. Returns what is found of those that are known until then."""
    found: dict[str, Diagnostic] = {}
    waiting = iter(groups.items())

    async def work() -> None:
        for group, sought in waiting:
            found[group] = await _check_group(client, group, sought, topics[sought.topic])

    try:
        with trio.move_on_at(until):
            async with trio.open_nursery() as nursery:
                for _ in range(_AT_ONCE):
                    nursery.start_soon(work)
    finally:
        client.close()
    return found


async def _check_group(client: GroupOffsets, group: str, sought: SoughtGroups, topic: _Topic) -> Diagnostic:
    subject, where = f"kafka group {group}", ("sources", sought.source_id)
    partitions = () if isinstance(topic.info, MissingTopic) else topic.info.leaders.keys()
    try:
        members, kind = await client.state(group)
        committed = await client.fetch(group, sought.topic, partitions) if partitions else {}
    except (CommitRefused, UnreachableError) as error:
        return Diagnostic("warning", subject, str(error), where)
    who = f"members: {members} ({kind})" if members else "no members"
    lag = _lag(topic, {partition: offset for partition, (offset, _) in committed.items()})
    return Diagnostic("ok", subject, f"topic {sought.topic}; lag: {lag}; {who}", where)


def _lag(topic: _Topic, committed: Mapping[int, int]) -> str:
    """Say how many offsets there are that are not committed, as Kafka's own tools count them. What has none
    in a group that has committed others begins with the first record."""
    if isinstance(topic.info, MissingTopic):
        return "not known, the topic is not there"
    if not committed:
        return "nothing is committed yet"
    lag, unknown = 0, []
    for partition in topic.info.leaders:
        tp = TopicPartition(topic.info.name, partition)
        begin, end = committed.get(partition, topic.begins.known.get(tp)), topic.ends.known.get(tp)
        if begin is None or end is None:
            unknown.append(str(partition))
        else:
            lag += max(end - begin, 0)
    return f"{lag}, without partition {', '.join(unknown)}, which nobody leads" if unknown else str(lag)
