"""The dialect itself: its door, its options, and names of sources that make odd topics."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kiwi_gw.dialect_api import WebSocketRoute
from kiwi_gw.dialects.zetta import ZettaDialect
from kiwi_gw.dialects.zetta.dialect import filters_multiple
from kiwi_gw.dialects.zetta.settings import ZettaSource
from kiwi_gw.dialects.zetta.topic_streams import TopicStream
from kiwi_gw.model import Decode, EventSchema, SourceInfo


@pytest.mark.parametrize(
    ("query", "on"),
    [
        ("", False),
        ("filterMultiple=true", True),
        ("filterMultiple=1", True),
        ("a=b&filterMultiple=true&c", True),
        ("filterMultiple=false", False),
        ("filterMultiple=0", False),
        ("filterMultiple=", False),
        ("filterMultiple", False),
        ("filtermultiple=true", False),
        ("filterMultiple=true&filterMultiple=0", False),
        ("filterMultiple=%74rue", True),
        ("%ff=%ff&&&==", False),
    ],
)
def test_filter_multiple(query: str, on: bool) -> None:
    assert filters_multiple(query) is on


def test_its_door() -> None:
    dialect = ZettaDialect()
    assert dialect.routes == (WebSocketRoute("/events"),)
    assert list(dialect.documents) == ["application/vnd.siren+json"]


@pytest.mark.parametrize(
    ("source", "topic"),
    [
        ("flights", "hub/kafka/flights/events"),
        ("a/b", "hub/kafka/a/b/events"),
        ("/a//b/", "hub/kafka/a/b/events"),
        ("{key}", "hub/kafka/key/events"),
        ("/", "hub/kafka/events"),
    ],
)
def test_the_topic_of_a_source_that_names_none(source: str, topic: str) -> None:
    assert TopicStream(SourceInfo(source, "kafka", EventSchema(())), "hub", lambda: 0).naming.static == topic


def test_all_clients_have_one_stream_of_a_source_until_it_is_another() -> None:
    dialect = ZettaDialect()
    info = SourceInfo("a", "kafka", EventSchema(()))
    stream = dialect.stream(info)
    assert dialect.stream(replace(info, members="a INT")) is dialect.stream(info) is stream
    another = [
        replace(info, type="counter"),
        replace(info, decode=Decode("string")),
        replace(info, blocks={"zetta": ZettaSource(topic="hub/a/b/c")}),
    ]
    for other in another:
        assert dialect.stream(other) is not dialect.stream(info)
