"""The broker's own jars: Apache Kafka, fetched once, then kept and checked (`kiwi_spark.java.jar_set`)."""

from __future__ import annotations

import sys
from collections.abc import Callable
from importlib import resources
from pathlib import Path
from typing import Final

import trio

from kiwi_gw.api import KiwiError
from kiwi_spark.java.class_sharing import make_archive
from kiwi_spark.java.classes import COMPILER, classes_jar
from kiwi_spark.java.connector import fetch_connector
from kiwi_spark.java.jar_set import JarSet, default_cache, read_lock

KAFKA_VERSION: Final = "4.1.0"

# What `kafka_2.13` depends on to run, and slf4j-simple, which writes the broker's log to stderr; without a
# binding Kafka would log nothing at all. And Kafka's command line tools, to look at topics.
BROKER: Final = JarSet(
    title=f"Apache Kafka {KAFKA_VERSION}",
    folder=f"kafka-{KAFKA_VERSION}",
    jars=read_lock(resources.files("kiwi_demo").joinpath("broker-jars.lock").read_text()),
)


async def fetch_broker(
    cache_dir: Path | None = None, report: Callable[[str], None] = lambda line: None
) -> list[Path]:
    """Return the broker's jars, fetched if they are not in the cache yet; see `JarSet.fetch`."""
    return await BROKER.fetch(cache_dir or default_cache(), report)


async def _fetch_all(report: Callable[[str], None]) -> None:
    await fetch_broker(report=report)
    await fetch_connector(report=report)
    await COMPILER.fetch(default_cache(), report)  # the tests compile, also where there is a jar
    await classes_jar(report=report)
    await make_archive(report=report)


def main() -> None:
    """Have all jars ready, for the set-up (`python -m kiwi_demo.jars`). Exit code 1 if that fails."""
    try:
        trio.run(_fetch_all, lambda line: print(line, file=sys.stderr, flush=True))
    except KiwiError as failure:
        sys.exit(str(failure))


if __name__ == "__main__":
    main()
