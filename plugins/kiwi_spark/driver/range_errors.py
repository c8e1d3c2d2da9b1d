"""Why a query over ranges of topics has failed, in words for the client who asked."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from pyspark.errors import PySparkException

from kiwi_spark.driver.error_classification import causes_of, classify_error
from kiwi_spark.protocol.query_spec import ErrorKind
from kiwi_spark.protocol.range_query import RangeQuery

_LONGEST: Final = 2000
"""Characters of a message: Spark may name all members that a value has."""
_CLASS: Final = re.compile(r"^\[([A-Z][A-Z0-9_.]*)\]\s*")
_BEHIND: Final = re.compile(
    r"\s*(SQLSTATE:.*|; ?line \d+,? pos \d+.*|== SQL.*|If necessary set .*|\n.*)", re.DOTALL
)
_TABLE: Final = re.compile(r"(?<![\w`])`?t\d+`?\.(?=[`\w])")
"""What the views of a query are called in its SQL, before the name of a column."""
_TOO_LARGE: Final = re.compile(r"kiwigw\.spark\.TooLarge")
_COLLECTED: Final = re.compile(r"bigger than spark\.driver\.maxResultSize")
_NAMED: Final = {
    "FIELD_NOT_FOUND": "there is no member {fieldName} (there are: {fields})",
    "UNRESOLVED_COLUMN.WITH_SUGGESTION": "there is no column {objectName} (there are: {proposal})",
    "UNRESOLVED_COLUMN.WITHOUT_SUGGESTION": "there is no column {objectName}",
    "AMBIGUOUS_REFERENCE": "{name} may be several columns: say of which table",
    "INVALID_EXTRACT_BASE_FIELD_TYPE": "{base} has no members: it is {other}",
}
"""By Spark's names for its errors, with the names of their parameters."""


def classify_range_error(error: BaseException, query: RangeQuery) -> tuple[ErrorKind, str]:
    """Return the kind of an error and its words. Those of `query` are for the client, the others for the
    log."""
    error_kind, words = _classified(error, query)
    return error_kind, words if len(words) <= _LONGEST else f"{words[: _LONGEST - 3]}..."


def _classified(error: BaseException, query: RangeQuery) -> tuple[ErrorKind, str]:
    causes = causes_of(error)
    if any(_TOO_LARGE.search(one.kind) or _COLLECTED.search(one.message) for one in causes):
        return "query", f"the result has more than {_size(query.result_bytes)}"
    error_kind, message = classify_error(error)
    if error_kind not in ("query", "user"):
        return error_kind, message
    if isinstance(error, PySparkException) and (said := _named(error)):
        return "query", said
    for text in (message, *(one.message for one in reversed(causes))):
        if (found := _CLASS.search(text)) is not None:
            return "query", said_plainly(text[found.end() :])
    return ("query", said_plainly(message)) if isinstance(error, PySparkException) else (error_kind, message)


def said_plainly(text: str) -> str:
    """Take out of a message of Spark what is about Spark, and the names of our views."""
    return _TABLE.sub("", _BEHIND.sub("", _CLASS.sub("", text.strip()))).strip()


def _named(error: PySparkException) -> str:
    words = _NAMED.get(error.getCondition() or "", "")
    given: Mapping[str, str] = error.getMessageParameters() or {}
    try:
        return _TABLE.sub("", words.format_map(given))
    except KeyError:  # another Spark, which calls them otherwise
        return ""


def _size(size: int) -> str:
    mib, odd = divmod(size, 1024 * 1024)
    return f"{size:,} bytes" if odd or not mib else f"{mib:,} MiB"
