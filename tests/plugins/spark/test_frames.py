"""What gateway and driver say to each other, byte by byte."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kiwi_spark.protocol.messages import (
    MAX_MESSAGE,
    BatchProgress,
    BatchRows,
    BatchTaken,
    BeginBatch,
    EndBatch,
    Hello,
    Message,
    MessageReader,
    QueryEnded,
    QueryIdle,
    QueryStarted,
    StartQuery,
    WireError,
    frame_of,
)
from kiwi_spark.protocol.query_spec import QuerySpec, StreamInput

STREAM = StreamInput(source="in", format="json", start=7, kafka={"subscribe": "in"})
MESSAGES: list[Message] = [
    Hello(version=1, token="t", role="control"),
    StartQuery(run=1, query=QuerySpec(source="s", streams={"a": STREAM}, sql="SELECT 1")),
    QueryStarted(run=1, query="id", next_batch=3, notes=["a note"]),
    QueryIdle(run=1),
    BatchProgress(run=1, batch=3, input_rows=2, seconds=0.5, phases={"addBatch": 0.25}),
    QueryEnded(run=1, error_kind="user", message="boom"),
    BeginBatch(query="id", batch=3, timestamp=5),
    BatchRows(rows=b"\x00\xff"),
    EndBatch(rows=2),
    BatchTaken(batch=3),
]


@given(st.integers(1, 50))
def test_messages_come_out_as_they_went_in_however_they_are_cut(step: int) -> None:
    data = b"".join(map(frame_of, MESSAGES))
    reader = MessageReader()
    found: list[Message] = []
    for at in range(0, len(data), step):
        found += reader.feed(data[at : at + step])
    assert found == MESSAGES


@pytest.mark.parametrize(
    "data",
    [
        b"\x00\x00\x00\x00\x01",
        (MAX_MESSAGE + 1).to_bytes(4, "big") + b"\x01",
        b"\x00\x00\x00\x01\x63",
        b"\x00\x00\x00\x01\x80",
        b"\x00\x00\x00\x03\x02\xff\xff",
        frame_of(EndBatch(rows=5)).replace(b"EndBatch", b"ForBatch"),
        frame_of(Hello(version=1, token="t", role="r")).replace(b"version", b"rolling"),
    ],
)
def test_what_is_no_message_is_an_error(data: bytes) -> None:
    with pytest.raises(WireError):
        MessageReader().feed(data)


def test_a_frame_that_is_too_large_is_not_sent() -> None:
    with pytest.raises(WireError):
        frame_of(BatchRows(rows=bytes(MAX_MESSAGE)))
