"""What Spark needs to read Kafka and Avro beyond pyspark's own jars: in the cache, or by Spark's Ivy."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import resources
from pathlib import Path
from typing import Final

from kiwi_spark.cache import default_cache
from kiwi_spark.jarset import JarSet, read_lock

SPARK_VERSION: Final = "4.0.0"
_KAFKA, _AVRO = "spark-sql-kafka-0-10", "spark-avro"
PACKAGES: Final = tuple(f"org.apache.spark:{name}_2.13:{SPARK_VERSION}" for name in (_KAFKA, _AVRO))
"""The same as Maven coordinates, with what they depend on."""

# Each without what it depends on: most of that, Hadoop for one, is among pyspark's own jars.
CONNECTOR: Final = JarSet(
    title=f"Spark's connector to Kafka {SPARK_VERSION}",
    folder=f"spark-connector-{SPARK_VERSION}",
    jars=read_lock(resources.files("kiwi_spark").joinpath("connector-jars.lock").read_text()),
)


async def fetch_connector(
    cache_dir: Path | None = None, report: Callable[[str], None] = lambda line: None
) -> list[Path]:
    """The connector's jars, fetched if they are not in the cache yet; see `JarSet.fetch`."""
    return await CONNECTOR.fetch(cache_dir or default_cache(), report)


def connector_conf(given: Mapping[str, str] | None = None, cache_dir: Path | None = None) -> dict[str, str]:
    """What a session's configuration needs so that Spark has the connector.

    `spark.jars` where the locked jars are in the cache, which needs no network; else `spark.jars.packages`,
    and Spark's own Ivy fetches them once. What `given`, the user's configuration, says under that key stays,
    before ours. A connector that the user names, in whatever version, is the user's: ours is left out. Reads
    10 MB to compare hashes (some 10 ms): not for the event loop.
    """
    cache = (cache_dir or default_cache()).absolute()
    user = given or {}
    named = ",".join(user.get(key, "") for key in ("spark.jars", "spark.jars.packages"))
    missing = [one for one in (_KAFKA, _AVRO) if one not in named]
    if CONNECTOR.missing(cache):
        key, ours = "spark.jars.packages", [one for one in PACKAGES if any(name in one for name in missing)]
    else:
        key, ours = "spark.jars", [str(one) for one in CONNECTOR.paths(cache) if _part_of(one) in missing]
    theirs = [one.strip() for one in user.get(key, "").split(",") if one.strip()]
    found = ",".join((*theirs, *ours))
    return {key: found} if found else {}


def _part_of(jar: Path) -> str:
    """Which connector one of the cached jars belongs to."""
    return _AVRO if _AVRO in jar.name else _KAFKA
