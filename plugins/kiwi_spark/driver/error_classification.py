"""Why a query ended, from the exceptions of Spark: what kind of error it is, and the words for it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from py4j.protocol import Py4JJavaError
from pyspark.errors import AnalysisException, ParseException, PySparkException, StreamingQueryException

from kiwi_spark.protocol.query_spec import ErrorKind

BAD_MARK: Final = "kiwi-gw bad record"
"""Begins the message of the error that ends a query with `on_bad_record: fail`."""

_LONGEST: Final = 2000  # characters of a message
_SERVER_AWAY: Final = re.compile(
    r"StatusCode\.UNAVAILABLE|RETRIES_EXCEEDED|retries .*exceeded|failed to connect to all addresses"
    r"|INVALID_HANDLE\.SESSION|incorrect server side session"
)
"""What the client of Spark Connect says when its server is away, or was and has forgotten its sessions."""
_DETAILS: Final = re.compile(r'details = "(.*)"')
_AT: Final = re.compile(r"^\tat .*$\n?", re.MULTILINE)

_GO_ON: Final = "`fail_on_data_loss: false` of the input goes on without them"
_AFRESH: Final = "remove the source's folder there to begin afresh from `start`"
_SPARKS_WAY: Final = re.compile(
    r"\s*If you don't want your streaming query to fail[^.]*failOnDataLoss[^.]*\."
)
_WHICH_QUERY: Final = re.compile(r"\s*=== Streaming Query ===.*", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Cause:
    """One exception of a chain of causes: its class (in Java with the package) and its message."""

    kind: str
    message: str


class QueryError(Exception):
    """A query cannot go on, for a reason that is known here and said in our words. where: the key of the
    source that it is about, as a path; empty: the query itself."""

    def __init__(self, error_kind: ErrorKind, message: str, where: Sequence[str] = ()) -> None:
        super().__init__(message)
        self.error_kind = error_kind
        self.where = where


# Looked for in every cause, in this order: the first that is found anywhere counts.
_RULES: Final[tuple[tuple[ErrorKind, re.Pattern[str]], ...]] = (
    ("bad_record", re.compile(BAD_MARK)),
    ("query", re.compile(r"kiwigw\.spark\.(TooLarge|NoPlace)|RecordTooLargeException")),
    ("gone", re.compile(r"kiwigw\.spark\.GatewayGone")),
    ("unreachable", re.compile(r"kiwigw\.spark\.StillWritten")),
    ("no_space", re.compile(r"No space left on device|Disk quota exceeded|QuotaExceededException")),
    # Where Spark says what that means, its words come before those of Kafka's client.
    ("data_loss", re.compile(r"KAFKA_DATA_LOSS|[Ss]ome data may have been (lost|missed)")),
    ("data_loss", re.compile(r"OffsetOutOfRange|failOnDataLoss")),
    (
        "checkpoint",
        re.compile(
            r"StateSchemaNotCompatible|STATE_STORE_\w*SCHEMA\w*NOT_COMPATIBLE|STATE_STORE_INVALID"
            r"|sources in the checkpoint offsets and now there are|UnsupportedLogVersion"
            r"|STREAMING_STATEFUL_OPERATOR_NOT_MATCH|ChecksumException"
            r"|checkpoint location.*(incompatible|corrupt)"
            r"|CHECKSUM_VERIFICATION_FAILED|STREAMING_CHECKPOINT_MISSING_METADATA_FILE"
            r"|MISSING_STATE_DIRECTORY|STATE_STORE_CHECKPOINT_LOCATION_NOT_EMPTY"
        ),
    ),
    ("query", re.compile(r"is bigger than spark\.driver\.maxResultSize")),
    (  # Before "user": Spark's Python says so, too, where it is a function of the user that asks for it.
        "query",
        re.compile(
            r"SparkUnsupportedOperationException|java\.lang\.UnsupportedOperationException"
            r"|\[\w*(UNSUPPORTED|NOT_SUPPORT|NOT_IMPLEMENTED)[\w.]*\]"
            r"|\[(STATE_STORE|STATEFUL_PROCESSOR|TRANSFORM_WITH_STATE)_[\w.]*\]"
        ),
    ),
    ("unreachable", re.compile(r"Python worker (failed )?to connect back")),
    (
        "user",
        re.compile(
            r"PythonException|FAILED_EXECUTE_UDF|USER_RAISED_EXCEPTION|SparkArithmeticException"
            r"|SparkNumberFormatException|SparkDateTimeException|SparkRuntimeException|SparkArrayIndexOutOf"
        ),
    ),
    (  # After "user": a function of the user may not be allowed something, either.
        "no_space",
        re.compile(
            r"Permission denied|AccessControlException|AccessDenied|Read-only file system|File too large"
            r"|ParentNotDirectoryException|[Nn]ot a directory|Mkdirs failed to create"
        ),
    ),
    (
        "unreachable",
        re.compile(
            r"org\.apache\.kafka\.common\.errors\.|No resolvable bootstrap urls"
            r"|java\.util\.concurrent\.Timeout"
            r"|Cannot fetch record for offset|Failed to construct kafka consumer"
            r"|Failed to create new KafkaAdminClient"
        ),
    ),
    ("query", re.compile(r"IllegalArgumentException|ParseException|AnalysisException|STREAMING_OUTPUT_MODE")),
)


def classify_causes(causes: Sequence[Cause]) -> tuple[ErrorKind, str]:
    """Return the kind of an error and its words, of a chain of causes (the outermost first, not empty)."""
    for error_kind, pattern in _RULES:
        for cause in reversed(causes):  # the nearest to the root says it in the fewest words
            if pattern.search(cause.kind) or pattern.search(cause.message):
                return error_kind, _words(error_kind, cause, causes[-1])
    return "gone", _words("gone", causes[-1], causes[-1])


def classify_error(error: BaseException) -> tuple[ErrorKind, str]:
    """Return the same of any exception that building or running a query raised."""
    if isinstance(error, QueryError):
        return error.error_kind, str(error)
    if (text := str(error)) and _SERVER_AWAY.search(text) and not isinstance(error, Py4JJavaError):
        return "unreachable", f"the Spark Connect server does not answer: {_last_of(error)}"[:_LONGEST]
    if isinstance(error, AnalysisException | ParseException) and not isinstance(
        error, StreamingQueryException
    ):
        return "query", message_of(error)
    return classify_causes(causes_of(error))


def message_of(error: BaseException) -> str:
    """Return Spark's message without the stack and the half-analysed plan that it appends."""
    java = _java(error)
    if isinstance(error, AnalysisException) and not isinstance(error, ParseException) and java is not None:
        return str(java.getSimpleMessage()).strip()[:_LONGEST]
    said = str(error).split("\nJVM stacktrace:")[0].split("\n\tat ")[0]
    if java is None and isinstance(error, AnalysisException):  # of Connect: the plan comes behind the place
        said = said.split(";\n")[0]
    return said.strip()[:_LONGEST]


