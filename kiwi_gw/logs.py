"""Structured logs: JSON lines where a program reads them, coloured text where a person does.

`configure` is called once at start. Anything may log before and after through `get_logger`, and lines that
libraries log by the standard library take the same way. The fields of a line are `ts`, `level`, `logger`,
`event`, then what the caller gives (`conn_id`, `source`, `dialect`, `remote`, `err_id`, ...).

A log that cannot be written (its disk is full) stops no work: lines are left out and counted, and
the first that can be written again is preceded by one that says how many.
"""

from __future__ import annotations

import logging
import os
import re
import sys
import time
import traceback
from collections import OrderedDict
from collections.abc import Callable, MutableMapping
from typing import Any, Final, TextIO

import structlog
from structlog.typing import EventDict, ExcInfo, Processor, WrappedLogger

from kiwi_gw.terminal import escape, wants_colour

LEVELS: Final = ("debug", "info", "warning", "error")
FORMATS: Final = ("auto", "json", "pretty")

_ORDER = ("ts", "level", "logger", "event")

# Nothing logs credentials on purpose; this is for a URL or a header inside the message of another.
_SECRETS = re.compile(
    r"(?i)(\bbearer\s+|[?&](?:access_token|token|ticket|jwt)=)[^\s&\"']+"
    r"|\beyJ[\w-]{8,}\.[\w-]{4,}\.[\w-]*"
)


def get_logger(name: str, **fields: object) -> structlog.stdlib.BoundLogger:
    """Return a logger that adds `fields` to every line. Usable at import time, before `configure`."""
    logger: structlog.stdlib.BoundLogger = structlog.stdlib.get_logger(name, **fields)
    return logger


def configure(level: str = "info", form: str = "auto", stream: TextIO | None = None) -> None:
    """Send every log line of this process to `stream` (stderr), replacing an earlier configuration.

    level: one of LEVELS. form: `json`, `pretty`, or `auto`: pretty on a terminal. ValueError for others.
    """
    out = sys.stderr if stream is None else stream
    if form not in FORMATS:
        raise ValueError(f"{form!r} is no log format; there are {', '.join(FORMATS)}")
    pretty = form == "pretty" or (form == "auto" and out.isatty())
    first: list[Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.stdlib.add_logger_name,
        structlog.processors.TimeStamper(fmt="iso", utc=True, key="ts"),
    ]
    structlog.configure(
        processors=[
            structlog.stdlib.filter_by_level,
            *first,
            structlog.stdlib.PositionalArgumentsFormatter(),
            structlog.stdlib.ProcessorFormatter.wrap_for_formatter,
        ],
        wrapper_class=structlog.stdlib.BoundLogger,
        logger_factory=structlog.stdlib.LoggerFactory(),
        cache_logger_on_first_use=False,
    )
    handler = LogWriter(out)
    handler.addFilter(RepeatLimit())
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=first,
            processors=[
                _note_suppressed,
                structlog.stdlib.ProcessorFormatter.remove_processors_meta,
                *_rendering(pretty, colours=pretty and wants_colour(out)),
            ],
        )
    )
    root = logging.getLogger()
    root.handlers[:] = [handler]
    logging.captureWarnings(capture=True)
    set_level(level)


def lost() -> int:
    """Return how many lines this process could not write so far."""
    return sum(one.lost for one in logging.getLogger().handlers if isinstance(one, LogWriter))


def warnings() -> tuple[str, ...]:
    """Return what an operator should repair, in a sentence, while lines cannot be written."""
    return tuple(
        f"the log cannot be written ({one.problem}): lines are lost"
        for one in logging.getLogger().handlers
        if isinstance(one, LogWriter) and one.problem
    )


def silence() -> None:
    """Log nothing, until `configure`: for a command that reports itself what it finds."""
    structlog.configure(processors=[_drop])
    # Without a handler of its own the standard library would complain on standard error.
    logging.getLogger().addHandler(logging.NullHandler())


def _drop(_: WrappedLogger, __: str, line: EventDict) -> EventDict:
    raise structlog.DropEvent


def set_level(level: str) -> None:
    """Change the level of everything at once, as a reload does. ValueError for an unknown one."""
    if level not in LEVELS:
        raise ValueError(f"{level!r} is no log level; there are {', '.join(LEVELS)}")
    logging.getLogger().setLevel(level.upper())
    # At debug level these describe every frame; what they say then drowns everything else.
    for noisy in ("trio_websocket", "trio-websocket", "asyncio"):
        logging.getLogger(noisy).setLevel(logging.WARNING if level != "error" else logging.ERROR)


def _rendering(pretty: bool, *, colours: bool) -> list[Processor]:
    if pretty:
        return [
            _redact,
            _escape,
            structlog.dev.ConsoleRenderer(
                colors=colours,
                sort_keys=False,
                timestamp_key="ts",
                exception_formatter=_traceback,
            ),
        ]
    return [
        structlog.processors.format_exc_info,
        _redact,
        _in_order,
        structlog.processors.JSONRenderer(default=repr, ensure_ascii=False),
    ]


