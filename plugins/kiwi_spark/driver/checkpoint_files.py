"""The files that are beside checkpoints, wherever Spark keeps those."""

from __future__ import annotations

from typing import Any, Final, Protocol
from urllib.parse import unquote

import msgspec
from py4j.protocol import Py4JJavaError
from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession, is_remote

from kiwi_spark.driver.error_classification import QueryError

_NONE: Final = "PATH_NOT_FOUND"


class CheckpointFiles(Protocol):
    """The few things done with files. All raise what Spark raises."""

    def read(self, path: str) -> str | None:
        """Read the text of a file, None if there is none."""

    def write(self, path: str, text: str) -> None:
        """Replace a file as a whole."""

    def names(self, folder: str) -> list[str]:
        """List what is in a folder, nothing if there is none."""

    def remove(self, folder: str) -> None:
        """Remove a folder with all that is in it, if it is there and this kind of files can do so."""


class HadoopFiles:
    """`CheckpointFiles` by Hadoop's FileSystem: `/a/b`, `hdfs://...`, `s3a://...`."""

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
            raise QueryError(
                "checkpoint",
                f"{path} was written over Spark Connect: use another checkpoint_dir with `master`",
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


class _Written(msgspec.Struct):
    number: int
    text: str


class SparkFiles:
    """`CheckpointFiles` by DataFrames, where a Spark Connect server has them: there is no JVM to ask.

    Spark writes folders, and replaces one by deleting it first. So what is written here is never replaced: a
    file is a folder to which every `write` adds one file of one line, and the newest of them counts.
    """

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark

    def read(self, path: str) -> str | None:
        newest = max(self._all(path), key=lambda one: one.number, default=None)
        return newest.text if newest is not None else None

    def write(self, path: str, text: str) -> None:
        number = max((one.number for one in self._all(path)), default=0) + 1
        line = msgspec.json.encode(_Written(number, text)).decode()
        frame = self._spark.createDataFrame([(line,)], "value STRING")
        frame.coalesce(1).write.mode("append").text(path)

    def names(self, folder: str) -> list[str]:
        files = self._spark.read.format("binaryFile").load(folder).select("path")
        return [unquote(str(row[0])).rsplit("/", 1)[-1] for row in self._rows(files)]

    def remove(self, folder: str) -> None:
        """Leave it: DataFrames remove nothing."""

    def _all(self, path: str) -> list[_Written]:
        lines = self._rows(self._spark.read.text(path))
        try:
            return [msgspec.json.decode(row[0], type=_Written) for row in lines]
        except msgspec.MsgspecError as error:
            raise QueryError(
                "checkpoint",
                f"{path} was not written over Spark Connect: use another checkpoint_dir with `remote`",
            ) from error

    @staticmethod
    def _rows(frame: object) -> list[tuple[str]]:
        try:
            return list(frame.collect())  # type: ignore[attr-defined]
        except AnalysisException as error:
            if _NONE in str(error):
                return []
            raise


def files_of(spark: SparkSession) -> CheckpointFiles:
    """Return the files that a session reaches."""
    return SparkFiles(spark) if is_remote() else HadoopFiles(spark)
