"""Decides which batch is served first when more queries are busy than there are cores.

Spark's FAIR scheduler compares pools: the one that runs fewer tasks is served first, and where they run
equally many, the one whose name comes first in the alphabet. With few cores they nearly always do, as the
core that becomes free is one that has just finished a task: with a pool for every query, those with the last
names are served only when all others have nothing to do. So every batch has a pool of its own, and these are
named in the order in which batches begin: among equals the batch that has waited longest is served first, and
the next batch of a query comes behind those that the others have begun meanwhile.

Spark keeps a pool for ever once it has seen its name, and sorts all of them whenever a core is free. So a
pool is taken away again when its batch is over.
"""

from __future__ import annotations

import itertools
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

from py4j.protocol import Py4JError
from pyspark import SparkContext

_POOL: Final = "spark.scheduler.pool"
_numbers = itertools.count()
_say_once = threading.Lock()


@contextmanager
def scheduler_pool(context: SparkContext) -> Iterator[None]:
    """Serve what the thread of a batch runs in this block as one that has come now."""
    # Digits enough for a thousand years of a thousand batches a second: names are compared as text.
    name = f"batch {next(_numbers):014d}"
    before = context.getLocalProperty(_POOL)
    context.setLocalProperty(_POOL, name)
    try:
        yield
    finally:
        context.setLocalProperty(_POOL, before)  # type: ignore[arg-type]  # None removes it
        _forget(context, name)


def _forget(context: SparkContext, name: str) -> None:
    """Take the pool away, if Spark has made it."""
    java: Any = context._jsc.sc()
    try:
        root = java.taskScheduler().rootPool()
        pool = root.getSchedulableByName(name)
        if pool is not None:
            root.removeSchedulable(pool)
    except Py4JError as error:  # another Spark, which has them elsewhere
        if _say_once.acquire(blocking=False):
            print(f"pools of the scheduler stay: {error}", file=sys.stderr, flush=True)
