"""A server that was started elsewhere, to be driven as ours is."""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import urlsplit

from benchmarks.errors import RunFailed


@dataclass(frozen=True, slots=True)
class Target:
    """Say where it is, the name of its source, and the topic (and the Kafka) that fills that source."""

    host: str
    port: int
    path: str
    source: str
    topic: str
    bootstrap: str

    @classmethod
    def at(cls, url: str, source: str, topic: str, bootstrap: str) -> Target:
        """Read its address. Raises RunFailed for what is not a `ws://` address."""
        parts = urlsplit(url)
        if parts.scheme != "ws" or not parts.hostname:
            raise RunFailed(f"{url!r} is not ws://HOST[:PORT][/PATH]")
        return cls(parts.hostname, parts.port or 80, parts.path or "/", source, topic, bootstrap)
