"""Which source is meant by the name of a table.

Theory of operation. A table is a source: it has the name in its block `lenses`, or that of its id. The
sources that there are, are the same for every client, so that one table of names serves all connections. What
a client may read is judged when it subscribes, and what it may not gets the words for what there is not. A
name whose source is gone, or is called otherwise now, is found out there, too.
"""

from __future__ import annotations

from collections.abc import Mapping

from kiwi_gw.codes import RefusalCode
from kiwi_gw.dialects.lenses.settings import LensesSource
from kiwi_gw.errors import SubscribeRefused
from kiwi_gw.model import SourceInfo


class Tables:
    """Find the sources by the names of their tables."""

    def __init__(self) -> None:
        self._ids: dict[str, str] = {}
        self._infos: dict[str, SourceInfo] = {}

    def add(self, info: SourceInfo) -> None:
        """Learn of a source, or of its new name."""
        name, known = table_of(info), self._infos.get(info.id)
        before = None if known is None else table_of(known)
        if before is not None and before != name and self._ids.get(before) == info.id:
            del self._ids[before]
        self._infos[info.id], self._ids[name] = info, info.id

    def source_id(self, name: str) -> str:
        """Return the id of the source that was last called so. If none was, an id that no source has: what is
        not there is refused where what may not be seen is, in the same words and the same order."""
        return self._ids.get(name, f"\0{name}")

    def info(self, source_id: str) -> SourceInfo | None:
        """Return what is known of a source: it may be gone. None: there was none of that id."""
        return self._infos.get(source_id)


def table_of(info: SourceInfo) -> str:
    """Return the name of a source as a table."""
    return table_name(info.id, info.blocks)


def table_name(source_id: str, blocks: Mapping[str, object]) -> str:
    """Return the name of a source as a table. blocks: what it says to protocols."""
    block = blocks.get("lenses")
    return block.topic if isinstance(block, LensesSource) and block.topic is not None else source_id


def check_table(info: SourceInfo, name: str) -> None:
    """Raise SubscribeRefused if the source is not called so any more."""
    if table_of(info) != name:
        raise SubscribeRefused(RefusalCode.UNKNOWN_SOURCE, unknown_table(name))


def unknown_table(name: str) -> str:
    """Say that there is no such table, or none that this client may read."""
    return f"no such topic: `{name}`"
