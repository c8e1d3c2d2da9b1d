"""Files where a Spark Connect server has them, read and written by Spark itself: there is no JVM to ask."""

from __future__ import annotations

from typing import Final
from urllib.parse import unquote

import msgspec
from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession

from kiwi_spark.driver.checkpoints import CheckpointRefused

_NONE: Final = "PATH_NOT_FOUND"


class _Written(msgspec.Struct):
    number: int
    text: str


class SparkFiles:
    """`CheckpointFiles` (see checkpoints) by DataFrames.

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
            raise CheckpointRefused(
                f"{path} was not written over Spark Connect: use another checkpoint_dir with `remote`"
            ) from error

    @staticmethod
    def _rows(frame: object) -> list[tuple[str]]:
        try:
            return list(frame.collect())  # type: ignore[attr-defined]
        except AnalysisException as error:
            if _NONE in str(error):
                return []
            raise
