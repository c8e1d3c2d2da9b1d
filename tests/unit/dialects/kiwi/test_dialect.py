from __future__ import annotations

import json

import pytest

from kiwi_gw.core.notices import Ended, OpenFailed
from kiwi_gw.dialects.base import Dialect, SessionLimits
from kiwi_gw.dialects.kiwi import KiwiDialect, kiwi_wire
from kiwi_gw.model import ANONYMOUS, Batch, CloseReason, Field, Kind, Shape, SourceInfo
from tests.transcripts.recorded import texts

PLAIN = (Field("sourceId", Kind.SOURCE_ID), Field("n", Kind.INT))
OTHER = (Field("n", Kind.INT), Field("sourceId", Kind.SOURCE_ID))
BATCH = Batch({0: 0}, [0, 0], [0, 1], {"n": [7, 8]}, cost=1)


def test_what_it_serves() -> None:
    dialect: Dialect = KiwiDialect()
    assert dialect.name == "kiwi"
    assert dialect.paths == ("/", "/kiwi")
    assert dialect.subprotocols == ("kiwi-gw",)
    assert dialect.max_message_bytes == 65_536


def test_an_unknown_envelope_is_an_error() -> None:
    with pytest.raises(ValueError, match="flat, nested"):
        KiwiDialect("round")  # type: ignore[arg-type]


def test_equal_sources_share_one_wire_format() -> None:
    first = kiwi_wire(SourceInfo("a", "test", Shape(PLAIN)))
    assert kiwi_wire(SourceInfo("a", "test", Shape(PLAIN, {"original": OTHER}))) is first


def test_whatever_decides_the_bytes_is_in_the_key() -> None:
    source = SourceInfo("a", "test", Shape(PLAIN, {"original": OTHER}))
    keys = {
        kiwi_wire(source).key,
        kiwi_wire(source, "nested").key,
        kiwi_wire(source, max_event_bytes=100).key,
        kiwi_wire(SourceInfo("b", "test", source.shape)).key,
        kiwi_wire(SourceInfo("a", "text", source.shape)).key,
        kiwi_wire(SourceInfo("a", "test", Shape((*PLAIN, Field("m", Kind.INT))))).key,
    }
    assert len(keys) == 6


def test_envelopes_share_the_bytes_of_a_source_without_an_original_form() -> None:
    source = SourceInfo("a", "test", Shape(PLAIN))
    assert kiwi_wire(source, "nested") is kiwi_wire(source, "flat")


def test_nested_speaks_the_original_form_where_there_is_one() -> None:
    source = SourceInfo("a", "test", Shape(PLAIN, {"original": OTHER}))
    flat, nested = (kiwi_wire(source, envelope).encode(BATCH) for envelope in ("flat", "nested"))
    assert texts(flat.buffer)[0] == '{"type":"RESULT","data":{"sourceId":"a","n":7}}'
    assert texts(nested.buffer)[1] == '{"type":"RESULT","data":{"n":8,"sourceId":"a"}}'


def test_encoding_is_pure() -> None:
    wire = kiwi_wire(SourceInfo("a", "test", Shape(PLAIN)))
    assert wire.encode(BATCH) == wire.encode(BATCH)
    assert wire.join is None


def test_half_characters_in_a_message_do_not_break_the_reply() -> None:
    client = KiwiDialect().session("", ANONYMOUS, SessionLimits())
    subscribe = json.dumps({"type": "SUBSCRIBE", "sourceId": "a"})
    assert list(client.receive(subscribe, 0.0))
    (failed,) = client.notice(OpenFailed("a", "failed", "no file '\udcff'"))
    assert json.loads(texts(failed.frame)[0])["data"]["error"] == "no file '\\udcff'"  # type: ignore[union-attr]
    assert list(client.receive(subscribe, 0.0))
    source = SourceInfo("a", "test", Shape(PLAIN))
    (closed,) = client.notice(Ended("a", source, CloseReason.FAILED, "\udcff", {}, 0))
    assert json.loads(texts(closed.frame)[0])["data"]["message"] == "\\udcff"  # type: ignore[union-attr]
