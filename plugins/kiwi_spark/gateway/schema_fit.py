"""Whether the records of a query fit the schemas of its inputs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

MANY: Final = 100
"""So many bad records without a good one between them are no mishap any more."""

NONE_FITS: Final = "none of the records fits the schema of the query's input"
"""What subscribers are told."""


@dataclass(slots=True)
class SchemaFit:
    """What is known of it. trouble: `NONE_FITS`, or "" where one does, or nothing is known."""

    trouble: str = ""
    _one_did: bool = False
    _bad_in_a_row: int = 0

    def note(self, records: int, bad: int) -> None:
        """Take a batch into account: of its records, so many could not be decoded. A single bad record tells
        something only where none has ever fitted."""
        if records > bad:
            self._one_did, self._bad_in_a_row, self.trouble = True, 0, ""
            return
        self._bad_in_a_row += bad
        if self._bad_in_a_row >= MANY or (bad and not self._one_did):
            self.trouble = NONE_FITS
