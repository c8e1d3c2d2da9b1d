"""What Spark needs to read Kafka and Avro beyond pyspark's own jars: locked by hash, kept in the cache."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import resources
from pathlib import Path, PurePosixPath
from typing import Final

from kiwi_spark.java.jar_set import JarSet, default_cache, read_lock

_KAFKA, _AVRO = "spark-sql-kafka-0-10", "spark-avro"
_JARS = read_lock(resources.files("kiwi_spark.java").joinpath("connector-jars.lock").read_text())

# Their paths end in `.../4.2.0/spark-avro_2.13-4.2.0.jar`. pyproject.toml requires the same version of pyspark.
(SPARK_VERSION,) = {PurePosixPath(jar.path).parent.name for jar in _JARS if jar.name.startswith("spark-")}

# Each without what it depends on: most of that, Hadoop for one, is among pyspark's own jars.
CONNECTOR: Final = JarSet(
    title=f"Spark's connector to Kafka {SPARK_VERSION}",
    folder=f"spark-connector-{SPARK_VERSION}",
    jars=_JARS,
)


async def fetch_connector(
    cache_dir: Path | None = None, report: Callable[[str], None] = lambda line: None
) -> list[Path]:
    """Return the connector's jars, fetched if they are not in the cache yet; see `JarSet.fetch`."""
    return await CONNECTOR.fetch(cache_dir or default_cache(), report)


def connector_conf(given: Mapping[str, str] | None = None, cache_dir: Path | None = None) -> dict[str, str]:
    """Return what a session's configuration needs so that Spark has the connector: `spark.jars`.

    What `given`, the user's configuration, says there stays, before ours. A connector that the user names,
    there or in `spark.jars.packages`, in whatever version, is the user's: ours is left out. Empty: the user
    has named all. The jars are those of `fetch_connector`.
    """
    user = given or {}
    named = ",".join(user.get(key, "") for key in ("spark.jars", "spark.jars.packages"))
    missing = [one for one in (_KAFKA, _AVRO) if one not in named]
    cache = (cache_dir or default_cache()).absolute()
    ours = [str(jar) for jar in CONNECTOR.paths(cache) if _part_of(jar) in missing]
    theirs = [one.strip() for one in user.get("spark.jars", "").split(",") if one.strip()]
    return {"spark.jars": ",".join((*theirs, *ours))} if ours else {}


def _part_of(jar: Path) -> str:
    """Return which connector one of the jars belongs to."""
    return _AVRO if _AVRO in jar.name else _KAFKA
