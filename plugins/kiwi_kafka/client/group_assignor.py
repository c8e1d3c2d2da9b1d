"""Who of a group has which partitions: what its leader decides, and how that is written (Kafka's consumer
protocol, version 0, so that Kafka's own tools can show it)."""

from __future__ import annotations

import json
import struct
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from kiwi_kafka.client.requests import MemberAssignment, ProtocolMetadata

PROTOCOL_TYPE: Final = "consumer"
_NONSENSE: Final = (ValueError, LookupError, TypeError, ArithmeticError, RecursionError, struct.error)
"""What reading raises for words that are not ours."""


@dataclass(frozen=True, slots=True)
class Claim:
    """Say what a member tells its leader: which partitions it has, and since when it is a member (ms)."""

    had: frozenset[int]
    since: int


@dataclass(frozen=True, slots=True)
class Share:
    """Say what the leader gives a member. members: how many the group has. is_new: it had committed nothing
    when this was decided."""

    partitions: frozenset[int]
    members: int
    is_new: bool


def write_claim(topic: str, claim: Claim) -> bytes:
    """Write what a member tells."""
    data = json.dumps({"had": sorted(claim.had), "since": claim.since}).encode()
    return bytes(ProtocolMetadata(0, [topic], data).encode())


def read_claim(data: bytes) -> Claim:
    """Read what a member tells; one that tells nothing has had nothing, and is the newest."""
    try:
        said = json.loads(ProtocolMetadata.decode(data).user_data)
        return Claim(frozenset(map(int, said["had"])), int(said["since"]))
    except _NONSENSE:
        return Claim(frozenset(), 2**63)


def write_assignment(topic: str, share: Share) -> bytes:
    """Write what a member has. With our own words in it: Kafka lets no consumer of its newer protocol into a
    group whose assignments have some."""
    data = json.dumps({"members": share.members, "new": share.is_new}).encode()
    return bytes(MemberAssignment(0, [(topic, sorted(share.partitions))], data).encode())


def read_assignment(data: bytes) -> Share | None:
    """Read what a member has. None: it was not a gateway that decided that."""
    try:
        found = MemberAssignment.decode(data)
        said = json.loads(found.user_data)
        partitions = frozenset(p for _, partitions in found.assignment for p in partitions)
        return Share(partitions, int(said["members"]), bool(said["new"]))
    except _NONSENSE:
        return None


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
