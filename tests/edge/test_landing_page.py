"""What `GET /` answers."""

from __future__ import annotations

import json

import pytest

from kiwi_gw.dialects.kiwi.dialect import KiwiDialect
from kiwi_gw.dialects.zetta import ZettaDialect, siren
from kiwi_gw.edge.landing_page import LandingPage

LANDING_PAGE = LandingPage("<a & b>", {"kiwi": KiwiDialect(), "zetta": ZettaDialect()})


@pytest.mark.parametrize(
    "accept", ["", "*/*", "text/html,application/xhtml+xml,*/*;q=0.8", "application/json"]
)
def test_people_get_a_page(accept: str) -> None:
    kind, body = LANDING_PAGE.answer(accept, "gw.example:8000", True)
    assert kind == "text/html; charset=utf-8"
    text = body.decode()
    assert "&lt;a &amp; b&gt;" in text
    assert "<code>wss://gw.example:8000/</code>" in text
    assert "<code>wss://gw.example:8000/events</code>" in text


@pytest.mark.parametrize(
    "accept", [siren.MEDIA_TYPE, "Application/VND.Siren+JSON; q=1, */*", f"a/b, {siren.MEDIA_TYPE}"]
)
@pytest.mark.parametrize(
    ("host", "secure", "url"), [("h", False, "ws://h/events"), ("[::1]:80", True, "wss://[::1]:80/events")]
)
def test_clients_of_the_protocol_find_its_socket(accept: str, host: str, secure: bool, url: str) -> None:
    kind, body = LANDING_PAGE.answer(accept, host, secure)
    assert kind == siren.MEDIA_TYPE
    links = {rel: link["href"] for link in json.loads(body)["links"] for rel in link["rel"]}
    assert links["http://rels.zettajs.io/events"] == url


@pytest.mark.parametrize("host", ["", "<script>", "a b", "h:port", 'x"', "a/b", "é"])
def test_a_host_that_is_none_is_not_repeated(host: str) -> None:
    for accept in ("", siren.MEDIA_TYPE):
        assert b"ws://localhost/" in LANDING_PAGE.answer(accept, host, False)[1]
