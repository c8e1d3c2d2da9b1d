"""Functions of Spark that a filter cannot have, and what to say of them."""

from __future__ import annotations

from typing import Final


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


_AGGREGATES: Final = _names(
    """any any_value approx_count_distinct approx_percentile array_agg avg bool_and bool_or collect_list
    collect_set corr count count_if count_min_sketch covar_pop covar_samp every first first_value grouping
    grouping_id histogram_numeric kurtosis last last_value listagg max max_by mean median min min_by mode
    percentile percentile_approx regr_count skewness some std stddev stddev_pop stddev_samp string_agg sum
    try_avg try_sum var_pop var_samp variance"""
)
_WINDOWS: Final = _names(
    """cume_dist dense_rank lag lead nth_value ntile percent_rank rank row_number session_window window
    window_time"""
)
_ROWS: Final = _names(
    "explode explode_outer inline inline_outer posexplode posexplode_outer stack json_tuple"
)
_IMPURE: Final = _names(
    """current_catalog current_database current_date current_schema current_time current_timestamp
    current_timezone current_user curdate input_file_name localtimestamp monotonically_increasing_id now rand
    randn random randstr reflect java_method shuffle session_user spark_partition_id uniform user uuid
    version"""
)


def reason(name: str) -> str:
    """Why there is no function of that name here."""
    if name in _AGGREGATES:
        return f"{name} is an aggregate over many events; that belongs to a Spark source"
    if name in _WINDOWS:
        return f"{name} needs a window over many events; that belongs to a Spark source"
    if name in _ROWS:
        return f"{name} makes many rows of one; that belongs to a Spark source"
    if name in _IMPURE:
        return f"{name} does not depend on the event alone: everyone's result would be another"
    return f"there is no function {name}"
