"""One run of a query in a thread of its own: how it begins, is stopped and ends, whatever it does between."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, Final

from pyspark import SparkContext
from pyspark.sql.streaming.query import StreamingQuery

from kiwi_spark.driver.jvm_rows import RowsLink, TopicLink
from kiwi_spark.protocol.messages import Message, QueryEnded

_AGAIN_SECONDS: Final = 0.1


class RunThread(ABC):
    """See the top of this file. `send` is called from several threads. source: what the query is called.
    over: called before the end is told.

    _link, _running, _computing: what a stop has to end: the connection of the rows, the query as a stream,
    the Spark whose jobs of `_group` are the query's. They are set under `_lock`, and looked at by `stop`.
    """

    def __init__(
        self,
        number: int,
        source: str,
        send: Callable[[Message], None],
        over: Callable[[], None] = lambda: None,
    ) -> None:
        self._over = over
        self.number = number
        self._source = source
        self._send = send
        self._lock = threading.Lock()
        self._stopping = False
        self._link: RowsLink | TopicLink | None = None
        self._running: StreamingQuery | None = None
        self._computing: SparkContext | None = None
        self._group = f"run {number}"
        self._thread = threading.Thread(target=self._work, name=f"query {source}", daemon=True)

    def start(self) -> None:
        """Begin. QueryStarted and QueryEnded, or QueryEnded alone, are sent."""
        self._thread.start()

    def stop(self) -> None:
        """Stop; returns when it is over, and QueryEnded was sent. From any thread, any number of times."""
        with self._lock:
            self._stopping = True
            link, running, computing = self._link, self._running, self._computing
        if link is not None:
            link.close()  # first: the query may be waiting for the gateway
        if running is not None:
            self._ask_to_stop(running)
        if computing is not None:
            java: Any = computing._jsc
            while self._thread.is_alive():
                # Again and again: Spark runs parts of a query to plan the others, and begins some of those
                # also in a group that was cancelled.
                java.sc().cancelJobGroupAndFutureJobs(self._group)
                self._thread.join(_AGAIN_SECONDS)
        self._thread.join()

    @abstractmethod
    def _run(self) -> None:
        """Do all of it. Raises whatever ends it."""

    @abstractmethod
    def _why(self, error: Exception) -> QueryEnded | None:
        """Return what the gateway is sent of an error. None: it will find the whole driver gone."""

    def _ask_to_stop(self, running: StreamingQuery) -> None:
        try:
            running.stop()
        except Exception as error:  # noqa: BLE001  (it ends all the same; what it died of no longer matters)
            print(f"{self._source}: while it was stopped: {error}", flush=True)

    def _is_stopping(self) -> bool:
        with self._lock:
            return self._stopping

    def _work(self) -> None:
        ended: QueryEnded | None = QueryEnded(run=self.number)
        try:
            self._run()
        except Exception as error:  # noqa: BLE001  (every error of a query is sent to the gateway)
            if not self._is_stopping():
                ended = self._why(error)
        finally:
            if self._link is not None:
                self._link.close()
            self._over()
            if ended is not None:
                self._send(ended)
