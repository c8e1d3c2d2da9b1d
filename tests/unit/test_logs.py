import io
import json
import logging
import os
import resource
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TextIO

import pytest

from kiwi_gw import logs


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def lines(stream: io.StringIO) -> list[dict[str, object]]:
    return [json.loads(line) for line in stream.getvalue().splitlines()]


def test_json_lines_where_a_program_reads() -> None:
    out = io.StringIO()
    logs.configure("info", "auto", out)
    logs.get_logger("kiwi_gw.edge", dialect="kiwi").info("connection ended", conn_id=7, code=1000)
    (line,) = lines(out)
    assert list(line) == ["ts", "level", "logger", "event", "dialect", "conn_id", "code"]
    assert str(line.pop("ts")).endswith("Z")
    assert line == {
        "level": "info",
        "logger": "kiwi_gw.edge",
        "event": "connection ended",
        "dialect": "kiwi",
        "conn_id": 7,
        "code": 1000,
    }


def test_text_on_a_terminal_with_nothing_that_steers_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    out = Terminal()
    logs.configure("info", "auto", out)
    log = logs.get_logger("kiwi_gw.edge")
    log.info("refused", remote="evil\x1b]0;pwned\x07")
    try:
        int("bad \u202evalue")
    except ValueError:
        log.exception("broke")
    text = out.getvalue()
    assert "\x1b" not in text
    assert "remote=evil\\x1b]0;pwned\\x07" in text
    assert "ValueError: invalid literal for int() with base 10: 'bad \\u202evalue'" in text


def test_colour_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    out = Terminal()
    logs.configure("info", "auto", out)
    logs.get_logger("x").info("hello")
    assert "\x1b[" in out.getvalue()


def test_libraries_take_the_same_way() -> None:
    out = io.StringIO()
    logs.configure("info", "json", out)
    logging.getLogger("aiokafka.client").warning("cannot reach %s", "broker-1")
    (line,) = lines(out)
    assert (line["logger"], line["event"]) == ("aiokafka.client", "cannot reach broker-1")


def test_levels_change_at_run_time() -> None:
    out = io.StringIO()
    logs.configure("warning", "json", out)
    log = logs.get_logger("kiwi_gw.x")
    log.info("no")
    logs.set_level("debug")
    log.debug("yes")
    logging.getLogger("trio-websocket").debug("never that much")
    assert [line["event"] for line in lines(out)] == ["yes"]


@pytest.mark.parametrize(("level", "form"), [("loud", "json"), ("info", "xml")])
def test_an_unknown_level_or_format(level: str, form: str) -> None:
    with pytest.raises(ValueError, match="there are"):
        logs.configure(level, form, io.StringIO())


def test_an_exception_is_one_line_with_its_traceback() -> None:
    out = io.StringIO()
    logs.configure("info", "json", out)
    try:
        int("x")
    except ValueError:
        logs.get_logger("x").exception("hook failed", hook="intercept")
    (line,) = lines(out)
    assert "ValueError: invalid literal" in str(line["exception"])
    assert line["hook"] == "intercept"


def test_what_cannot_be_json_is_shown_all_the_same() -> None:
    out = io.StringIO()
    logs.configure("info", "json", out)
    logs.get_logger("x").info("odd", what=object, raw=b"\xff")
    (line,) = lines(out)
    assert line["raw"] == "b'\\xff'"


@pytest.mark.parametrize(
    "text",
    [
        "GET /kiwi?token=s3cr3t-abc&x=1",
        "/?a=1&access_token=s3cr3t-abc",
        "Authorization: Bearer s3cr3t-abc",
        "got eyJhbGciOiJIUzI1NiJ9.s3cr3t-abc.c2lnbmF0dXJl",
    ],
)
def test_credentials_are_taken_out(text: str) -> None:
    out = io.StringIO()
    logs.configure("info", "json", out)
    logs.get_logger("x").info(text, detail=text)
    assert "s3cr3t" not in out.getvalue()
    assert "***" in out.getvalue()
    assert "x=1" in logs.redact("?token=abc&x=1")


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def record(
    logger: str = "aiokafka", msg: object = "cannot reach %s", level: int = logging.ERROR
) -> logging.LogRecord:
    return logging.LogRecord(logger, level, __file__, 1, msg, ("x",), None)


