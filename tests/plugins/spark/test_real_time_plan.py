"""Which queries can run in real time, by Spark's physical plan, and how many."""

from __future__ import annotations

import pytest

from kiwi_spark.driver.error_classification import QueryError
from kiwi_spark.driver.real_time import RealTimePlaces, refused_by_plan

STREAM = "StreamingRelation kafka, [key#{}, value#8]"
SENT = "BroadcastExchange HashedRelationBroadcastMode(List(...)), [plan_id=1]"
JOIN = "*(2) BroadcastHashJoin [a#1], [b#2], Inner, BuildRight, false"


@pytest.mark.parametrize(
    ("lines", "why"),
    [
        (["+- *(1) Filter isnotnull(a#1)", f"   +- {STREAM.format(1)}"], ""),
        ([f"+- {JOIN}", f"   :- {STREAM.format(1)}", f"   +- {SENT}", "      +- FileScan csv [b#2]"], ""),
        (
            [
                "Union",
                f":- {JOIN}",
                f":  :- {STREAM.format(1)}",
                f":  +- {SENT}",
                ":     +- FileScan csv [b#2]",
                f"+- {STREAM.format(2)}",
            ],
            "",
        ),
        (
            [
                f"+- {JOIN}",
                f"   :- {SENT}",
                "   :  +- *(1) Filter isnotnull(a#1)",
                f"   :     +- {STREAM.format(1)}",
                "   +- FileScan csv [b#2]",
            ],
            "it sends a stream to every task",
        ),
        (["Union", f":- {STREAM.format(1)}", f"+- {STREAM.format(1)}"], "it reads an input twice"),
        (["StreamingRelation rate, [timestamp#1, value#2L]"], "it reads a stream that is none of its inputs"),
        (["+- *(1) HashAggregate(keys=[a#1])", f"   +- {STREAM.format(1)}"], "it keeps state"),
        (["+- *(1) BatchEvalPython [f(a#1)]", f"   +- {STREAM.format(1)}"], "it has functions in Python"),
        (["+- Exchange hashpartitioning(a#1, 5)", f"   +- {STREAM.format(1)}"], "it needs a shuffle"),
    ],
)
def test_plans_that_can_run_in_real_time(lines: list[str], why: str) -> None:
    head = [] if lines[0][0].isalpha() else ["*(2) Project [a#1]"]
    assert refused_by_plan("\n".join(["== Physical Plan ==", *head, *lines, ""])) == why


def test_threads_for_partitions() -> None:
    """A query that wants them can have what others gave back."""
    places = RealTimePlaces(4)
    places.take(1, 3)
    with pytest.raises(
        QueryError, match=r"would read 2 partitions in real time, others read 3, and .* 4: raise"
    ):
        places.take(2, 2)
    places.take(2, 1)
    places.give_back(1)
    places.give_back(1)
    places.take(3, 3)
