"""Functions of Spark that are not here, and why."""

from __future__ import annotations

from typing import Final


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


AGGREGATES: Final = _names(
    """any any_value approx_count_distinct approx_percentile array_agg avg bool_and bool_or collect_list
    collect_set corr count count_if count_min_sketch covar_pop covar_samp every first first_value grouping
    grouping_id histogram_numeric kurtosis last last_value listagg max max_by mean median min min_by mode
    percentile percentile_approx regr_count skewness some std stddev stddev_pop stddev_samp string_agg sum
    try_avg try_sum var_pop var_samp variance"""
)
WINDOWS: Final = _names(
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
_RARE: Final = _names(
    """add_months array_distinct array_except array_intersect array_join array_max array_min array_position
    array_size array_sort array_union arrays_overlap ascii atan base64 bin binary bit_length bround btrim
    cardinality cbrt char chr concat_ws conv crc32 date_format date_from_unix_date date_trunc degrees e
    exp expm1 filter find_in_set flatten float format_number format_string from_json from_unixtime get
    hash hex hypot initcap json_array_length json_object_keys last_day levenshtein ln log log10 log1p log2
    lpad make_date make_timestamp map_keys map_values md5 months_between named_struct nanvl next_day nvl2
    octet_length overlay parse_url printf regexp_count regexp_instr regexp_substr reverse rint rpad
    sequence sha sha1 sha2 signum slice smallint sort_array soundex space split_part struct
    substring_index tan tinyint to_json to_unix_timestamp transform translate trunc unbase64 unhex
    unix_date unix_timestamp xxhash64"""
)
"""What few filters need, or what a page that shows the event does as well. A Spark source has them."""
_INSTEAD: Final = {
    "array_size": "size(x)",
    "btrim": "trim(signs, s)",
    "cardinality": "size(x)",
    "concat_ws": "concat(x, separator, y)",
    "float": "double(x)",
    "from_unixtime": "CAST(timestamp_seconds(n) AS STRING)",
    "get": "array[n]",
    "nvl2": "if(x IS NULL, z, y)",
    "regexp_substr": "regexp_extract(s, pattern, 0)",
    "smallint": "int(x)",
    "split_part": "split(s, pattern)[n]",
    "substring_index": "split(s, pattern)[n]",
    "tinyint": "int(x)",
    "to_unix_timestamp": "unix_seconds(x)",
    "unix_timestamp": "unix_seconds(x)",
}


def reason(name: str) -> str:
    """Say why there is no function of that name here."""
    if name in AGGREGATES:
        return f"{name} is an aggregate over many events; that belongs to a Spark source"
    if name in WINDOWS:
        return f"{name} needs a window over many events; that belongs to a Spark source"
    if name in _ROWS:
        return f"{name} makes many rows of one; that belongs to a Spark source"
    if name in _IMPURE:
        return f"{name} does not depend on the event alone: everyone's result would be another"
    if name in _RARE:
        hint = f"; {_INSTEAD[name]} is here" if name in _INSTEAD else ""
        return f"{name} is not among the functions of a query; it belongs to a Spark source{hint}"
    return f"there is no function {name}"
