"""Key sets that can change while the gateway runs: a file, or an address.

`find` is called from worker threads, several at a time. One lock guards the fields, and is never held
while something is read. Of the last good key set nothing is lost until a new good one is there.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from kiwi_gw.api.http_fetch import FetchAnswer, FetchRequest, HttpFetch
from kiwi_tokens.jwks import (
    MAX_DOCUMENT,
    KeysUnavailable,
    KeyTable,
    VerifyingKey,
    find_key,
    is_conclusive,
    parse_key_set,
    thumbprints,
)

log = logging.getLogger("kiwi_tokens")

DEADLINE = 2.0
"""Seconds that a client waits for a fetch. The fetch is broken off then."""
UNKNOWN_KEY_PAUSE = 30.0
"""Seconds between fetches that an unknown `kid` may cause: clients must not be able to cause traffic."""
RETRY_PAUSE = 5.0
"""Seconds between fetches while there is no key set at all."""


class _StoredKeys:
    """Hold the last good key set, and what is known of it. Written under the lock only."""

    def __init__(self, algorithms: Sequence[str]) -> None:
        self._algorithms = algorithms
        self._lock = threading.Lock()
        self._table: KeyTable | None = None
        self._good: frozenset[str] | None = None
        self._good_when_asked: frozenset[str] | None = None

    def has(self, thumbprint: str) -> bool:
        """See `KeySet.has`."""
        good = self._good
        return good is None or thumbprint in good

    def _store(self, table: KeyTable, good: frozenset[str]) -> None:
        self._table, self._good = table, good

    def _changed(self) -> bool:
        """Return whether other keys are good than when this was asked last."""
        before, self._good_when_asked = self._good_when_asked, self._good
        return before != self._good_when_asked

    def _kept(self) -> str:
        return "the last good one is used" if self._table is not None else "no JWT can be checked"


class FileKeys(_StoredKeys):
    """Read a key set from a file, again when the file has changed (also by a swapped symlink)."""

    def __init__(self, path: Path, algorithms: Sequence[str]) -> None:
        super().__init__(algorithms)
        self._path = path
        self._read_stamp: tuple[int, ...] | None = None

    def changed(self) -> bool:
        if self._lock.acquire(blocking=False):  # else it is just being read
            try:
                outdated = self._stamp() != self._read_stamp
            finally:
                self._lock.release()
            if outdated:
                threading.Thread(target=self._reread, name="kiwi_tokens key file", daemon=True).start()
        return self._changed()

    def _reread(self) -> None:
        with self._lock:
            self._read_if_changed()

    def _stamp(self) -> tuple[int, ...]:
        """Return values that another file does not share; empty if there is no file."""
        try:
            state = os.stat(self._path)
        except OSError:
            return ()
        return state.st_ino, state.st_size, state.st_mtime_ns

    def find(self, kid: str | None, algorithm: str) -> VerifyingKey | None:
        with self._lock:
            self._read_if_changed()
            table = self._table
        if table is None:
            raise KeysUnavailable
        return find_key(table, kid, algorithm)

    def _read_if_changed(self) -> None:
        seen = self._stamp()
        if seen == self._read_stamp:
            return
        try:
            with open(self._path, "rb") as file:
                document = file.read(MAX_DOCUMENT + 1)
            table = parse_key_set(document, self._algorithms)
            self._store(table, thumbprints(table))
        except OSError as error:
            self._failed(seen, f"{type(error).__name__}: {error.strerror}")
        except ValueError as error:
            self._failed(seen, str(error))
        else:
            self._read_stamp = seen
            log.info("read the key set %s", self._path)

    def _failed(self, seen: tuple[int, ...], reason: str) -> None:
        if seen != self._read_stamp:  # once for each state of the file, not for each client
            log.warning("the key set %s cannot be used: %s; %s", self._path, reason, self._kept())
        self._read_stamp = seen


class RemoteKeys(_StoredKeys):
    """Fetch a key set from an address: when it is first needed, when it has grown old, and when a token names
    a key that is not in it. At most one fetch runs at a time."""

    def __init__(
        self,
        url: str,
        algorithms: Sequence[str],
        ttl: float,
        *,
        deadline: float = DEADLINE,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__(algorithms)
        self._url = url
        self._ttl = ttl
        self._deadline = deadline
        self._clock = clock
        self._loaded_at = -float("inf")
        self._started_at = -float("inf")
        self._asked_at = -float("inf")  # the last fetch for an unknown key
        self._fetch: HttpFetch | None = None

    def find(self, kid: str | None, algorithm: str) -> VerifyingKey | None:
        fetched = self._refresh_if_old()
        table = self._current()
        if fetched is None and table is not None and not is_conclusive(table, kid):
            fetched = self._ask_for_unknown()
            table = self._current()
        if table is None or not (fetched or is_conclusive(table, kid)):
            # Only a key set that was fetched because of this question can say that there is no such key.
            raise KeysUnavailable
        return find_key(table, kid, algorithm)

    def changed(self) -> bool:
        with self._lock:
            self._start_if_old()
            return self._changed()

    def _current(self) -> KeyTable | None:
        with self._lock:
            return self._table

    def _refresh_if_old(self) -> bool | None:
        """Return None if the key set is young enough, else whether a current fetch brought one."""
        with self._lock:
            if not self._start_if_old():
                return None
            fetch = self._fetch
        return fetch is not None and self._wait(fetch)

    def _start_if_old(self) -> bool:
        """Return whether the key set is old; fetches a new one if it is time. Under the lock."""
        now = self._clock()
        if self._table is not None and now - self._loaded_at < self._ttl:
            return False
        pause = RETRY_PAUSE if self._table is None else UNKNOWN_KEY_PAUSE
        if self._fetch is None and now - self._started_at >= pause:
            self._start(now)
        return True

    def _ask_for_unknown(self) -> bool:
        with self._lock:
            now = self._clock()
            if self._fetch is None and now - self._asked_at >= UNKNOWN_KEY_PAUSE:
                self._asked_at = now
                self._start(now)
            fetch = self._fetch
        return fetch is not None and self._wait(fetch)

    def _start(self, now: float) -> None:
        self._started_at = now
        request = FetchRequest(self._url, self._deadline, MAX_DOCUMENT)
        self._fetch = HttpFetch(request, self._arrived, "kiwi_tokens fetch")
        self._fetch.start()

    def _wait(self, fetch: HttpFetch) -> bool:
        if not fetch.done.wait(self._deadline):
            fetch.abort()
        return fetch.good

    def _arrived(self, fetch: HttpFetch, answer: FetchAnswer) -> None:
        """Take what the fetch brought. Called in its own thread, once, before it is done."""
        table, good, failure = None, frozenset[str](), answer.failure
        try:
            if not failure:
                table = parse_key_set(answer.body, self._algorithms)
                good = thumbprints(table)
        except ValueError as error:
            failure = str(error)
        finally:  # whatever happens: while there is a fetch, there is no other
            with self._lock:
                self._fetch = None
                if table is not None:
                    self._store(table, good)
                    self._loaded_at = self._clock()
                    fetch.good = True
                kept = self._kept()
        if table is None:
            log.warning("the key set at %s cannot be used: %s; %s", fetch.where, failure, kept)
