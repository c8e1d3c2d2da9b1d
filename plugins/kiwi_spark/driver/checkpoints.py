"""Where a query's progress is kept, and whether it may go on from there.

    {folder}/{source id}/meta.json      what the query was, and which generation is in use
    {folder}/{source id}/{generation}/  a checkpoint of Spark

A changed query must not go on from a checkpoint whose state is another's: it is refused, or, where a reload
altered it, begins afresh in a new generation. Every file is reached through Hadoop's file systems, so the
folder may be on a disk, in HDFS or in an object store.
"""

from __future__ import annotations

import re
import time
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import quote

import msgspec

from kiwi_spark.driver.checkpoint_files import CheckpointFiles
from kiwi_spark.driver.error_classification import QueryError
from kiwi_spark.driver.query_identity import code_of, tokens
from kiwi_spark.protocol.query_spec import QuerySpec

_NUMBER: Final = re.compile(r"\d+")


class CheckpointMeta(msgspec.Struct, frozen=True, kw_only=True):
    """What `meta.json` holds. parts: what the query was, by name. schemas: DDL inferred for its inputs, which
    stays as it was inferred first. stateful: whether Spark keeps state for it. begin: the offsets with which
    its inputs began, by their names; since: when these were fixed, in ms since the epoch. starts: `start` of
    the inputs as it was read last; None: an older checkpoint does not know."""

    generation: int
    parts: dict[str, Any]
    stateful: bool
    schemas: dict[str, str] = {}
    begin: dict[str, dict[int, int]] = {}
    since: int = 0
    starts: dict[str, str | int] | None = None


@dataclass(frozen=True, slots=True)
class ResumePoint:
    """Where a query goes on. next_batch: the id of the first batch that is not committed there."""

    path: str
    next_batch: int
    notes: list[str]


def parts_of(query: QuerySpec, spark: str) -> dict[str, Any]:
    """Return everything of a query that its checkpoint depends on. Trigger, key, start and limits are not in
    it."""
    return {
        "Spark": ".".join(spark.split(".")[:2]),
        "sql": query.sql.strip(),
        "transform": query.transform,
        "code": code_of(query.transform) if query.transform else "",
        "inputs": {
            name: {
                "source": one.source,
                "subscribe": one.kafka.get("subscribe", ""),
                "format": one.format,
                "schema": one.schema,
                "avro": one.avro,
                "registry": one.registry,
            }
            for name, one in sorted(query.streams.items())
        }
        | _tables(query, stream=True),
        "tables": _tables(query, stream=False),
        "watermarks": {name: [one.column, one.delay] for name, one in sorted(query.watermarks.items())},
        "output_mode": query.output_mode,
    }


def _tables(query: QuerySpec, *, stream: bool) -> dict[str, Any]:
    return {
        name: {"format": one.format, "path": one.path, "schema": one.schema}
        for name, one in sorted(query.tables.items())
        if one.stream is stream
    }


def _same(name: str, now: Any, before: Any) -> bool:
    """Return whether a part means what it meant. Older checkpoints do not know the code that they were made
    with."""
    if name == "code" and (now == "" or before is None):
        return True
    if name == "sql" and before is not None:
        return tokens(now) == tokens(before)
    return bool(now == before)


def _cost(query: QuerySpec, stateful: bool) -> str:
    """Say what it costs to begin afresh. stateful: whether there was state."""
    starts = {name: one.start for name, one in query.streams.items()}
    latest = ", ".join(name for name, start in starts.items() if start == "latest")
    others = ", ".join(name for name, start in starts.items() if start != "latest")
    costs = (
        f"what was not read yet of {latest} is left out (`start: latest`)" if latest else "",
        f"{others} is read again from its `start`" if others else "",
        "what was counted and kept so far is forgotten" if stateful else "",
    )
    return "".join(f"; {cost}" for cost in costs if cost)


def _name(source: str) -> str:
    """Write an id as the name of a folder, which is always one below the folder of all."""
    return quote(source, safe="") if source.strip(".") else source.replace(".", "%2E")


