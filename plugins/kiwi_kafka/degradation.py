"""What keeps one source from its origin, of all that may: said as one message."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager


class Degradation:
    """Gather messages by who says them. What is said while nobody listens is kept for who does next."""

    def __init__(self) -> None:
        self._messages: dict[object, str] = {}
        self._said = ""
        self._report: Callable[[str], None] | None = None

    def __bool__(self) -> bool:
        return bool(self._messages)

    @contextmanager
    def reported_to(self, report: Callable[[str], None]) -> Iterator[None]:
        """Call `report` as long as the block lasts, whenever what is to be said changes (an empty message:
        nothing is wrong)."""
        self._report, self._said = report, ""
        try:
            self._tell()
            yield
        finally:
            self._report = None

    def say(self, key: object, message: str) -> None:
        """Note what one of them says; an empty message: nothing any more."""
        if message:
            self._messages[key] = message
        else:
            self._messages.pop(key, None)
        self._tell()

    def _tell(self) -> None:
        message = "; ".join(dict.fromkeys(self._messages.values()))
        if self._report is not None and message != self._said:
            self._said = message
            self._report(message)
