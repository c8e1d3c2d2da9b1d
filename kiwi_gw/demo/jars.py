"""The broker's own jars: Apache Kafka, fetched once, then kept and checked (`kiwi_spark.ivy`)."""

from __future__ import annotations

import sys
from collections.abc import Callable
from importlib import resources
from pathlib import Path
from typing import Final

import trio

from kiwi_spark.cache import default_cache
from kiwi_spark.ivy import FetchFailed, JarSet, Module, read_lock
from kiwi_spark.jars import fetch_connector
from kiwi_spark.java import JavaNotFound

KAFKA_VERSION: Final = "4.1.0"
_SLF4J_VERSION = "1.7.36"  # the version of slf4j-api that Kafka depends on

# slf4j-simple writes the broker's log to stderr; without a binding Kafka would log nothing at all.
BROKER: Final = JarSet(
    title=f"Apache Kafka {KAFKA_VERSION}",
    folder=f"kafka-{KAFKA_VERSION}",
    modules=(
        Module("org.apache.kafka", "kafka_2.13", KAFKA_VERSION),
        Module("org.slf4j", "slf4j-simple", _SLF4J_VERSION),
    ),
    lock=read_lock(resources.files("kiwi_gw.demo").joinpath("broker-jars.sha256").read_text()),
    megabytes=43,
)


async def fetch_broker(
    cache_dir: Path | None = None, report: Callable[[str], None] = lambda line: None
) -> list[Path]:
    """The broker's jars, fetched if they are not in the cache yet; see `JarSet.fetch`."""
    return await BROKER.fetch(cache_dir or default_cache(), report)


async def _fetch_all(report: Callable[[str], None]) -> None:
    await fetch_broker(report=report)
    await fetch_connector(report=report)


def main() -> None:
    """`python -m kiwi_gw.demo.jars`: has all jars ready, as the set-up does. Exit code 1 if that fails."""
    try:
        trio.run(_fetch_all, lambda line: print(line, file=sys.stderr, flush=True))
    except* (FetchFailed, JavaNotFound) as failures:
        sys.exit("\n".join(str(error) for error in failures.exceptions))


if __name__ == "__main__":
    main()