def causes_of(error: BaseException) -> list[Cause]:
    """Return the chain of causes, through Python's exceptions and Java's."""
    found: list[Cause] = []
    python: BaseException | None = error
    while python is not None and len(found) < 20:
        java = _java(python)
        if java is None:
            found += _remote_causes(python) or [Cause(type(python).__name__, str(python))]
        while java is not None and len(found) < 20:
            found.append(Cause(str(java.getClass().getName()), str(java.getMessage())))
            java = java.getCause()
        python = python.__cause__
    return found


def remote_causes(message: str, trace: str) -> list[Cause]:
    """Return the chain of causes in the stack trace that a Spark Connect server sends; message: of the
    first."""
    heads = _AT.sub("", trace).split("\nCaused by: ")
    first = Cause(heads[0].split(": ")[0].strip(), message)
    parts = (one.partition(": ") for one in heads[1:])
    return [first, *(Cause(kind.strip(), text.strip()) for kind, _, text in parts)]


def _remote_causes(error: BaseException) -> list[Cause]:
    trace = getattr(error, "_stacktrace", None)  # of Connect's exceptions only
    return remote_causes(str(error).split("\n\nJVM stacktrace:")[0], trace)[:20] if trace else []


def _last_of(error: BaseException) -> str:
    while error.__cause__ is not None:
        error = error.__cause__
    found = _DETAILS.search(str(error))
    return found[1] if found else str(error).strip()


def _java(error: BaseException) -> Any:
    if isinstance(error, Py4JJavaError):
        return error.java_exception
    if isinstance(error, PySparkException):
        return getattr(error, "_origin", None)
    return None


def _words(error_kind: ErrorKind, cause: Cause, last: Cause) -> str:
    """Return what a person needs of it."""
    if error_kind == "bad_record":
        return cause.message[cause.message.find(BAD_MARK) + len("kiwi-gw ") :].split("\n")[0][:_LONGEST]
    if "Traceback (most recent call last)" in cause.message:
        lines = [line for line in cause.message.split("\n\tat ")[0].splitlines() if line.strip()]
        raised = [line for line in lines if line and not line.startswith((" ", "\t"))]
        return (raised[-1] if raised else lines[-1]).strip()[:_LONGEST]
    if cause.kind.startswith("kiwigw.spark."):
        return cause.message[:_LONGEST]
    name = cause.kind.rsplit(".", 1)[-1]
    text = _WHICH_QUERY.sub("", cause.message.split("\n\tat ")[0]).strip()
    if error_kind == "data_loss":
        text = f"{_SPARKS_WAY.sub('', text).strip()} ({_GO_ON})"
    if error_kind == "checkpoint":
        text = f"{text} ({_AFRESH})"
    root = last.message.strip() if last is not cause and error_kind in ("unreachable", "gone") else ""
    return f"{name}: {text}{f' ({root})' if root and root not in text else ''}"[:_LONGEST]
