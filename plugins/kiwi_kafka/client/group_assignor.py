"""Who of a group has which partitions: what its leader decides, and how that is written (Kafka's consumer
protocol, version 0, so that Kafka's own tools can show it)."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from kiwi_kafka.client.requests import MemberAssignment, ProtocolMetadata

PROTOCOL_TYPE = "consumer"


@dataclass(frozen=True, slots=True)
class Claim:
    """Say what a member tells its leader: which partitions it has, and since when it is a member (ms)."""

    had: frozenset[int]
    since: int


def write_claim(topic: str, claim: Claim) -> bytes:
    """Write what a member tells."""
    data = json.dumps({"had": sorted(claim.had), "since": claim.since}).encode()
    return bytes(ProtocolMetadata(0, [topic], data).encode())


def read_claim(data: bytes) -> Claim:
    """Read what a member tells; one that tells nothing has had nothing, and is the newest."""
    try:
        said = json.loads(ProtocolMetadata.decode(data).user_data)
        return Claim(frozenset(map(int, said["had"])), int(said["since"]))
    except (ValueError, KeyError, TypeError):
        return Claim(frozenset(), 2**63)


def write_assignment(topic: str, partitions: Collection[int], members: int) -> bytes:
    """Write what a member has. members: of the group."""
    data = json.dumps({"members": members}).encode()
    return bytes(MemberAssignment(0, [(topic, sorted(partitions))], data).encode())


def read_assignment(data: bytes) -> tuple[frozenset[int], int]:
    """Return the partitions that a member has, and how many members there are. ValueError: it cannot be
    read."""
    if not data:
        return frozenset(), 1
    found = MemberAssignment.decode(data)
    try:
        members = int(json.loads(found.user_data)["members"])
    except (KeyError, TypeError):
        members = 1
    return frozenset(p for _, partitions in found.assignment for p in partitions), members


def to_one(claims: Mapping[str, Claim], partitions: Collection[int]) -> dict[str, set[int]]:
    """Give all to the member that has been there longest; of those that have some, where there are any."""
    chosen = min(claims, key=lambda member: (not claims[member].had, claims[member].since, member))
    return {member: set(partitions) if member == chosen else set() for member in claims}


def spread(claims: Mapping[str, Claim], partitions: Collection[int]) -> dict[str, set[int]]:
    """Give each as many as the others, or one more; what a member has stays with it as far as may be."""
    each, more = divmod(len(partitions), len(claims))
    left = set(partitions)
    found: dict[str, set[int]] = {}
    for member in sorted(claims):
        kept = sorted(claims[member].had & left)[: each + (more > 0)]
        more -= len(kept) > each
        found[member] = set(kept)
        left -= found[member]
    rest = sorted(left)
    for share in sorted(found.values(), key=len):
        wanted = each - len(share)
        if wanted >= 0 and more > 0 and len(share) <= each:
            wanted, more = wanted + 1, more - 1
        share.update(_taken(rest, max(wanted, 0)))
    return found


def _taken(rest: list[int], count: int) -> Sequence[int]:
    taken = rest[:count]
    del rest[:count]
    return taken
