"""Argon2id (RFC 9106): hashes of passwords in their usual text form, what they cost, and checking them.

A check takes a tenth of a second and 64 MiB by design, in a thread. So only a few are done at a time, and so
few may wait that threads for other credentials stay free.
"""

from __future__ import annotations

import base64
import re
import threading

MOST_MEMORY_KIB = 256 * 1024
MOST_WORK_KIB = 1024 * 1024
"""Memory times passes. One GiB takes about 0.7 s of one core."""
MOST_LANES = 16
"""Each is a thread of its own while a hash is made."""

MOST_PASSWORD_BYTES = 1024
"""Longer ones are wrong, unhashed."""

AT_ONCE = 2
WAITING = 16
_WAIT_SECONDS = 20.0

_FORM = re.compile(
    r"\$argon2id\$v=19\$m=([1-9][0-9]{0,9}),t=([1-9][0-9]{0,9}),p=([1-9][0-9]{0,9})"
    r"\$([A-Za-z0-9+/]{11,86})\$([A-Za-z0-9+/]{22,86})"
)


def what_is_wrong(text: str) -> str | None:
    """Say why this hash is not to be used; None: it is."""
    match = _FORM.fullmatch(text)
    if match is None or not (_canonical(match[4]) and _canonical(match[5])):
        return "must be an argon2id hash ($argon2id$v=19$...); make one with: python -m kiwi_tokens hash"
    memory, passes, lanes = int(match[1]), int(match[2]), int(match[3])
    if memory < 8 * lanes:
        return f"an argon2id hash with p={lanes} has at least m={8 * lanes}"
    if lanes > MOST_LANES:
        return f"p={lanes} is more than {MOST_LANES} threads for one password"
    if memory > MOST_MEMORY_KIB:
        return f"m={memory} is more than 256 MiB for one password"
    if memory * passes > MOST_WORK_KIB:
        return f"m={memory},t={passes} would take more than a second for one password"
    return None


def matches(encoded: bytes, password: bytes) -> bool:
    """Check a password, which takes a while. encoded: a hash with which nothing is wrong."""
    from argon2.exceptions import VerifyMismatchError  # an extra
    from argon2.low_level import Type, verify_secret

    try:
        return verify_secret(encoded, password, Type.ID)
    except VerifyMismatchError:
        return False


def password_bytes(password: str) -> bytes | None:
    """Return what is hashed; None: no password is so long, or has such characters."""
    try:
        data = password.encode()
    except UnicodeEncodeError:  # half of a surrogate pair
        return None
    return data if len(data) <= MOST_PASSWORD_BYTES else None


class PasswordChecks:
    """Check passwords in the threads of their callers, `AT_ONCE` at a time."""

    def __init__(self) -> None:
        self._running = threading.BoundedSemaphore(AT_ONCE)
        self._lock = threading.Lock()
        self._there = 0

    def check(self, encoded: bytes, password: bytes) -> bool | None:
        """Return whether it is the right one; None if too many others wait."""
        with self._lock:
            if self._there >= AT_ONCE + WAITING:
                return None
            self._there += 1
        try:
            if not self._running.acquire(timeout=_WAIT_SECONDS):
                return None
            try:
                return matches(encoded, password)
            finally:
                self._running.release()
        finally:
            with self._lock:
                self._there -= 1


def _canonical(text: str) -> bool:
    """Whether Argon2 reads it: base64 without padding, and with no bits left over."""
    try:
        data = base64.b64decode(text + "=" * (-len(text) % 4), validate=True)
    except ValueError:
        return False
    return base64.b64encode(data).decode().rstrip("=") == text