class Checkpoints:
    """The checkpoints of one source."""

    def __init__(self, files: CheckpointFiles, folder: str, source: str, spark: str) -> None:
        self._files = files
        self._folder = f"{folder.rstrip('/')}/{_name(source)}"
        self._spark = spark

    @property
    def _meta_path(self) -> str:
        return f"{self._folder}/meta.json"

    def meta(self) -> CheckpointMeta | None:
        """Read what is there, None if nothing is. Raises QueryError if it cannot be understood."""
        text = self._files.read(self._meta_path)
        if text is None:
            return None
        try:
            return msgspec.json.decode(text, type=CheckpointMeta)
        except msgspec.MsgspecError as error:
            raise QueryError(
                "checkpoint",
                f"{self._meta_path} cannot be read ({error}); remove {self._folder} to begin afresh",
            ) from error

    def schemas(self) -> dict[str, str]:
        """Read the schemas that were inferred for the inputs when it was made. Raises QueryError."""
        meta = self.meta()
        return {} if meta is None else meta.schemas

    def begin(self) -> dict[str, dict[int, int]]:
        """Read the offsets with which the inputs began; none before `keep_begin`. Raises QueryError."""
        meta = self.meta()
        return {} if meta is None else meta.begin

    def since(self) -> int:
        """Read when that was fixed: nothing was written before. 0: it is not known. Raises QueryError."""
        meta = self.meta()
        return 0 if meta is None else meta.since

    def keep_begin(self, begin: dict[str, dict[int, int]]) -> None:
        """Note the offsets with which the inputs begin, unless that was done before. Call it after `take`.
        Raises QueryError."""
        meta = self.meta()
        if meta is not None and not meta.begin:
            self._write(msgspec.structs.replace(meta, begin=begin, since=round(time.time() * 1000)))

    def _write(self, meta: CheckpointMeta) -> None:
        self._files.write(self._meta_path, msgspec.json.format(msgspec.json.encode(meta)).decode())

    def take(self, query: QuerySpec, stateful: bool, schemas: dict[str, str]) -> ResumePoint:
        """Decide where the query goes on, and note it. Raises QueryError."""
        now = parts_of(query, self._spark)
        meta = self.meta()
        notes: list[str] = []
        generation = 0
        if meta is not None:
            generation = meta.generation
            changed = [name for name in now if not _same(name, now[name], meta.parts.get(name))]
            if changed:
                generation, note = self._changed(query, meta, changed, stateful)
                notes.append(note)
            elif query.fresh:
                notes.append(f"the checkpoint {self._folder}/{generation} is kept: it is of this query")
        kept = meta if meta is not None and meta.generation == generation else None
        starts = {name: one.start for name, one in query.streams.items()}
        if kept is not None and kept.starts not in (None, starts):
            notes.append(
                f"`start` was changed, which says nothing where there is a checkpoint: remove {self._folder} "
                "while the gateway does not run to compute it all again"
            )
        wanted = CheckpointMeta(
            generation=generation,
            parts=now,
            stateful=stateful,
            schemas=schemas,
            begin={} if kept is None else kept.begin,
            since=0 if kept is None else kept.since,
            starts=starts,
        )
        if wanted != meta:
            self._write(wanted)
            self._forget(generation)
        path = f"{self._folder}/{generation}"
        return ResumePoint(path, self._next_batch(path), notes)

    def _changed(
        self, query: QuerySpec, meta: CheckpointMeta, changed: list[str], stateful: bool
    ) -> tuple[int, str]:
        what = ", ".join(f"the code of {query.transform}" if name == "code" else name for name in changed)
        place = f"{self._folder}/{meta.generation}"
        keeps_state = stateful or meta.stateful
        if not query.fresh and (keeps_state or changed != ["code"]):
            whose = "version of Spark" if changed == ["Spark"] else "query"
            versions = f" (it is of Spark {meta.parts.get('Spark')}, this is {self._spark})"
            raise QueryError(
                "checkpoint",
                f"the checkpoint {place} is of another {whose}: {what} differ(s)"
                f"{versions if 'Spark' in changed else ''}. Restore what was changed; or begin afresh from"
                f" `start`: remove {self._folder}, or set `on_other_checkpoint: new`",
            )
        if "Spark" not in changed and "inputs" not in changed and not keeps_state:
            return (
                meta.generation,
                f"{what} changed; the checkpoint {place} is kept: it has no state",
            )
        after = f"{self._folder}/{meta.generation + 1}"
        why = "the state in it is another query's"
        if "Spark" in changed or "inputs" in changed:
            why = "the inputs are others" if "inputs" in changed else "it is of another Spark"
        return meta.generation + 1, (
            f"{what} changed; the checkpoint {place} cannot be kept ({why}): it begins afresh in {after}"
            f"{_cost(query, meta.stateful)}"
        )

    def _forget(self, generation: int) -> None:
        """Remove older checkpoints. The last one stays, so that one can go back."""
        for name in self._files.names(self._folder):
            if _NUMBER.fullmatch(name) and int(name) < generation - 1:
                self._files.remove(f"{self._folder}/{name}")

    def _next_batch(self, path: str) -> int:
        commits = (int(name) for name in self._files.names(f"{path}/commits") if _NUMBER.fullmatch(name))
        return max(commits, default=-1) + 1
