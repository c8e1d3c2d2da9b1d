"""The exception tree. Every error says in words what is wrong and, where it can, what would be right."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass


class KiwiError(Exception):
    """Serve as the base of every error that the gateway raises on purpose."""


@dataclass(frozen=True, slots=True)
class Problem:
    """Describe one mistake in a configuration: where it is, what is wrong, what would be right.

    `line` counts from 1; 0 means that the problem has no line (the file cannot be read).
    `path` is dotted, list items in brackets: `sources[2].topic`; empty for the whole file.
    """

    file: str
    line: int
    path: str
    message: str

    def __str__(self) -> str:
        where = f"{self.file}:{self.line}" if self.line else self.file
        return f"{where}: {self.path}: {self.message}" if self.path else f"{where}: {self.message}"


class ConfigError(KiwiError):
    """Report a configuration that cannot be used. Carries every problem that was found, in file order.

    unreadable: a file that it consists of could not be read. That may be over without any change of it.
    """

    def __init__(self, problems: tuple[Problem, ...], *, unreadable: bool = False) -> None:
        self.problems = problems
        self.unreadable = unreadable
        super().__init__("\n".join(str(problem) for problem in problems))


class PluginError(KiwiError):
    """Report a plugin that cannot be found, loaded or used. The message names it and the remedy."""


class SourceFailed(KiwiError):  # noqa: N818  (it states what happened, as the notice does)
    """Report, from `Source.run`, that this source cannot work, and that trying again would not help.

    Its subscriptions are closed at once with the message; it is not restarted until its
    configuration changes.
    """


class SourceChanged(KiwiError):  # noqa: N818
    """Report, from `Source.run`, that the source is another one (partitions added, topic recreated).

    Its subscriptions get the rest of the window, then a SUBSCRIPTION_CLOSED with this message; the
    source starts anew at once, from its own idea of "now".
    """


class SubscribeRefused(KiwiError):  # noqa: N818
    """Report a subscription that cannot be opened. `code` is stable, the message is for people."""

    def __init__(self, code: str, message: str) -> None:
        self.code = str(code)
        super().__init__(message)


class CommitRefused(KiwiError):  # noqa: N818
    """Report positions that were not committed, or cannot be looked up. `code` is stable, the message is for
    people and names nothing secret. retry: the same may be taken another time.

    `forbidden` is what the gateway says of a client, which may then begin elsewhere. What an origin denies
    the gateway is `origin_denied`: nobody is to miss events for that.
    """

    def __init__(self, code: str, message: str, *, retry: bool = False) -> None:
        self.code = str(code)
        self.retry = retry
        super().__init__(message)


class SchemaRefused(KiwiError):  # noqa: N818
    """Report a schema that was not registered, or cannot be looked up. `code` is stable, the message is for
    people and names nothing secret: `incompatible` with the versions before it, `schema` where it cannot be
    used, `unknown_version`, or `unavailable`: the same may be taken another time."""

    def __init__(self, code: str, message: str) -> None:
        self.code = str(code)
        super().__init__(message)


class ConnectionEnd(KiwiError):  # noqa: N818
    """End one connection with a WebSocket close frame.

    `code` is a WebSocket close code (RFC 6455, 7.4); `reason` is at most 123 bytes of UTF-8.
    """

    def __init__(self, code: int, reason: str) -> None:
        self.code = code
        self.reason = reason
        super().__init__(f"{code} {reason}")


class EncodingFailed(KiwiError):  # noqa: N818
    """The fragments of a wire key cannot be made (an interceptor raised): its subscriptions are closed."""


class EventFailed(KiwiError):  # noqa: N818
    """An event cannot be encoded or evaluated, and its source says that this ends who comes to it."""


def leaves(group: BaseExceptionGroup[BaseException]) -> Iterator[BaseException]:
    """Yield the errors in a group and in the groups in it."""
    for error in group.exceptions:
        if isinstance(error, BaseExceptionGroup):
            yield from leaves(error)
        else:
            yield error
