"""Encode once, send the same bytes to everyone: the memo of fragments by entry and wire key.

Fragments are kept only while a reader inside the window may need them, in one least-recently-used order
of bounded bytes over all sources. What was dropped is made again when it is asked for. What the transforms
before a format have left of an entry is kept for the newest few entries, in the same bounds.

Who is sent the same bytes is a group, and asks through it: where a query is before the format, that is
evaluated in turns (see `evaluation`), and the fragments may come later.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, replace
from typing import Final, Generic, TypeVar

from kiwi_gw.core.evaluation import Evaluations, Failed
from kiwi_gw.core.evaluation_costs import EvaluationCosts
from kiwi_gw.core.transforms import TransformStage, picked, spread
from kiwi_gw.core.window import MemoryBudget, WindowEntry
from kiwi_gw.errors import EncodingFailed
from kiwi_gw.model import Batch, Encoded, EventTransform, Steps, TimeSlice, WireFormat, at_once

_NUMBER: Final = 40
"""Bytes of an integer in a list; an array has its own size."""

_STAGED: Final = 8
"""Entries of which it is kept what transforms have left."""

_FEW: Final = 3
"""From so many on that leave out some of the same events, picking is cheaper than encoding them again."""

S = TypeVar("S")


@dataclass(frozen=True, slots=True)
class KeyedFormat:
    """A wire format behind its chain: the gateway's transforms and then what the client has asked for.

    key: decides the bytes. keys: of the links.
    """

    key: Hashable
    format: WireFormat
    before: tuple[EventTransform, ...] = ()
    links: tuple[EventTransform, ...] = ()
    keys: tuple[Hashable, ...] = ()

    @property
    def chosen(self) -> bool:
        """Whether a client has chosen parts of it, so that there may be any number of them."""
        return self.format.chosen or self.format.transform is not None

    @property
    def takes_turns(self) -> bool:
        """Whether making its fragments may take long, and is charged to those who want them."""
        return self.format.steps is not None or any(link.steps is not None for link in self.links)

    def shares(self, links: int) -> bool:
        """Say whether what the first of its links leave is worth keeping: what takes turns is for one client,
        and has a memory of its own."""
        return all(link.key is not None and link.steps is None for link in self.links[:links])

    def upto(self, links: int) -> Hashable:
        """Return the key of the same format behind the first of its links."""
        return (self.format.key, self.keys[:links]) if links else self.format.key


def keyed_format(format: WireFormat, before: Sequence[EventTransform] = ()) -> KeyedFormat:  # noqa: A002
    """Put transforms before a format."""
    links = (*before, format.transform) if format.transform is not None else tuple(before)
    if not links:
        return KeyedFormat(format.key, format)
    keys = tuple(object() if link.key is None else link.key for link in links)
    return KeyedFormat((format.key, keys), format, tuple(before), links, keys)


class EncodingMemo:
    """Makes fragments, and keeps those that may be needed again, at most `max_bytes` of them or what the
    budget has for them.

    mistake: called with what a format raises that it should not. evaluations: see there; None: every query is
    evaluated at once.
    """

    def __init__(
        self,
        max_bytes: int,
        budget: MemoryBudget,
        mistake: Callable[[Exception], None] = lambda error: None,
        evaluations: Evaluations | None = None,
    ) -> None:
        self.evaluations = evaluations
        self._mistake = mistake
        self._reserved = budget.reserve(max_bytes)
        self._max_bytes = self._reserved
        self._budget = budget
        self._order: OrderedDict[tuple[WindowEntry, Hashable], int] = OrderedDict()
        self._staged: OrderedDict[WindowEntry, dict[Hashable, TransformStage]] = OrderedDict()
        self.bytes = 0
        self.hits = 0
        self.misses = 0
        self.events_encoded = 0

    def get_kept(self, entry: WindowEntry, keyed: KeyedFormat) -> Encoded | None:
        """Return the fragments of an entry, if they are kept."""
        found = entry.encodings.get(keyed.key)
        if found is not None:
            self.hits += 1
            self._order.move_to_end((entry, keyed.key))
        return found

    def encoded(self, entry: WindowEntry, keyed: KeyedFormat, *, keep: bool = True) -> Encoded:
        """Return the fragments of an entry. keep: false, where no reader is expected to come back for them.

        Raises EncodingFailed.
        """
        found = self.get_kept(entry, keyed)
        if found is not None:
            return found
        made = at_once(self.steps(entry, keyed, TimeSlice()))
        if keep:
            self._put(entry, keyed.key, made)
        return made

    def steps(self, entry: WindowEntry, keyed: KeyedFormat, turn: TimeSlice) -> Steps[Encoded]:
        """Make the same in turns. Nothing of it is kept."""
        self.misses += 1
        self.events_encoded += entry.end - entry.base
        try:
            return (yield from self._made(entry, keyed, len(keyed.links), turn))
        except EncodingFailed:
            raise
        except Exception as error:
            # A mistake of a protocol's. It ends the subscriptions that have this format, and not the source,
            # whose batch this is about.
            self._mistake(error)
            raise EncodingFailed("internal error: its events could not be encoded") from error

    def _made(self, entry: WindowEntry, keyed: KeyedFormat, links: int, turn: TimeSlice) -> Steps[Encoded]:
        """Make the fragments of an entry behind the first of the links."""
        if not links:
            return (yield from _written(keyed.format, entry.batch, turn))
        stage = yield from self._stage(entry, keyed, links, turn)
        changed = stage.changed
        if not changed.columns:  # it has only left events out, if any
            before = yield from self._before(entry, keyed, links - 1, turn, none_out=changed.kept is None)
            made = before if before is None or changed.kept is None else picked(before, stage.kept or ())
            if made is not None:
                return _with_mistakes(made, len(changed.bad), stage)
        made = yield from _written(keyed.format, stage.left, turn)
        if stage.kept is not None:
            made = spread(made, stage.kept, len(entry.batch))
        return _with_mistakes(made, stage.decode_errors, stage)

    def _before(
        self, entry: WindowEntry, keyed: KeyedFormat, links: int, turn: TimeSlice, *, none_out: bool
    ) -> Steps[Encoded | None]:
        """Make and keep the fragments before a link that only leaves events out. None: they are for this
        client only, or too few have asked. none_out: it leaves none out."""
        key = keyed.upto(links)
        found = entry.encodings.get(key)
        if found is None and keyed.shares(links):
            asked = (yield from self._stage(entry, keyed, links, turn)).asked
            asked[keyed.format.key] += 1
            if none_out or asked[keyed.format.key] >= _FEW:
                found = yield from self._made(entry, keyed, links, turn)
                self._put(entry, key, found)
        return found

    def _stage(
        self, entry: WindowEntry, keyed: KeyedFormat, links: int, turn: TimeSlice
    ) -> Steps[TransformStage]:
        """Apply the first of the links."""
        keys = keyed.keys[:links]
        found = self._staged.get(entry, {}).get(keys)
        if found is None:
            if not links:
                found = TransformStage(entry.batch)
            else:
                before = yield from self._stage(entry, keyed, links - 1, turn)
                link, batch = keyed.links[links - 1], before.left
                changed = link.apply(batch) if link.steps is None else (yield from link.steps(batch, turn))
                found = TransformStage(batch, changed, before)
            if keyed.shares(links):
                self._staged.setdefault(entry, {})[keys] = found
                self._grow(found.size)
                while len(self._staged) > _STAGED:
                    self._forget_stages(next(iter(self._staged)))
                self._trim(1)
        return found

    def _forget_stages(self, entry: WindowEntry) -> None:
        self._grow(-sum(stage.size for stage in self._staged.pop(entry).values()))

    def keep(self, entry: WindowEntry, keyed: KeyedFormat, made: Encoded) -> None:
        """Keep fragments that a reader turned out to need again."""
        self._put(entry, keyed.key, made)

    def forget(self, entry: WindowEntry) -> None:
        """Drop what was made of an entry that has left the window."""
        if self.evaluations is not None:
            self.evaluations.forget(entry)
        for key in entry.encodings:
            self._grow(-self._order.pop((entry, key)))
        entry.encodings.clear()
        if entry in self._staged:
            self._forget_stages(entry)

    def _put(self, entry: WindowEntry, key: Hashable, made: Encoded) -> None:
        if key in entry.encodings:
            return
        size = weight(made)
        entry.encodings[key] = made
        self._order[entry, key] = size
        self._grow(size)
        self._trim(1)

    def shrink(self, share: float) -> None:
        """Keep at most this share of the bytes that were set aside, from now on; 1: all of them."""
        self._max_bytes = int(self._reserved * share)
        self._trim(0)

    def _trim(self, least: int) -> None:
        """Keep to the bound, but the newest so many."""
        while self.bytes > self._max_bytes and len(self._staged) > least:
            self._forget_stages(next(iter(self._staged)))
        while self.bytes > self._max_bytes and len(self._order) > least:
            (oldest, old_key), old_size = self._order.popitem(last=False)
            del oldest.encodings[old_key]
            self._grow(-old_size)

    def _grow(self, size: int) -> None:
        self.bytes += size
        self._budget.used += size


class EncodingGroup(Generic[S]):
    """The subscriptions of one source with one wire key; `live` are those at the head, in order.

    failed: called, between operations, if its query has failed. costs: of that, where it has one and that is
    charged.
    """

    __slots__ = ("costs", "failed", "live", "memo", "size", "wire")

    def __init__(
        self, keyed: KeyedFormat, memo: EncodingMemo, failed: Failed, costs: EvaluationCosts | None = None
    ) -> None:
        self.wire = keyed
        self.memo = memo
        self.failed = failed
        self.costs = costs
        self.live: dict[S, None] = {}
        self.size = 0

    def encoded(self, entry: WindowEntry, *, keep: bool = True, wait: bool) -> Encoded | None:
        """Return the fragments of an entry; None: not yet. keep: whether they may be needed again. wait: the
        readers that are parked there are woken then; without, nothing is made of a query.

        Raises EncodingFailed.
        """
        if self.costs is None or self.memo.evaluations is None:
            return self.memo.encoded(entry, self.wire, keep=keep)
        return self.memo.evaluations.encoded(entry, self, keep=keep, wait=wait)

    def awaited(self, entry: WindowEntry) -> bool:
        """Whether the fragments of an entry are being made."""
        return self.memo.evaluations is not None and self.memo.evaluations.awaited(entry, self)


def _with_mistakes(made: Encoded, decode_errors: int, stage: TransformStage) -> Encoded:
    if not decode_errors and not stage.failing:
        return made
    failing = tuple(sorted({*made.failing, *stage.failing}))
    return replace(made, decode_errors=made.decode_errors + decode_errors, failing=failing)


def _written(format: WireFormat, batch: Batch, turn: TimeSlice) -> Steps[Encoded]:  # noqa: A002
    if format.steps is None:
        return format.encode(batch)
    return (yield from format.steps(batch, turn))


def weight(made: Encoded) -> int:
    """Count the bytes of an encoding: its buffer, and its numbers (in a list: a reference and an object)."""
    numbers = [
        made.ends,
        *((made.prefix_counts,) if made.prefix_counts is not None else ()),
        *made.prefix_counts_by_label.values(),
    ]
    return len(made.buffer) + sum(getattr(item, "itemsize", _NUMBER) * len(item) for item in numbers)
