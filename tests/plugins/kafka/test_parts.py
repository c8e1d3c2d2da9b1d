"""The small parts: pauses, the filter of the client's log lines, and what is used of aiokafka's insides."""

from __future__ import annotations

import inspect
import logging
from io import BytesIO

from aiokafka.client import AIOKafkaClient
from aiokafka.consumer.fetcher import Fetcher

from kiwi_kafka.noise import RepeatFilter, quiet_client
from kiwi_kafka.pause import Pauses
from kiwi_kafka.seam import NO_ID
from kiwi_kafka.wire import TopicsRequest, TopicsRequestV12, TopicsResponseV12


def test_pauses_grow_to_a_limit_with_jitter() -> None:
    pauses = Pauses(1.0, 4.0)
    for longest in (1.0, 2.0, 4.0, 4.0):
        assert longest / 2 <= pauses.next() <= longest
    pauses.reset()
    assert pauses.next() <= 1.0


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
    with quiet_client():
        assert len(logger.filters) == len(before) + 1
    assert logger.filters == before


def test_asking_for_a_topic_never_allows_to_create_it() -> None:
    for low, high in ((0, 13), (0, 11)):
        request = TopicsRequest(["a", "b"]).prepare({3: (low, high)})
        allowed = request.get_item("allow_auto_topic_creation")
        assert allowed is False


def test_metadata_version_12_round_trip() -> None:
    request = TopicsRequest(["a"], rights=True).prepare({3: (0, 13)})
    assert TopicsRequestV12.decode(BytesIO(request.encode())) == request
    topic: tuple[object, ...] = (0, "a", b"\x01" * 16, False, [(0, 0, 5, 1, [5], [5], [], {})], 8, {})
    response = TopicsResponseV12(0, [(5, "host", 9092, None, {})], "cluster", 5, [topic], {})
    decoded = TopicsResponseV12.decode(response.encode())
    assert decoded.to_object()["topics"][0]["topic_id"] == b"\x01" * 16
    assert len(NO_ID) == 16


def test_what_is_used_of_aiokafkas_insides_is_still_there() -> None:
    # client.py replaces one method and sets two attributes that no option reaches.
    assert list(inspect.signature(AIOKafkaClient._metadata_update).parameters) == [
        "self",
        "cluster_metadata",
        "topics",
    ]
    source = inspect.getsource(Fetcher)
    assert "self._fetch_max_wait_ms,\n                self._fetch_min_bytes," in source
    assert "self._md_synchronizer()" in inspect.getsource(AIOKafkaClient)
