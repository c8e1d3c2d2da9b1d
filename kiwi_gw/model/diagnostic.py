"""The findings of `kiwi-gw check`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class Diagnostic:
    """Hold what `kiwi-gw check` found out about one thing that the configuration names.

    `subject` names it (`kafka topic flights`). `message` says how it is and what to do if it is wrong;
    it may have several lines.
    where: what it is about, as a path in the configuration: keys of mappings and indexes of lists, a source
        by its index or its id (`("sources", "delays", "sql")`); empty: nothing in particular.
    line: if that is a text of several lines, which of them, from 0.
    """

    level: Literal["ok", "warning", "error"]
    subject: str
    message: str
    where: tuple[str | int, ...] = ()
    line: int = 0
