"""Clients that use all that they may beside those that are measured: those of `tests.faults.greedy`.

On the word `go` they begin, for `seconds`; then the worker says what they were answered.
"""

from __future__ import annotations

from benchmarks.workers import child
from tests.faults.greedy import greedy


def main() -> None:
    settings = child.settings()
    child.say(ready=True)
    child.wait_word()
    child.say(answers=greedy(**settings))
    child.wait_word()


if __name__ == "__main__":
    main()
