"""Files of any Hadoop file system, through the JVM of a session."""

from __future__ import annotations

from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from kiwi_spark.driver.checkpoints import CheckpointRefused


class HadoopFiles:
    """`CheckpointFiles` (see checkpoints) by Hadoop's FileSystem: `/a/b`, `hdfs://...`, `s3a://...`."""

    def __init__(self, spark: SparkSession) -> None:
        self._jvm: Any = spark._jvm
        self._conf: Any = spark._jsparkSession.sessionState().newHadoopConf()

    def _at(self, path: str) -> tuple[Any, Any]:
        there = self._jvm.org.apache.hadoop.fs.Path(path)
        return there.getFileSystem(self._conf), there

    def read(self, path: str) -> str | None:
        files, there = self._at(path)
        if not files.exists(there):
            return None
        if files.getFileStatus(there).isDirectory():
            raise CheckpointRefused(
                f"{path} was written over Spark Connect: use another checkpoint_dir with `master`"
            )
        stream = files.open(there)
        try:
            return str(self._jvm.org.apache.commons.io.IOUtils.toString(stream, "UTF-8"))
        finally:
            stream.close()

    def write(self, path: str, text: str) -> None:
        """Write beside it first, then rename, so that a reader never finds a half."""
        files, there = self._at(path)
        _, beside = self._at(f"{path}.new")
        stream = files.create(beside, True)
        try:
            stream.write(bytearray(text.encode()))
        finally:
            stream.close()
        if not files.rename(beside, there):  # some file systems replace, others refuse
            files.delete(there, False)
            if not files.rename(beside, there):
                raise OSError(f"{path} cannot be replaced")

    def remove(self, folder: str) -> None:
        files, there = self._at(folder)
        files.delete(there, True)

    def names(self, folder: str) -> list[str]:
        files, there = self._at(folder)
        try:
            return [str(one.getPath().getName()) for one in files.listStatus(there)]
        except Py4JJavaError as error:
            if error.java_exception.getClass().getSimpleName() == "FileNotFoundException":
                return []
            raise
