"""The filter of the client's log lines."""

from __future__ import annotations

import logging

from kiwi_kafka.client.log_filter import RepeatFilter, limit_client_logs


def record(message: str, *args: object) -> logging.LogRecord:
    return logging.LogRecord("aiokafka", logging.ERROR, "file", 1, message, args, None)


def test_repeated_lines_are_left_out_and_counted() -> None:
    now = 0.0
    repeats = RepeatFilter(interval=10, clock=lambda: now)
    assert repeats.filter(record("Unable to connect to %s", "a"))
    assert not repeats.filter(record("Unable to connect to %s", "b"))
    assert repeats.filter(record("something else"))
    assert not repeats.filter(record("Unable to connect to %s", "c"))
    now = 11
    late = record("Unable to connect to %s", "d")
    assert repeats.filter(late)
    assert late.getMessage() == "Unable to connect to d (2 more like this since)"


def test_the_filter_goes_with_the_service() -> None:
    logger = logging.getLogger("aiokafka.conn")
    before = list(logger.filters)
    with limit_client_logs():
        assert len(logger.filters) == len(before) + 1
    assert logger.filters == before
