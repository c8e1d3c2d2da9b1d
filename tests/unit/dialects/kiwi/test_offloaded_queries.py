"""Queries that a process beside the event loop reads: what is made of its answers, and of none."""

from __future__ import annotations

import pytest
from msgspec import UNSET, UnsetType

from kiwi_gw.core.notices import Unanswered
from kiwi_gw.dialects.compiling import BUSY
from kiwi_gw.dialects.kiwi.messages import Subscribe
from kiwi_gw.dialects.kiwi.queries import InvalidQuery, QueryTexts, offloaded, parse_query, texts
from kiwi_gw.query.worker_messages import answer


def written(where: str | UnsetType, select: str | UnsetType = UNSET) -> QueryTexts:
    return texts(Subscribe("a", where=where, select=select))


def test_it_reads_what_is_read_here() -> None:
    query = written("value.n > 1", "value.n")
    made, _ = offloaded(query, answer(query.question))
    assert made == parse_query(query)
    assert made is not None


def test_all_of_every_event_is_no_query() -> None:
    query = written(UNSET, "*")
    made, _ = offloaded(query, answer(query.question))
    assert made is None
    assert parse_query(query) is None


def test_a_mistake_is_one_wherever_it_is_found() -> None:
    query = written("value.n > AND")
    with pytest.raises(InvalidQuery) as there:
        offloaded(query, answer(query.question))
    with pytest.raises(InvalidQuery) as here:
        parse_query(query)
    assert str(there.value) == str(here.value)


def test_while_many_wait_it_is_to_be_tried_again() -> None:
    query = written("value.busy > 1")
    with pytest.raises(InvalidQuery, match=BUSY):
        offloaded(query, Unanswered.BUSY)
    assert written("value.busy > 1") == query


@pytest.mark.parametrize("unanswered", [Unanswered.TOO_LONG, Unanswered.FATAL])
def test_what_takes_too_much_is_refused_and_remembered(unanswered: Unanswered) -> None:
    where = f"value.{unanswered.value} > 1"
    with pytest.raises(InvalidQuery, match="too much time or memory"):
        offloaded(written(where), unanswered)
    with pytest.raises(InvalidQuery, match="too much time or memory"):
        written(where)
