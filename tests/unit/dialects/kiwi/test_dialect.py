from __future__ import annotations

import json

import pytest

from kiwi_gw.core.notices import Ended, OpenFailed
from kiwi_gw.dialect_api import Dialect, SessionLimits, WebSocketRoute
from kiwi_gw.dialects.kiwi import replies
from kiwi_gw.dialects.kiwi.dialect import KiwiDialect
from kiwi_gw.dialects.kiwi.requests import COMMANDS
from kiwi_gw.dialects.kiwi.results import kiwi_wire
from kiwi_gw.model import ANONYMOUS, Batch, CloseReason, EventSchema, Field, FieldEncoding, SourceInfo
from tests.heads import HEAD
from tests.transcripts.recorded import texts

PLAIN = (Field("sourceId", FieldEncoding.SOURCE_ID), Field("n", FieldEncoding.INT))
OTHER = (Field("n", FieldEncoding.INT), Field("sourceId", FieldEncoding.SOURCE_ID))
BATCH = Batch({0: 0}, [0, 0], [0, 1], {"n": [7, 8]}, cost=1)


def test_what_it_serves() -> None:
    dialect: Dialect = KiwiDialect()
    assert dialect.routes == (WebSocketRoute("/", ("kiwi-gw",)), WebSocketRoute("/kiwi", ("kiwi-gw",)))
    assert dialect.documents == {}


def test_equal_sources_share_one_wire_format() -> None:
    first = kiwi_wire(SourceInfo("a", "test", EventSchema(PLAIN)))
    assert kiwi_wire(SourceInfo("a", "test", EventSchema(PLAIN, {"original": OTHER}))) is first


def test_whatever_decides_the_bytes_is_in_the_key() -> None:
    source = SourceInfo("a", "test", EventSchema(PLAIN, {"original": OTHER}))
    keys = {
        kiwi_wire(source).key,
        kiwi_wire(source, "nested").key,
        kiwi_wire(source, max_event_bytes=100).key,
        kiwi_wire(SourceInfo("b", "test", source.event_schema)).key,
        kiwi_wire(SourceInfo("a", "text", source.event_schema)).key,
        kiwi_wire(SourceInfo("a", "test", EventSchema((*PLAIN, Field("m", FieldEncoding.INT))))).key,
    }
    assert len(keys) == 6


def test_envelopes_share_the_bytes_of_a_source_without_an_original_form() -> None:
    source = SourceInfo("a", "test", EventSchema(PLAIN))
    assert kiwi_wire(source, "nested") is kiwi_wire(source, "flat")


def test_nested_speaks_the_original_form_where_there_is_one() -> None:
    source = SourceInfo("a", "test", EventSchema(PLAIN, {"original": OTHER}))
    flat, nested = (kiwi_wire(source, envelope).encode(BATCH) for envelope in ("flat", "nested"))
    assert texts(flat.buffer)[0] == '{"type":"RESULT","data":{"sourceId":"a","n":7}}'
    assert texts(nested.buffer)[1] == '{"type":"RESULT","data":{"n":8,"sourceId":"a"}}'


def test_encoding_is_pure() -> None:
    wire = kiwi_wire(SourceInfo("a", "test", EventSchema(PLAIN)))
    assert wire.encode(BATCH) == wire.encode(BATCH)
    assert wire.framing is None


def test_half_characters_in_a_message_do_not_break_the_reply() -> None:
    client = KiwiDialect().open_session(HEAD, {}, ANONYMOUS, SessionLimits())
    subscribe = json.dumps({"type": "SUBSCRIBE", "sourceId": "a"})
    assert list(client.receive(subscribe, 0.0))
    (failed,) = client.notice(OpenFailed("a", "failed", "no file '\udcff'"))
    assert json.loads(texts(failed.frame)[0])["data"]["error"] == "no file '\\udcff'"  # type: ignore[union-attr]
    assert list(client.receive(subscribe, 0.0))
    source = SourceInfo("a", "test", EventSchema(PLAIN))
    (closed,) = client.notice(Ended("a", source, CloseReason.FAILED, "\udcff", {}, 0))
    assert json.loads(texts(closed.frame)[0])["data"]["message"] == "\\udcff"  # type: ignore[union-attr]


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_a_refusal(command: str) -> None:
    """A message of its own, in both envelopes: else a mistake of a client would end its connection."""
    message = replies.error(command, "s", "bad_request", "no", None)
    assert f'"{command}_ERROR"'.encode() in (replies.frame(message, "flat") or b"")
    assert b'"no"' in (replies.frame(message, "nested") or b"")
