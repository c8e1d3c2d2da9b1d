"""The table of faults in docs is the one that the results give."""

from __future__ import annotations

import json

from benchmarks.faults import PAGE, PART, RESULTS, table
from tests.doc_blocks import replaced
from tests.faults.experiment import Outcome, Result, summary

KILLED = Outcome("killed", "R1", Result.PASSED, [], 100, 0.5, 1.0, 3.0, 0.004)
HUNG = Outcome("killed", "R1", Result.HANG, ["it took too long"], 50, None, None, 0.1, 0.06)


def test_the_page_shows_the_results() -> None:
    page = PAGE.read_text()
    assert replaced(page, PART, table(json.loads(RESULTS.read_text()))) == page


def test_many_injections_of_a_kind() -> None:
    found = summary([KILLED, HUNG, KILLED])
    assert (found["injections"], found["PASSED"], found["HANG"], found["FAILED"]) == (3, 2, 1, 0)
    assert (found["noticed_s"], found["served_p50_s"], found["blocked_ms"]) == (0.5, 1.0, 60.0)
    assert found["events"] == 250
    assert found["reasons"] == ["it took too long"]


def test_a_row_of_the_table() -> None:
    results = {"kinds": [{**summary([KILLED, HUNG]), "date": "2026-01-02"}]}
    shown = table(results)
    assert shown.startswith("2 injections, 150 events")
    assert "| killed | R1 | 2 | 1, 1, 0 | 0.50 s | 1.00 s, 1.00 s | 3.00 s | 32 ms, 60 ms |" in shown
