"""One query of every API of PySpark that keeps state or hands over pandas and Arrow, as users write them.

Their inputs have the columns k (STRING), n (INT) and at (TIMESTAMP).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pandas as pd
import pyarrow as pa
from pyspark.sql import DataFrame, Row
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.streaming.state import GroupState, GroupStateTimeout
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle

Inputs = dict[str, Any]

_SUM = "k STRING, total BIGINT"


def map_in_pandas(inputs: Inputs) -> DataFrame:
    def doubled(frames: Iterator[pd.DataFrame]) -> Iterator[pd.DataFrame]:
        for frame in frames:
            yield frame.assign(n=frame["n"] * 2)[["k", "n"]]

    found: DataFrame = inputs["events"].mapInPandas(doubled, "k STRING, n INT")
    return found


def map_in_arrow(inputs: Inputs) -> DataFrame:
    def kept(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            yield batch.select(["k", "n"])

    found: DataFrame = inputs["events"].mapInArrow(kept, "k STRING, n INT")
    return found


def pandas_udf(inputs: Inputs) -> DataFrame:
    def plus_one(numbers: Any) -> Any:
        return numbers + 1

    functions: Any = F
    added = functions.pandas_udf(plus_one, "bigint", functions.PandasUDFType.SCALAR)
    found: DataFrame = inputs["events"].select(added("n").alias("n"))
    return found


def apply_in_pandas(inputs: Inputs) -> DataFrame:
    def total(frame: pd.DataFrame) -> pd.DataFrame:
        return pd.DataFrame({"k": [frame["k"].iloc[0]], "total": [int(frame["n"].sum())]})

    found: DataFrame = inputs["events"].groupBy("k").applyInPandas(total, _SUM)
    return found


def apply_in_pandas_with_state(inputs: Inputs) -> DataFrame:
    def total(key: Any, frames: Iterator[pd.DataFrame], state: GroupState) -> Iterator[pd.DataFrame]:
        before = state.get[0] if state.exists else 0
        found = before + sum(int(frame["n"].sum()) for frame in frames)
        state.update((found,))
        yield pd.DataFrame({"k": [key[0]], "total": [found]})

    grouped = inputs["events"].groupBy("k")
    found: DataFrame = grouped.applyInPandasWithState(
        total, _SUM, "total BIGINT", "update", GroupStateTimeout.NoTimeout
    )
    return found


class Total(StatefulProcessor):
    def init(self, handle: StatefulProcessorHandle) -> None:
        self._total = handle.getValueState("total", "total BIGINT")

    def handleInputRows(  # noqa: N802
        self,
        key: Any,
        rows: Iterator[pd.DataFrame],
        timerValues: Any,  # noqa: N803
    ) -> Iterator[pd.DataFrame]:
        before: Any = self._total.get()
        found = (before[0] if before is not None else 0) + sum(int(frame["n"].sum()) for frame in rows)
        self._total.update((found,))
        yield pd.DataFrame({"k": [key[0]], "total": [found]})

    def close(self) -> None:
        """Nothing is held."""


def transform_with_state_in_pandas(inputs: Inputs) -> DataFrame:
    grouped = inputs["events"].groupBy("k")
    found: DataFrame = grouped.transformWithStateInPandas(Total(), _SUM, "Update", "None")
    return found


class TotalOfRows(Total):
    def handleInputRows(self, key: Any, rows: Iterator[Any], timerValues: Any) -> Iterator[Any]:  # noqa: N802, N803
        before: Any = self._total.get()
        found = (before[0] if before is not None else 0) + sum(row["n"] for row in rows)
        self._total.update((found,))
        yield Row(k=key[0], total=found)


def transform_with_state(inputs: Inputs) -> DataFrame:
    grouped = inputs["events"].groupBy("k")
    found: DataFrame = grouped.transformWithState(TotalOfRows(), _SUM, "Update", "None")
    return found


def plain_udf(inputs: Inputs) -> DataFrame:
    added = F.udf(lambda number: number + 1, "bigint")
    found: DataFrame = inputs["events"].select(added("n").alias("n"))
    return found


def drop_duplicates(inputs: Inputs) -> DataFrame:
    found: DataFrame = inputs["events"].dropDuplicates(["k"]).select("k")
    return found


def drop_duplicates_within_watermark(inputs: Inputs) -> DataFrame:
    found: DataFrame = inputs["events"].dropDuplicatesWithinWatermark(["k"]).select("k")
    return found


def joined_streams(inputs: Inputs) -> DataFrame:
    events, others = inputs["events"], inputs["others"]
    found: DataFrame = events.join(others, ["k", "at"]).select("k", events["n"], others["n"].alias("m"))
    return found


def session_windows(inputs: Inputs) -> DataFrame:
    window = F.session_window("at", "10 minutes")
    found: DataFrame = inputs["events"].groupBy(window, "k").agg(F.count("*").alias("c")).select("k", "c")
    return found


def aggregates(inputs: Inputs) -> DataFrame:
    found: DataFrame = inputs["events"].groupBy("k").agg(F.sum("n").alias("total"))
    return found
