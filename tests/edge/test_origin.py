"""The matrix of origins (who may connect from which page)."""

from __future__ import annotations

import pytest

from kiwi_gw.edge.origin import why_refused
from kiwi_gw.edge.request_head import parse_head

NONE: tuple[str, ...] = ()
APP = ("https://app.example.com",)
WILD = ("https://*.example.com", "http://*.test:8080")

MATRIX: list[tuple[str | None, str, tuple[str, ...], bool, bool]] = [
    # Origin, Host, allowed_origins, secure, allowed
    (None, "gw.example.com", NONE, False, True),  # not a browser
    (None, "gw.example.com", APP, True, True),
    ("http://gw.example.com", "gw.example.com", NONE, False, True),
    ("https://gw.example.com", "gw.example.com", NONE, True, True),
    ("https://gw.example.com", "gw.example.com", NONE, False, False),  # another scheme
    ("http://gw.example.com", "gw.example.com", NONE, True, False),
    ("HTTP://GW.Example.COM", "gw.EXAMPLE.com", NONE, False, True),  # case
    ("http://gw.example.com:80", "gw.example.com", NONE, False, True),  # default ports
    ("http://gw.example.com", "gw.example.com:80", NONE, False, True),
    ("https://gw.example.com:443", "gw.example.com", NONE, True, True),
    ("http://gw.example.com:443", "gw.example.com", NONE, False, False),
    ("http://gw.example.com:8080", "gw.example.com:8080", NONE, False, True),
    ("http://gw.example.com:8081", "gw.example.com:8080", NONE, False, False),
    ("http://gw.example.com", "gw.example.com:8080", NONE, False, False),
    ("http://gw.example.com.", "gw.example.com", NONE, False, False),  # trailing dots
    ("http://gw.example.com", "gw.example.com.", NONE, False, False),
    ("http://gw.example.com.", "gw.example.com.", NONE, False, True),
    ("http://[::1]:8080", "[::1]:8080", NONE, False, True),
    ("http://localhost:8080", "127.0.0.1:8080", NONE, False, False),  # names, not addresses
    ("http://evil.example", "gw.example.com", NONE, False, False),  # foreign
    ("http://gw.example.com.evil.example", "gw.example.com", NONE, False, False),
    ("http://evil.example#gw.example.com", "gw.example.com", NONE, False, False),
    ("http://gw.example.com@evil.example", "gw.example.com", NONE, False, False),
    ("http://gw.example.com/", "gw.example.com", NONE, False, False),  # an origin has no path
    ("http://gw.example.com http://evil.example", "gw.example.com", NONE, False, False),
    ("null", "gw.example.com", NONE, False, False),
    ("null", "gw.example.com", APP, False, False),
    ("null", "gw.example.com", ("null",), False, True),
    ("NULL", "gw.example.com", ("null",), False, False),
    ("", "gw.example.com", ("*.example.com",), False, False),
    ("https://app.example.com", "gw.example.com", APP, False, True),  # listed
    ("https://APP.example.com:443", "gw.example.com", APP, False, True),
    ("http://app.example.com", "gw.example.com", APP, False, False),
    ("https://app.example.com:8443", "gw.example.com", APP, False, False),
    ("https://evilapp.example.com", "gw.example.com", APP, False, False),
    ("https://anything.example", "gw.example.com", ("*",), False, True),  # everything
    ("null", "gw.example.com", ("*",), False, True),
    ("https://a.example.com", "gw", WILD, False, True),  # below a host
    ("https://a.b.example.com", "gw", WILD, False, True),
    ("https://example.com", "gw", WILD, False, False),
    ("https://evilexample.com", "gw", WILD, False, False),
    ("https://.example.com", "gw", ("https://*.example.com",), False, False),
    ("http://a.example.com", "gw", WILD, False, False),
    ("http://a.test:8080", "gw", WILD, False, True),
    ("http://a.test", "gw", WILD, False, False),
    ("https://*.example.com", "gw", WILD, False, False),  # a pattern is not an origin
    ("chrome-extension://abcdefgh", "gw", ("chrome-extension://abcdefgh",), False, True),
    ("https://app.example.com", "gw", ("app.example.com",), False, False),  # a listing without a scheme
]


@pytest.mark.parametrize(("origin", "host", "allowed", "secure", "expected"), MATRIX)
def test_matrix(
    origin: str | None, host: str, allowed: tuple[str, ...], secure: bool, expected: bool
) -> None:
    line = "" if origin is None else f"Origin: {origin}\r\n"
    head = parse_head(f"GET / HTTP/1.1\r\nHost: {host}\r\n{line}\r\n".encode())
    assert (why_refused(head, allowed, secure) is None) is expected


def test_two_origins_are_none() -> None:
    head = parse_head(b"GET / HTTP/1.1\r\nHost: h\r\nOrigin: http://h\r\nOrigin: http://h\r\n\r\n")
    assert why_refused(head, ("*",), secure=False)


def test_without_host_nothing_is_the_same_origin() -> None:
    head = parse_head(b"GET / HTTP/1.0\r\nOrigin: http://h\r\n\r\n")
    assert why_refused(head, (), secure=False)
    assert why_refused(head, ("http://h",), secure=False) is None
