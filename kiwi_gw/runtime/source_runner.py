"""Keeps one source running: hands its batches to the feed, restarts it when it fails.

One of the two places that catch everything: whatever a source raises is logged and counted here, and
touches no connection.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, closing

import structlog
import trio

from kiwi_gw.api import Source, SourceChanged, SourceFailed
from kiwi_gw.core.feed import Feed, FeedState
from kiwi_gw.model import Batch, Positions

log = structlog.get_logger(__name__)

FIRST_PAUSE, LONGEST_PAUSE = 0.5, 30.0
"""Seconds between restarts: doubled each time, with jitter; a run that lasted longer begins anew."""

Build = Callable[[], AbstractAsyncContextManager[Source]]


class FeedOut:
    """`api.Out` over a feed."""

    def __init__(self, feed: Feed, subscribed: Callable[[], trio.Event]) -> None:
        self._feed = feed
        self._subscribed = subscribed

    async def ready(self, positions: Positions) -> None:
        self._feed.started(positions)
        await trio.lowlevel.checkpoint()

    async def publish(self, batch: Batch) -> None:
        # If this is cancelled half-way, whoever was not served yet reads on from the window.
        with closing(self._feed.publish(batch)) as steps:  # type: ignore[type-var]
            for _ in steps:
                await trio.lowlevel.checkpoint()
        await trio.lowlevel.checkpoint()

    async def wait_subscribed(self) -> None:
        while not self._feed.subscribers:
            await self._subscribed().wait()
        await trio.lowlevel.checkpoint()


class SourceRunner:
    """Runs one source until it ends, fails for good, changes, or is stopped.

    build: makes the source with its services, anew for every run. changed: told when the source said
    that it became another one; it is not run again by this runner.
    """

    def __init__(
        self,
        feed: Feed,
        build: Build,
        changed: Callable[[str], None],
    ) -> None:
        self.feed = feed
        self.restarts = 0
        self.last_error: str = ""
        self._build = build
        self._changed = changed
        self._scope = trio.CancelScope()
        self._subscribed = trio.Event()
        self.done = trio.Event()

    def subscriber_came(self) -> None:
        """A subscription was opened: wake a source that waits for its first."""
        self._subscribed.set()
        self._subscribed = trio.Event()

    def stop(self) -> None:
        """Stop the source; its feed is left as it is."""
        self._scope.cancel()

    async def run(self) -> None:
        """Returns when the source is over, for whatever reason."""
        try:
            with self._scope:
                await self._keep_running()
        finally:
            self.done.set()

    async def _keep_running(self) -> None:
        pause = FIRST_PAUSE
        while True:
            began = trio.current_time()
            out = FeedOut(self.feed, lambda: self._subscribed)
            start = self.feed.positions if self.feed.state is not FeedState.STARTING else None
            try:
                async with self._build() as source:
                    await source.run(out, start)
            except SourceFailed as error:
                self.last_error = str(error)
                log.error("source failed", source=self.feed.info.id, error=str(error))
                self.feed.failed(str(error))
                return
            except SourceChanged as error:
                log.warning("source changed", source=self.feed.info.id, change=str(error))
                self._changed(str(error))
                return
            except Exception as error:
                self.last_error = f"{type(error).__name__}: {error}"
                log.error(
                    "source raised; it is restarted", source=self.feed.info.id, pause=pause, exc_info=error
                )
            else:
                log.info("source ended", source=self.feed.info.id)
                self.feed.ended()
                return
            self.restarts += 1
            if trio.current_time() - began > LONGEST_PAUSE:
                pause = FIRST_PAUSE
            await trio.sleep(pause * (0.5 + random.random() / 2))  # noqa: S311  jitter, not a secret
            pause = min(pause * 2, LONGEST_PAUSE)