def test_repeats_are_counted_instead() -> None:
    clock = Clock()
    limit = logs.RepeatLimit(burst=3, interval=10, now=clock)
    assert [limit.filter(record()) for _ in range(60)] == [True] * 3 + [False] * 57
    assert limit.filter(record(msg="something else"))
    assert limit.filter(record(logger="other"))
    clock.now = 10
    late = record()
    assert limit.filter(late)
    assert late.suppressed_before == 57  # type: ignore[attr-defined]
    again = record()
    assert limit.filter(again)
    assert again.suppressed_before == 0  # type: ignore[attr-defined]


def test_our_own_ordinary_lines_are_never_counted_instead() -> None:
    limit = logs.RepeatLimit(burst=1)
    ended = {"event": "connection ended"}
    assert all(limit.filter(record("kiwi_gw.edge", dict(ended), logging.INFO)) for _ in range(1000))
    failed = [
        limit.filter(record("kiwi_gw.edge", {"event": "source failed", "source": str(i % 2)}, logging.ERROR))
        for i in range(6)
    ]
    assert failed == [True, True, False, False, False, False], "each source has its own count"


def test_each_problem_has_its_own_count() -> None:
    limit = logs.RepeatLimit(burst=5)

    def refused(number: int) -> bool:
        line = {"event": "configuration refused; the old one stays", "problem": f"kiwi.yml:{number}: wrong"}
        return limit.filter(record("kiwi_gw.runtime.reload", line, logging.ERROR))

    assert all(refused(number) for number in range(12)), "all mistakes of one reload are told"
    assert [refused(3) for _ in range(6)] == [True] * 4 + [False] * 2, "repeats of one are not"


def test_strangers_cannot_fill_the_memory_of_the_limit() -> None:
    limit = logs.RepeatLimit(keys=100)
    for number in range(10_000):
        limit.filter(record(msg=f"message {number}"))
    assert len(limit._recent) == 100


def test_the_next_line_says_how_many_are_missing() -> None:
    out = io.StringIO()
    logs.configure("info", "json", out)
    clock = Clock()
    (handler,) = logging.getLogger().handlers
    handler.filters[:] = [logs.RepeatLimit(burst=1, interval=1, now=clock)]
    log = logs.get_logger("x")
    for _ in range(5):
        log.warning("again")
    clock.now = 2
    log.warning("again")
    assert [line.get("suppressed") for line in lines(out)] == [None, 4]


@pytest.fixture
def limited(tmp_path: Path) -> Iterator[tuple[TextIO, Callable[[int | None], None]]]:
    """A log file, and how to limit its size; None: not any more."""
    unlimited = resource.getrlimit(resource.RLIMIT_FSIZE)

    def limit(size: int | None) -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, unlimited if size is None else (size, unlimited[1]))

    with (tmp_path / "log").open("a") as out:
        yield out, limit
        limit(None)


def test_lines_that_cannot_be_written_are_counted_and_told_of(
    limited: tuple[TextIO, Callable[[int | None], None]],
) -> None:
    out, limit = limited
    logs.configure("info", "json", out)
    log = logs.get_logger("kiwi_gw.edge")
    log.info("before")
    assert logs.warnings() == ()
    # So much that the next line is cut in the middle: it is finished when there is room again.
    limit(os.stat(out.name).st_size + 20)
    log.info("cut off")
    for number in range(3):
        log.info("lost", number=number)
    assert logs.lost() == 3
    assert logs.warnings() == ("the log cannot be written (File too large): lines are lost",)
    limit(None)
    log.info("after")
    assert logs.warnings() == ()
    log.info("and on")
    found = [json.loads(line)["event"] for line in Path(out.name).read_text().splitlines()]
    told = "3 log lines could not be written: File too large"
    assert found == ["before", "cut off", told, "after", "and on"]


def test_a_log_that_never_can_be_written() -> None:
    with open("/dev/full", "w") as out:
        logs.configure("info", "json", out)
        for _ in range(4):
            logs.get_logger("kiwi_gw.edge").info("lost")
    assert logs.lost() == 4
    assert logs.warnings() == ("the log cannot be written (No space left on device): lines are lost",)
