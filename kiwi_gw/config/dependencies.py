"""Sources that depend on other sources: those must exist, and must not depend on them in turn."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from kiwi_gw.config import error_wording
from kiwi_gw.config.document import Document, Path


def check_dependencies(
    depends: Mapping[str, tuple[Path, Sequence[str]]], known: Collection[str] | None, document: Document
) -> None:
    """Report what is wrong as problems of the document, each at the place that names the other source.

    depends: by the id of a source, where it stands and the ids that it depends on. known: the ids of all
    sources; None: not all of them are known.
    """
    reported: set[frozenset[str]] = set()
    edges = {key: value for key, (_, value) in depends.items()}
    for source_id, (where, others) in depends.items():
        for other in others:
            place = _place(document.data, where, other)
            if other == source_id:
                document.complain(place, f"the source {other!r} depends on itself")
            elif known is not None and other not in known:
                hint = error_wording.did_you_mean(other, sorted({*known} - {source_id}))
                document.complain(place, f"there is no source {other!r}{hint}")
            else:
                circle = _way(edges, other, source_id)
                if circle and frozenset(circle) not in reported:
                    reported.add(frozenset(circle))
                    way = " -> ".join(map(repr, (source_id, *circle)))
                    document.complain(place, f"sources depend on each other in a circle: {way}")


def closure(depends: Mapping[str, Sequence[str]], changed: Collection[str]) -> set[str]:
    """Return those that depend on one of `changed`, directly or through others."""
    found: set[str] = set()
    while True:
        reached = {*changed, *found}
        more = {key for key, others in depends.items() if not reached.isdisjoint(others)} - found
        if not more:
            return found
        found |= more


def _way(depends: Mapping[str, Sequence[str]], begin: str, end: str) -> tuple[str, ...]:
    """Find a shortest way between two sources along what they depend on, with both ends; empty: none."""
    ways: dict[str, tuple[str, ...]] = {begin: (begin,)}
    waiting = [begin]
    for here in waiting:
        if here == end:
            return ways[here]
        for other in depends.get(here, ()):
            if other not in ways:
                ways[other] = (*ways[here], other)
                waiting.append(other)
    return ()


def _place(data: object, where: Path, source_id: str) -> Path:
    """Find where the source at `where` names the other one; the source itself if it is not written there."""
    here = data
    for part in where:
        here = here[part]  # type: ignore[index]
    return _find(here, where, source_id) or where


def _find(data: object, path: Path, source_id: str) -> Path | None:
    if data == source_id and path[-1] not in ("id", "type"):
        return path
    items = data.items() if isinstance(data, dict) else enumerate(data) if isinstance(data, list) else ()
    return next((found for key, item in items if (found := _find(item, (*path, key), source_id))), None)
