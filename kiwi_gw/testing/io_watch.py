"""Notices I/O where the contract allows none, by Python's audit events (PEP 578)."""

from __future__ import annotations

import os
import sys
import sysconfig
import threading
from collections.abc import Iterator
from contextlib import contextmanager

_EVENTS = frozenset(
    {
        "open",
        "os.fork",
        "os.posix_spawn",
        "os.system",
        "socket.__new__",
        "socket.getaddrinfo",
        "socket.gethostbyname",
        "subprocess.Popen",
    }
)

_CODE = (".py", ".pyc", ".pyd", ".so")
_LIBRARIES = tuple(
    {sysconfig.get_path("stdlib"), sysconfig.get_path("purelib"), sysconfig.get_path("platlib")}
)

_watched = threading.local()
_installing = threading.Lock()
_installed = False


@contextmanager
def watch_io() -> Iterator[list[str]]:
    """Collect, in words, the I/O that happens in this thread. Importing a module is none."""
    _install()
    before: object = getattr(_watched, "seen", None)
    seen: list[str] = []
    _watched.seen = seen
    try:
        yield seen
    finally:
        _watched.seen = before


def _install() -> None:
    global _installed  # noqa: PLW0603  (an audit hook can only be added once and never be taken away)
    with _installing:
        if not _installed:
            sys.addaudithook(_audit)
            _installed = True


def _audit(event: str, args: tuple[object, ...]) -> None:
    seen: list[str] | None = getattr(_watched, "seen", None)
    if seen is None or event not in _EVENTS:
        return
    if event == "open":
        path = args[0]
        if isinstance(path, bytes):
            path = os.fsdecode(path)
        if not isinstance(path, str) or path.endswith(_CODE) or path.startswith(_LIBRARIES):
            return
        event = f"open of {path}"
    seen.append(event)
