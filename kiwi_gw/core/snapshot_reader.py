"""A subscription's way through the newest event of every key, which then leads into the source's window.

So begins one that asked for a snapshot, and so goes on one with policy `latest` that is too far behind. It
reads page by page, from a window of the page's own which it shares with others, at its client's pace.
"""

from __future__ import annotations

from kiwi_gw.core.lag_ledger import LagLedger
from kiwi_gw.core.last_values import LastValues, SnapshotScan
from kiwi_gw.core.loss import Loss
from kiwi_gw.core.snapshot_pages import SnapshotPage
from kiwi_gw.core.window_cursor import WindowCursor
from kiwi_gw.model import Positions


class SnapshotReader:
    """Moves one cursor along one scan of the index. page: the one that is read."""

    __slots__ = ("_index", "page", "scan")

    def __init__(self, index: LastValues, scan: SnapshotScan) -> None:
        self.scan = scan
        self.page: SnapshotPage | None = None
        self._index = index
        index.begin(scan)

    def behind(self, cursor: WindowCursor) -> int:
        """Count the events between the cursor and where the scan enters the source's window."""
        rest = 0 if self.page is None else cursor.window.head - cursor.seq
        return rest + (self.scan.left or 0)

    def next_page(self, cursor: WindowCursor, here: Positions, ledger: LagLedger) -> bool:
        """Read on with the next page. here: the positions of the reader. False: the scan is over."""
        self.scan.here = here
        self._leave_page(cursor)
        found = self._index.page(self.scan)
        self.account_superseded(ledger)
        if found is None:
            self._index.end(self.scan)
            return False
        self.page, skipped = found
        self.page.readers += 1
        cursor.enter_page(self.page.window, self.page.entry, skipped)
        return True

    def account_superseded(self, ledger: LagLedger) -> None:
        """Give up what was superseded before it came to its page: what superseded it is still to come."""
        if self.scan.gone.dropped:
            gone, self.scan.gone = self.scan.gone, Loss()
            ledger.add_loss(gone)

    def close(self, cursor: WindowCursor) -> None:
        """Stop half-way."""
        self._leave_page(cursor)
        self._index.end(self.scan)

    def _leave_page(self, cursor: WindowCursor) -> None:
        cursor.unpark()
        page, self.page = self.page, None
        if page is not None:
            self._index.pages.release(page)
