"""What workers had counted when they were last looked at, kept in a file that all of them share.

Without it a counter would go back when a worker dies, and a rate computed of it would take what is left for
new. Whichever worker is asked for metrics writes here what the others answered; what a dead one counted after
that is lost, as it is for a gateway that dies alone.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import msgspec

from kiwi_gw.edge.metrics.snapshot import MetricsSnapshot


class _LastCounted(msgspec.Struct):
    incarnation: int
    counted: msgspec.Raw


class _StoredCounters(msgspec.Struct):
    over: msgspec.Raw
    last: dict[int, _LastCounted]


class CounterStore:
    """Call `merge` in a thread: it waits for other workers that are writing."""

    def __init__(self, folder: Path, workers: int) -> None:
        self._file = folder / "counters.json"
        self._lock = folder / "counters.lock"
        self._workers = workers

    def merge(self, answers: Mapping[int, tuple[int, MetricsSnapshot]]) -> MetricsSnapshot:
        """All workers as one. answers: by slot, the incarnation that answered and what it said."""
        with self._locked():
            pages = self._read()
            over = MetricsSnapshot.load(bytes(pages.over))
            total = MetricsSnapshot()
            for slot in range(self._workers):
                last, answer = pages.last.get(slot), answers.get(slot)
                if answer is not None and last is not None and last.incarnation > answer[0]:
                    answer = None  # it was asked before its successor was, and is gone
                if answer is None:
                    if last is not None:
                        total.add(MetricsSnapshot.load(bytes(last.counted)))
                    restarts = last.incarnation if last is not None else 0
                else:
                    restarts, snapshot = answer
                    if last is not None and last.incarnation < restarts:
                        over.add(MetricsSnapshot.load(bytes(last.counted)))
                    total.add(snapshot)
                    pages.last[slot] = _LastCounted(restarts, msgspec.Raw(snapshot.counted().dump()))
                total.put("worker_up", int(answer is not None), str(slot))
                total.put("worker_restarts_total", restarts)
            total.add(over)
            pages.over = msgspec.Raw(over.dump())
            self._write(pages)
        return total

    @contextmanager
    def _locked(self) -> Iterator[None]:
        with self._lock.open("wb") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield

    def _read(self) -> _StoredCounters:
        try:
            return msgspec.json.decode(self._file.read_bytes(), type=_StoredCounters)
        except FileNotFoundError:
            return _StoredCounters(msgspec.Raw(MetricsSnapshot().dump()), {})

    def _write(self, pages: _StoredCounters) -> None:
        fresh = self._file.with_suffix(".new")
        fresh.write_bytes(msgspec.json.encode(pages))
        os.replace(fresh, self._file)
