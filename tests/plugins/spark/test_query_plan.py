"""Finding a user's `transform`: `module:function`."""

from __future__ import annotations

import sys
import threading
from pathlib import Path

import pytest

from kiwi_spark.driver.error_classification import QueryError
from kiwi_spark.driver.query_plan import _transformed

SECONDS = 30.0

SLOW = """
import threading
entered, go_on = threading.Event(), threading.Event()
if "first" not in globals():
    first = True
else:
    del made
    entered.set()
    go_on.wait(30)

def made(inputs):
    return "no frame"
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.syspath_prepend(str(tmp_path))
    return tmp_path


def answer(name: str) -> str:
    with pytest.raises(QueryError, check=lambda error: error.error_kind == "query") as caught:
        _transformed(name, {}, distributed=False)
    return str(caught.value)


def test_what_is_not_there_is_said(folder: Path) -> None:
    (folder / "kiwi_own.py").write_text("def broken(inputs):\n    return inputs['trains']\n")
    assert "ModuleNotFoundError: No module named 'kiwi_nowhere'" in answer("kiwi_nowhere:f")
    assert "AttributeError" in answer("kiwi_own:f")
    assert answer("kiwi_own:broken").startswith("kiwi_own:broken: KeyError: 'trains' (")


def test_queries_that_start_at_once_do_not_find_half_of_a_module(folder: Path) -> None:
    (folder / "kiwi_slow.py").write_text(SLOW)
    found = [answer("kiwi_slow:made")]
    module = sys.modules["kiwi_slow"]
    seen = threading.Event()

    def ask() -> None:
        seen.set()
        found.append(answer("kiwi_slow:made"))

    threads = [threading.Thread(target=ask) for _ in range(2)]
    threads[0].start()
    while not getattr(module, "entered", threading.Event()).wait(0.01):
        assert threads[0].is_alive()
    seen.clear()
    threads[1].start()
    assert seen.wait(SECONDS)
    # The second one reads it anew, too, and waits there for the same event of its own.
    while any(thread.is_alive() for thread in threads):
        getattr(module, "go_on", threading.Event()).set()
        for thread in threads:
            thread.join(0.01)
    assert found == ["kiwi_slow:made returned str, not a DataFrame"] * 3
