"""What can go wrong with a benchmark."""

from __future__ import annotations

from kiwi_gw.errors import KiwiError


class RunFailed(KiwiError):  # noqa: N818  (it says what happened)
    """Report a run that did not come to its end; the message has the end of a log. A run that came to its end
    with wrong results does not raise it: it has `faults`."""


class RunVoid(KiwiError):  # noqa: N818  (it says what happened)
    """Report a run with wrong results: its round does not count, and the benchmark fails in the end."""
