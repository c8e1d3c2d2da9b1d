from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kiwi_gw.api import SourceChanged
from kiwi_spark.frames import WireError
from kiwi_spark.inbox import Commit, Inbox, Keep, Repeated, TooManyRowsError
from kiwi_spark.shape import MAX_ROWS
from kiwi_spark.wire import Ack, Begin, End, Rows


def begin(batch: int, query: str = "q") -> Begin:
    return Begin(query=query, batch=batch, timestamp=7)


def test_a_batch_counts_at_its_end() -> None:
    inbox = Inbox("q", 3)
    assert inbox.take(begin(3)) is None
    assert inbox.take(Rows(arrow=b"x"), 2) == Keep(b"x", 2)
    assert inbox.next == 3
    assert inbox.take(End(rows=2)) == Commit(3, 7, 2)
    assert inbox.next == 4


def test_one_that_was_cut_off_never_was() -> None:
    inbox = Inbox("q", 3)
    inbox.take(begin(3))
    inbox.take(Rows(arrow=b"x"), 2)
    assert inbox.cut() == 3
    assert inbox.cut() is None
    inbox.started("q", 3)
    inbox.take(begin(3))
    assert inbox.take(End(rows=0)) == Commit(3, 7, 0)


def test_one_that_comes_again_is_acknowledged_and_dropped() -> None:
    inbox = Inbox("q", 0)
    inbox.take(begin(0))
    inbox.take(End(rows=0))
    inbox.started("q", 0)
    inbox.take(begin(0))
    assert inbox.take(Rows(arrow=b"other order"), 9) is None
    assert inbox.take(End(rows=9)) == Repeated(0)
    assert inbox.next == 1


def test_batches_that_never_came_are_named() -> None:
    inbox = Inbox("q", 2)
    inbox.started("q", 5)
    inbox.take(begin(5))
    assert inbox.take(End(rows=0)) == Commit(5, 7, 0, lost_from=2)


def test_another_checkpoint_and_one_that_was_put_back() -> None:
    inbox = Inbox("q", 5)
    inbox.started("q", 4)  # Spark does not know yet that 4 was done
    with pytest.raises(SourceChanged, match="another one"):
        inbox.started("p", 5)
    with pytest.raises(SourceChanged, match="put back from batch 5 to 3"):
        inbox.started("q", 3)


@pytest.mark.parametrize(
    ("messages", "words"),
    [
        ([Rows(arrow=b"")], "a Rows where a batch should begin"),
        ([End(rows=0)], "a End where"),
        ([begin(0), begin(0)], "within batch 0"),
        ([begin(0), Ack(batch=0)], "a Ack where"),
        ([begin(0, "p")], "another query"),
        ([begin(-1)], "the id -1"),
        ([begin(0), End(rows=1)], "ends after 0 rows and should have 1"),
    ],
)
def test_what_does_not_belong_there(messages: list[Begin | Rows | End | Ack], words: str) -> None:
    inbox = Inbox("q", 0)
    for message in messages[:-1]:
        inbox.take(message)
    with pytest.raises(WireError, match=words):
        inbox.take(messages[-1])


def test_more_rows_than_positions_can_name() -> None:
    inbox = Inbox("q", 0)
    inbox.take(begin(0))
    inbox.take(Rows(arrow=b""), MAX_ROWS)
    with pytest.raises(TooManyRowsError, match="max_offsets"):
        inbox.take(Rows(arrow=b""), 1)


@given(st.lists(st.tuples(st.sampled_from(["whole", "cut", "repeat"]), st.integers(0, 3)), max_size=30))
def test_every_batch_is_committed_once_and_in_order(steps: list[tuple[str, int]]) -> None:
    """Whatever is cut off and repeated: as Spark does it, from the last one that it knows to be done."""
    inbox, known, committed = Inbox("q", 0), 0, []
    for step, rows in steps:
        inbox.started("q", known)
        inbox.take(begin(known))
        inbox.take(Rows(arrow=b""), rows)
        if step == "cut":
            inbox.cut()
            continue
        decision = inbox.take(End(rows=rows))
        if isinstance(decision, Commit):
            committed.append(decision.batch)
        if step == "whole":  # else its acknowledgement is lost
            known += 1
    assert committed == list(range(inbox.next))
    assert inbox.next - known in (0, 1)
