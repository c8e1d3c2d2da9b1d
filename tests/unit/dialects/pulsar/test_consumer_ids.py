"""Ids of consumers: where they send clients, and that nobody can make one up."""

from __future__ import annotations

import base64

import pytest

from kiwi_gw.dialect_api import DialectContext
from kiwi_gw.dialects.pulsar.consumer_ids import ConsumerIds
from kiwi_gw.dialects.pulsar.plugin import build
from kiwi_gw.dialects.pulsar.settings import PulsarSettings
from kiwi_gw.model import HeadCredential

KEY = b"k" * 32
URL = "http://gw1.example:8000"


def head(host: str | None = "gw.example:8000", *, secure: bool = False) -> HeadCredential:
    headers = () if host is None else (("host", host),)
    return HeadCredential("GET", "/", "", headers, secure=secure)


@pytest.mark.parametrize(
    ("url", "port", "host", "secure", "home"),
    [
        (None, None, "gw.example:8000", False, "http://gw.example:8000"),
        (None, None, None, False, "http://localhost"),
        (None, 8001, "gw.example:8000", False, "http://gw.example:8001"),
        (None, 8001, "gw.example", True, "https://gw.example:8001"),
        (None, 8001, "[::1]:8000", False, "http://[::1]:8001"),
        (None, 8001, "[::1]", False, "http://[::1]:8001"),
        (None, 8001, None, False, "http://localhost:8001"),
        (URL, None, "other:1", True, URL),
        (URL + "/", None, "other:1", False, URL),
        (URL, 8001, "other:1", False, "http://gw1.example:8001"),
        ("https://gw1.example/one/", 8001, "other", False, "https://gw1.example:8001/one"),
        ("https://[2001:db8::1]", 8001, "other", False, "https://[2001:db8::1]:8001"),
    ],
)
def test_home(url: str | None, port: int | None, host: str | None, secure: bool, home: str) -> None:
    assert ConsumerIds(url, port, KEY).home(head(host, secure=secure)) == home


def test_an_id_leads_from_everywhere_to_where_it_was_made() -> None:
    one, other = ConsumerIds(URL, None, KEY), ConsumerIds("https://gw2.example/", None, KEY)
    made = one.new()
    assert made != one.new()
    assert len(made) <= 200
    assert one.elsewhere(made, head()) is None
    assert other.elsewhere(made, head()) == URL
    assert one.elsewhere(other.new(), head()) == "https://gw2.example"


def test_a_worker_is_another_port_of_the_host_that_was_asked() -> None:
    """Where no URL is configured nobody is sent to another host, whatever `Host` the id was made with."""
    one, other = ConsumerIds(None, 8001, KEY), ConsumerIds(None, 8002, KEY)
    made = one.new()
    assert other.elsewhere(made, head("gw.example")) == "http://gw.example:8001"
    assert other.elsewhere(made, head("[::1]:8000", secure=True)) == "https://[::1]:8001"
    assert one.elsewhere(made, head()) is None


def test_an_id_without_a_place_leads_nowhere() -> None:
    made = ConsumerIds(None, None, KEY).new()
    assert ConsumerIds(URL, None, KEY).elsewhere(made, head()) is None


@pytest.mark.parametrize(
    ("context", "home"),
    [
        (DialectContext("gw", 1_000), "http://gw.example:8000"),
        (DialectContext("gw", 1_000, workers=2, worker_port=8002), "http://gw.example:8002"),
        (DialectContext("gw", 1_000, workers=2), None),
    ],
)
def test_of_several_workers_only_those_with_a_port_have_consumers(
    context: DialectContext, home: str | None
) -> None:
    dialect = build(PulsarSettings(enabled=True), context)
    assert dialect is not None
    ids = dialect.consumer_ids
    assert (None if ids is None else ids.home(head())) == home


def test_workers_have_a_key_in_common_and_gateways_the_one_that_is_configured() -> None:
    def ids(number: int, secret: bytes, **settings: object) -> ConsumerIds:
        context = DialectContext("gw", 1_000, workers=2, worker_port=8_000 + number, secret=secret)
        dialect = build(PulsarSettings(enabled=True, **settings), context)
        assert dialect is not None
        assert dialect.consumer_ids is not None
        return dialect.consumer_ids

    made = ids(1, b"one").new()
    assert ids(2, b"one").elsewhere(made, head()) == "http://gw.example:8001"
    assert ids(2, b"other").elsewhere(made, head()) is None
    made = ids(1, b"one", advertised_url=URL, consumer_key="k" * 32).new()
    there = ids(1, b"other", advertised_url="http://gw2.example", consumer_key="k" * 32).elsewhere(
        made, head()
    )
    assert there == "http://gw1.example:8001"
    with pytest.raises(ValueError, match="at least 32 bytes"):
        PulsarSettings(consumer_key="k" * 31)


def test_the_longest_id_fits_into_a_path() -> None:
    assert len(ConsumerIds("http://" + "a" * 93, 65_535, KEY).new()) <= 200


def test_nobody_makes_one_up() -> None:
    ours = ConsumerIds(None, None, KEY)
    made = ConsumerIds(URL, None, KEY).new()
    assert ours.elsewhere(made, head()) == URL
    assert ConsumerIds(None, None, b"o" * 32).elsewhere(made, head()) is None
    data = base64.urlsafe_b64decode(made + "==")
    for index in range(len(data)):
        changed = bytearray(data)
        changed[index] ^= 1
        assert ours.elsewhere(base64.urlsafe_b64encode(changed).rstrip(b"=").decode(), head()) is None
    for text in ("", "x", "nobody", "ä", "a" * 200, made[:-1], made + "A", made + "==", made + "\n", "%00"):
        assert ours.elsewhere(text, head()) is None, text


@pytest.mark.parametrize(
    "url",
    [
        "gw1.example",
        "http://",
        "http://gw1 .example",
        "http://gw1.example\r\nX: y",
        "http://gw1.例",
        "http://[::1",
        "http://user:word@gw1.example",
        "http://gw1.example?x",
        "http://gw1.example/ö",
    ],
)
def test_a_url_that_no_location_may_begin_with(url: str) -> None:
    with pytest.raises(ValueError, match="advertised_url"):
        PulsarSettings(advertised_url=url)
