"""The leader epochs of what a client has fetched, read off the heads of the batches."""

from __future__ import annotations

from struct import Struct

_HEAD = Struct(">qiib")
"""Of a batch: first offset, length of what follows it, epoch of the leader that took it, version of the
format (Kafka protocol guide, record batch)."""
_BEFORE_LENGTH_COUNTS = 12
_WITH_EPOCHS = 2
_MOST = 16
"""Changes of epoch that are kept of one partition: of what has been fetched and not been read yet."""


class Epochs:
    """By partition, from which offset on which epoch holds."""

    def __init__(self) -> None:
        self._changes: dict[tuple[str, int], list[tuple[int, int]]] = {}

    def note(self, place: tuple[str, int], data: bytes) -> None:
        """A fetch of that partition has brought these batches, the last of which may be cut off."""
        at, end = 0, len(data) - _HEAD.size
        changes = self._changes.get(place)
        while at <= end:
            first, length, epoch, version = _HEAD.unpack_from(data, at)
            at += _BEFORE_LENGTH_COUNTS + length
            if version != _WITH_EPOCHS or length <= 0:
                self._changes.pop(place, None)
                return
            if changes is None:
                changes = self._changes[place] = []
            while changes and changes[-1][0] >= first:  # it reads again from before
                changes.pop()
            if not changes or changes[-1][1] != epoch:
                changes.append((first, epoch))
                del changes[:-_MOST]

    def before(self, place: tuple[str, int], offset: int) -> int:
        """The epoch of the last batch before that offset; -1 if it is not known."""
        changes = self._changes.get(place, [])
        return next((epoch for first, epoch in reversed(changes) if first < offset), -1)
