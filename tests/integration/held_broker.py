"""A broker in a thread with a Trio loop of its own, so that it lives longer than any test's loop."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from kiwi_demo.broker import Broker
from tests.integration.held import Held

_KEPT: Final = {"log.retention.ms": "-1"}
"""Records stay. Tests give theirs a time, which is older than a week one day: Kafka would remove them half a
minute after its start, and every five minutes."""


class HeldBroker(Held[Broker]):
    """options: those of a `Broker`. `await held.do(held.broker.kill)` kills it."""

    def __init__(self, folder: Path, *, properties: Mapping[str, str] | None = None, **options: Any) -> None:
        self.broker = Broker(folder, properties={**_KEPT, **(properties or {})}, **options)
        super().__init__("broker", lambda: self.broker)
