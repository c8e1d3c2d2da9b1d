"""What strangers send, each kind with what reads it, and what one message may cost."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from typing import Final

from kiwi_gw.dialect_api import Dialect, SessionLimits
from kiwi_gw.dialects.kiwi.dialect import KiwiDialect
from kiwi_gw.dialects.zetta import topics
from kiwi_gw.edge.http_errors import HttpError
from kiwi_gw.edge.request_head import HeadCollector, HeadLimits
from kiwi_gw.errors import KiwiError
from kiwi_gw.model import ANONYMOUS
from kiwi_gw.query import caql, sql
from kiwi_gw.query.caql import reader as of_caql
from kiwi_gw.query.compiler import CompiledQuery, compile_query, query_codegen
from kiwi_gw.query.sql import reader as of_sql
from kiwi_gw.query.tree import Query
from tests.heads import HEAD
from tests.unit.dialects.zetta.bench import Sources

MESSAGE: Final = 65_536
"""Bytes of the longest message."""
BESIDE_SECONDS: Final = 0.030
"""What a long query may take to be read and compiled beside the loop, and to be evaluated for four events."""
_LOTS: Final = SessionLimits(commands_per_second=1e9, commands_burst=10**9, requests_burst=10**9)


@dataclass(frozen=True, slots=True)
class Target:
    """One kind of message. read: does all that one of them brings about; raises nothing. seconds: of the
    processor for one; bytes: that are kept of it; most: bytes of the longest."""

    read: Callable[[bytes], None]
    seconds: float = 0.010
    bytes: int = 1 << 20
    most: int = MESSAGE


def forget() -> None:
    """What is kept of the texts that were asked for last: each is to be read anew."""
    for one in (of_sql._conditions, of_sql._selections, of_caql._known, query_codegen._recent):
        one.clear()


@cache
def events() -> list[object]:
    """Values that functions have most to do with."""
    chosen = random.Random(1)
    text = "".join(chosen.choices("ab01 ,-:.", k=2_000))
    return [
        None,
        {"a": text, "b": "1" * 2_000 + "x", "c": [text] * 20, "d": {"e": 2**63, "f": "2013-01-05 06:07:08"}},
        {"a": 1, "b": -1.5, "c": [1, None, "x"], "d": json.dumps([[1] * 200] * 3)},
        text,
    ]


def _evaluated(made: CompiledQuery) -> None:
    values = events()
    columns: dict[str, list[object]] = dict.fromkeys(made.roots, values)
    columns |= {root: list(range(len(values))) for root in ("partition", "offset") if root in columns}
    kept, _ = made.filter(columns, len(values))
    if made._project is not None:
        made.project(columns, kept)


def _query(read: Callable[[str], Query], roots: frozenset[str]) -> Callable[[bytes], None]:
    def run(data: bytes) -> None:
        forget()
        with suppress(KiwiError):
            _evaluated(compile_query(read(data.decode("utf-8", "replace")), roots))

    return run


def _topic(data: bytes) -> None:
    with suppress(KiwiError):
        found = topics.parse(data.decode("utf-8", "replace"))
        found.pattern.decide("hub/arm/1/state/a/b/c")


def _kiwi(data: bytes) -> None:
    forget()
    dialect: Dialect = KiwiDialect("flat")
    for message in (data, data.decode("utf-8", "replace")):
        for command in dialect.open_session(HEAD, {}, ANONYMOUS, _LOTS).receive(message, 0.0):
            assert command is not None


def _zetta(data: bytes) -> None:
    forget()
    sources = Sources(arms={"topic": "hub/arm/{key}/state"})
    client = sources.client("", SessionLimits(commands_per_second=0))
    client.raw(data.decode("utf-8", "replace"))
    sources.raw("arms", [b'{"x":1}'], ["1"])
    client.hear()


def _head(data: bytes) -> None:
    with suppress(HttpError):
        HeadCollector(HeadLimits()).feed(data)


TARGETS: Final = {
    "sql": Target(_query(lambda text: sql.read(text, None), sql.ROOTS), BESIDE_SECONDS, most=4_096),
    "columns": Target(_query(lambda text: sql.read(None, text), sql.ROOTS), BESIDE_SECONDS, most=4_096),
    "caql": Target(_query(caql.read, frozenset(caql.TOPIC_ROOTS)), BESIDE_SECONDS, most=4_096),
    "topic": Target(_topic, most=4_096),
    "kiwi": Target(_kiwi),
    "zetta": Target(_zetta),
    "head": Target(_head, seconds=0.001),
}
