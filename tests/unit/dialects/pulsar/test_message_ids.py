"""Ids of messages: what Pulsar's own clients read and write."""

from __future__ import annotations

import base64

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kiwi_gw.dialects.pulsar.message_ids import MessageId, read_message_id


def test_it_is_protobuf_in_base64() -> None:
    # Fields 1, 2 and 3 of MessageIdData, as varints.
    assert base64.b64decode(str(MessageId(150, 1, 3))) == b"\x08\x96\x01\x10\x01\x18\x03"
    assert read_message_id("CLy14rPFxgQQKRgC").offset == 41
    assert MessageId(77, 41, 0).in_words == "77:41:0"


numbers = st.integers(0, 2**63 - 1)


@given(st.integers(0, 2**48 - 1), numbers, st.integers(0, 2**31 - 1), st.booleans(), st.booleans())
def test_it_is_read_in_every_form_of_base64(
    life: int, offset: int, partition: int, padded: bool, urls: bool
) -> None:
    written = MessageId(life, offset, partition)
    text = str(written)
    if urls:
        text = text.replace("+", "-").replace("/", "_")
    assert read_message_id(text if padded else text.rstrip("=")) == written
    assert read_message_id(str(written).replace("+", " ")) == written, "as queries are decoded"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "x",
        "AAAA",
        "CLy14rPFxgQ",
        "CLy14rPFxgQQKRgCCAE=",
        "é" * 4,
        "A" * 65,
        "CP///////////////wEQABgA",
        "CA",
    ],
)
def test_what_is_none(text: str) -> None:
    with pytest.raises(ValueError, match="this is no id of a message"):
        read_message_id(text)


@given(st.text(max_size=64))
def test_any_text_is_one_or_is_refused(text: str) -> None:
    try:
        found = read_message_id(text)
    except ValueError as error:
        assert str(error) == "this is no id of a message"  # noqa: PT017
    else:
        assert read_message_id(str(found)) == found
