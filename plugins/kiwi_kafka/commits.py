"""Gathers what is committed for a group, so that it costs the cluster one write in a while."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

import trio

from kiwi_gw.api import CommitRefused, RefusalCode
from kiwi_kafka.ports import GroupOffsets

_GATHER_SECONDS: Final = 0.1
_WITHIN_SECONDS: Final = 3.0
"""For one write, and all that it takes to find the group's coordinator."""
_MOST_GROUP: Final = 8_192
"""Bytes. Brokers take more; a name of a client that is percent-encoded is up to twelve times as long."""
_MOST_METADATA: Final = 4_096  # bytes: what brokers take if nobody has set it

_Key = tuple[str, str]  # group and topic


@dataclass(slots=True, eq=False)
class _Gathered:
    positions: dict[int, tuple[int, str]] = field(default_factory=dict)
    done: trio.Event = field(default_factory=trio.Event)
    refused: CommitRefused | None = None


class GroupCommits:
    """Commit for all sources of a cluster. nursery: where writes go on though who asked is gone."""

    def __init__(self, groups: GroupOffsets, nursery: trio.Nursery) -> None:
        self._groups, self._nursery = groups, nursery
        self._next: dict[_Key, _Gathered] = {}
        self._writing: set[_Key] = set()

    async def fetch(
        self, group: str, topic: str, partitions: Mapping[int, object]
    ) -> Mapping[int, tuple[int, str]]:
        """Return what was committed, by partition; waits while nobody answers. Raises CommitRefused."""
        _check_group(group)
        return await self._groups.fetch(group, topic, partitions)

    async def state(self, group: str) -> int:
        """Return how many members a group has. Raises CommitRefused."""
        _check_group(group)
        members, _ = await self._groups.state(group)
        return members

    async def forget(self, group: str) -> None:
        """Delete a group without members. Raises CommitRefused."""
        _check_group(group)
        await self._groups.forget(group)

    async def commit(self, group: str, topic: str, positions: Mapping[int, tuple[int, str]]) -> None:
        """Commit, together with what others do meanwhile. Raises CommitRefused."""
        _check_group(group)
        for _, metadata in positions.values():
            if _size(metadata, RefusalCode.POSITIONS) > _MOST_METADATA:
                raise CommitRefused(RefusalCode.POSITIONS, "what is noted beside an offset is too long")
        key = group, topic
        gathered = self._next.setdefault(key, _Gathered())
        gathered.positions.update(positions)
        if key not in self._writing:
            self._writing.add(key)
            self._nursery.start_soon(self._write, key)
        await gathered.done.wait()
        if gathered.refused is not None:
            error = gathered.refused
            raise CommitRefused(error.code, str(error), retry=error.retry)

    async def _write(self, key: _Key) -> None:
        try:
            while key in self._next:
                await trio.sleep(_GATHER_SECONDS)
                gathered = self._next.pop(key)
                try:
                    with trio.fail_after(_WITHIN_SECONDS):
                        await self._groups.store(*key, gathered.positions)
                except CommitRefused as refused:
                    gathered.refused = refused
                except trio.TooSlowError:
                    words = "not known whether it was committed: the Kafka cluster does not answer"
                    gathered.refused = CommitRefused(RefusalCode.UNAVAILABLE, words, retry=True)
                gathered.done.set()
        finally:
            self._writing.discard(key)


def _check_group(group: str) -> None:
    size = _size(group, RefusalCode.GROUP)
    if not 0 < size <= _MOST_GROUP:
        raise CommitRefused(
            RefusalCode.GROUP, f"the name of a group has 1 to {_MOST_GROUP:,} bytes, and this one {size:,}"
        )


def _size(text: str, code: RefusalCode) -> int:
    """Return its bytes. Raises CommitRefused with this code for what is no text."""
    try:
        return len(text.encode())
    except UnicodeEncodeError:
        raise CommitRefused(code, "a name or a note is no text") from None
