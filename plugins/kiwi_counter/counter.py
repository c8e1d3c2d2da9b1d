"""A counter, as the original gateway has it: good for a first try, for tests and as a heartbeat."""

from __future__ import annotations

from typing import Final, Literal, Self

import trio
from pydantic import Field as Key
from pydantic import model_validator

from kiwi_gw.api import (
    Batch,
    EventSchema,
    Field,
    FieldEncoding,
    Milliseconds,
    Positions,
    Publisher,
    Section,
    Source,
    SourceContext,
)

LARGEST: Final = 2**64 - 1
"""The original counts in 64 bits without a sign."""

_SOURCE_ID = Field("sourceId", FieldEncoding.SOURCE_ID)
_SOURCE_TYPE = Field("sourceType", FieldEncoding.SOURCE_TYPE)
_COUNT = Field("count", FieldEncoding.INT)

SCHEMA: Final = EventSchema(
    (_SOURCE_ID, _SOURCE_TYPE, _COUNT), variants={"original": (_SOURCE_TYPE, _SOURCE_ID, _COUNT)}
)


class CounterSettings(Section):
    """The keys of a source of type `counter`."""

    type: Literal["counter"]
    id: str = Key(min_length=1, description="Name under which clients subscribe")
    min: int = Key(ge=0, le=LARGEST, description="First count")
    max: int | None = Key(None, ge=0, le=LARGEST, description="Last count; without it the counter never ends")
    interval_ms: Milliseconds = Key(ge=1, description="Time from one count to the next")
    lazy: bool = Key(False, description="Start with the first subscription, not with the gateway")

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if self.max is not None and self.max < self.min:
            raise ValueError(f"max ({self.max}) must not be smaller than min ({self.min})")
        return self


class Counter:
    """Publish `min` at once when it starts, then the next count at every interval, up to and with `max`.

    The event with count n has the offset n - min. Intervals are counted from the start, so that a late
    event does not delay those after it. After a restart it goes on with the count that is due next.
    """

    def __init__(self, settings: CounterSettings) -> None:
        self._settings = settings

    async def run(self, publisher: Publisher, start: Positions | None) -> None:
        settings = self._settings
        offset = 0 if start is None else start.get(0, 0)
        await publisher.ready({0: offset})
        if settings.lazy and offset == 0:
            await publisher.wait_subscribed()
        began, first = trio.current_time(), offset
        while settings.max is None or settings.min + offset <= settings.max:
            await trio.sleep_until(began + (offset - first) * settings.interval_ms / 1_000)
            count = settings.min + offset
            await publisher.publish(Batch({0: offset}, (0,), (offset,), {"count": (count,)}, cost=32))
            offset += 1


def build(settings: CounterSettings, context: SourceContext) -> Source:
    """Make the source (`SourceType.build`)."""
    return Counter(settings)