def _traceback(out: TextIO, exc_info: ExcInfo) -> None:
    # Not structlog's own one: that shows local variables where `rich` is installed, and with them secrets.
    text = redact("".join(traceback.format_exception(*exc_info)))
    out.write("\n" + "\n".join(escape(line) for line in text.rstrip("\n").split("\n")))


def _in_order(_: WrappedLogger, __: str, line: EventDict) -> EventDict:
    return {key: line.pop(key) for key in _ORDER if key in line} | dict(line)


def _redact(_: WrappedLogger, __: str, line: EventDict) -> EventDict:
    for key, value in line.items():
        if isinstance(value, str):
            line[key] = redact(value)
    return line


def redact(text: str) -> str:
    """Return the text without what looks like a credential."""
    return _SECRETS.sub(lambda match: f"{match[1] or ''}***", text)


def _escape(_: WrappedLogger, __: str, line: EventDict) -> EventDict:
    for key, value in line.items():
        if isinstance(value, str) and key not in ("exception", "stack"):
            line[key] = escape(value)
    return line


def _note_suppressed(_: WrappedLogger, __: str, line: EventDict) -> EventDict:
    record = line.get("_record")
    if suppressed := getattr(record, "suppressed_before", 0):
        line["suppressed"] = suppressed
    return line


class LogWriter(logging.Handler):
    """Write lines to a stream, past its buffer. The buffer would keep some of the lines that cannot be
    written and let them out later: then no count of the missing could be right.

    lost: lines that could not be written. problem: why the last one could not be; empty if it was.
    """

    def __init__(self, stream: TextIO) -> None:
        super().__init__()
        self.lost = 0
        self.problem = ""
        self._stream = stream
        self._untold = 0
        self._rest = b""  # of a line that was cut off
        try:
            self._descriptor = stream.fileno()
        except OSError:  # a stream in memory
            self._descriptor = -1

    def emit(self, record: logging.LogRecord) -> None:
        try:
            line = self.format(record)
        except Exception:  # noqa: BLE001  a line that cannot be made is shown as logging shows it
            self.handleError(record)
            return
        try:
            if self._untold:
                self._write(self.format(_lost_record(self._untold, self.problem)))
                self._untold = 0
            self._write(line)
        except OSError as error:
            self.problem = error.strerror or type(error).__name__
            self.lost += 1
            self._untold += 1
        else:
            self.problem = ""

    def _write(self, line: str) -> None:
        if self._descriptor < 0:
            self._stream.write(f"{line}\n")
            self._stream.flush()
            return
        while self._rest:
            self._put(self._rest)
        self._put(f"{line}\n".encode(errors="backslashreplace"))

    def _put(self, data: bytes) -> None:
        """Write, and keep what is not taken. Raise OSError where nothing is taken."""
        taken = 0
        try:
            while taken < len(data):
                taken += os.write(self._descriptor, data[taken:])
        except OSError:
            if not taken:
                raise
        self._rest = data[taken:]


def _lost_record(count: int, problem: str) -> logging.LogRecord:
    words = f"{count} log lines could not be written: {problem}"
    return logging.LogRecord(__name__, logging.ERROR, __file__, 0, words, None, None)


class RepeatLimit(logging.Filter):
    """Let a repeated complaint through `burst` times per `interval` seconds; the next one that passes says in
    `suppressed` how many did not.

    Warnings and worse are limited, and all lines of libraries. A complaint is repeated if it has the same
    logger, source and problem, and the same message before its arguments are put in. Our own lines below a
    warning (one per connection that ended, for instance) all pass.
    """

    def __init__(
        self,
        burst: int = 5,
        interval: float = 10.0,
        keys: int = 1024,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__()
        self._burst = burst
        self._interval = interval
        self._keys = keys
        self._now = now
        # key -> [when its interval began, lines in it, lines suppressed since one passed]
        self._recent: OrderedDict[tuple[str, ...], list[float]] = OrderedDict()

    def filter(self, record: logging.LogRecord) -> bool:
        own = isinstance(record.msg, MutableMapping)
        if own and record.levelno < logging.WARNING:
            return True
        now = self._now()
        entry = self._entry(_identity(record), now)
        if now - entry[0] >= self._interval:
            entry[0], entry[1] = now, 0
        entry[1] += 1
        if entry[1] > self._burst:
            entry[2] += 1
            return False
        record.suppressed_before = int(entry[2])
        entry[2] = 0
        return True

    def _entry(self, key: tuple[str, ...], now: float) -> list[float]:
        entry = self._recent.pop(key, None)
        if entry is None:
            entry = [now, 0, 0]
            if len(self._recent) >= self._keys:
                self._recent.popitem(last=False)
        self._recent[key] = entry
        return entry


def _identity(record: logging.LogRecord) -> tuple[str, ...]:
    message: Any = record.msg
    if isinstance(message, MutableMapping):
        event, source, problem = (str(message.get(key, "")) for key in ("event", "source", "problem"))
        return record.name, event, source, str(hash(problem))  # a hash: problems are long
    return record.name, str(message)[:200]
