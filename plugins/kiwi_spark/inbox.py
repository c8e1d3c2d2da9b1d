"""Which batches of a query are taken, and which had been: every row once, free of I/O.

Theory of operation. Spark repeats a batch that it does not know to be done, with the same id but in another
order of rows. So a batch counts only as a whole: at its END it is committed, and from then on its id is
known. What is cut off before that never was; what comes again after that is acknowledged and dropped. That
holds for one checkpoint, which has an id of its own; with another one the ids mean other batches.
"""

from __future__ import annotations

from dataclasses import dataclass

from kiwi_gw.api import KiwiError, SourceChanged
from kiwi_spark.frames import Message, WireError
from kiwi_spark.shape import MAX_ROWS
from kiwi_spark.wire import Begin, End, Rows


class TooManyRowsError(KiwiError):
    """A batch has more rows than positions can name."""


@dataclass(frozen=True, slots=True)
class Keep:
    """A part of a batch that is new: stage it."""

    arrow: bytes
    rows: int


@dataclass(frozen=True, slots=True)
class Commit:
    """The batch is whole and counts from now on: publish it, then acknowledge it.

    lost_from: the first batch that should have come before it and never will; None if nothing is missing.
    """

    batch: int
    timestamp: int
    rows: int
    lost_from: int | None = None


@dataclass(frozen=True, slots=True)
class Repeated:
    """The batch had been committed: acknowledge it."""

    batch: int


Decision = Keep | Commit | Repeated


class Inbox:
    """The batches of one source. query: id of the checkpoint. next: id of the batch that comes next."""

    def __init__(self, query: str, next_batch: int) -> None:
        self.query = query
        self.next = next_batch
        self._begun: Begin | None = None
        self._rows = 0

    def started(self, query: str, next_batch: int) -> None:
        """The query was started again. SourceChanged: not from where it was."""
        self.cut()
        if query != self.query:
            raise SourceChanged("the checkpoint of the query is another one than before: it begins anew")
        if next_batch < self.next - 1:
            # Of the last one Spark may not know that it was done; of those before it does.
            raise SourceChanged(
                f"the checkpoint of the query was put back from batch {self.next} to {next_batch}: "
                "what comes now is not what came then"
            )

    def take(self, message: Message, rows: int = 0) -> Decision | None:
        """A message of the connection for rows, and what to do. rows: how many a Rows has.

        WireError: it does not belong there. TooManyRowsError: the batch cannot be numbered.
        """
        if isinstance(message, Begin):
            self._begin(message)
            return None
        begun = self._begun
        if begun is None or not isinstance(message, Rows | End):
            raise WireError(f"a {type(message).__name__} where a batch should begin")
        if isinstance(message, Rows):
            self._rows += rows
            if self._rows > MAX_ROWS:
                raise TooManyRowsError(
                    f"batch {begun.batch} has more than {MAX_ROWS:,} rows; a smaller `max_offsets` of its "
                    "inputs makes smaller batches"
                )
            return Keep(message.arrow, rows) if begun.batch >= self.next else None
        if message.rows != self._rows:
            raise WireError(
                f"batch {begun.batch} ends after {self._rows} rows and should have {message.rows}"
            )
        self._begun = None
        if begun.batch < self.next:
            return Repeated(begun.batch)
        lost_from = self.next if begun.batch > self.next else None
        self.next = begun.batch + 1
        return Commit(begun.batch, begun.timestamp, self._rows, lost_from)

    def cut(self) -> int | None:
        """The connection is over. The id of the batch that is dropped because it was not whole."""
        begun, self._begun = self._begun, None
        return None if begun is None else begun.batch

    def _begin(self, message: Begin) -> None:
        if self._begun is not None:
            raise WireError(f"batch {message.batch} begins within batch {self._begun.batch}")
        if message.query != self.query:
            raise WireError("a batch of another query")
        if message.batch < 0:
            raise WireError(f"a batch with the id {message.batch}")
        self._begun, self._rows = message, 0
