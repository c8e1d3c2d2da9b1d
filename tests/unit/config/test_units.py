from __future__ import annotations

import pytest
from pydantic import TypeAdapter, ValidationError

from kiwi_gw.config.address import Address, TcpAddress, UnixAddress, clash, parse_address
from kiwi_gw.units import Bytes, Milliseconds

_duration = TypeAdapter[int](Milliseconds)
_size = TypeAdapter[int](Bytes)


@pytest.mark.parametrize(
    ("value", "milliseconds"),
    [
        (0, 0),
        (1500, 1500),
        ("1500", 1500),
        ("500ms", 500),
        ("10s", 10_000),
        ("5 m", 300_000),
        ("1h", 3_600_000),
    ],
)
def test_durations(value: object, milliseconds: int) -> None:
    assert _duration.validate_python(value) == milliseconds


@pytest.mark.parametrize(
    ("value", "size"), [(7, 7), ("7", 7), ("7B", 7), ("64KiB", 65536), ("8 MiB", 8 << 20), ("1GiB", 1 << 30)]
)
def test_sizes(value: object, size: int) -> None:
    assert _size.validate_python(value) == size


@pytest.mark.parametrize("value", ["", "s", "10x", "1.5s", "-1s", "10 s s", "١s", True, None, [], -1, 1.5])
def test_wrong_durations(value: object) -> None:
    with pytest.raises(ValidationError):
        _duration.validate_python(value)


@pytest.mark.parametrize("value", ["64KB", "64k", "-1KiB", "KiB", True, -1])
def test_wrong_sizes(value: object) -> None:
    with pytest.raises(ValidationError):
        _size.validate_python(value)


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("127.0.0.1:8000", TcpAddress("127.0.0.1", 8000)),
        ("localhost:0", TcpAddress("localhost", 0)),
        ("[::1]:65535", TcpAddress("::1", 65535)),
        ("unix:/run/kiwi-gw.sock", UnixAddress("/run/kiwi-gw.sock")),
    ],
)
def test_addresses(text: str, address: Address) -> None:
    assert parse_address(text) == address
    assert str(address) == text


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("8000", "must be host:port, [v6]:port or unix:/path, like 127.0.0.1:8000, not '8000'"),
        (":8000", "must be host:port, [v6]:port or unix:/path, like 127.0.0.1:8000, not ':8000'"),
        ("::1:8000", "must be host:port, [v6]:port or unix:/path, like 127.0.0.1:8000, not '::1:8000'"),
        ("a:70000", "the port must be at most 65535, not 70000"),
        ("unix:", "needs a path after 'unix:', like unix:/run/kiwi-gw.sock"),
        ("unix:/" + "x" * 107, "the path of a Unix socket has at most 107 bytes"),
    ],
)
def test_wrong_addresses(text: str, message: str) -> None:
    with pytest.raises(ValueError) as caught:  # noqa: PT011  (the message is compared whole)
        parse_address(text)
    assert str(caught.value) == message


@pytest.mark.parametrize(
    ("one", "other", "clashes"),
    [
        ("127.0.0.1:80", "127.0.0.1:80", True),
        ("127.0.0.1:80", "127.0.0.1:81", False),
        ("127.0.0.1:0", "127.0.0.1:0", False),
        ("127.0.0.1:80", "127.0.0.2:80", False),
        ("0.0.0.0:80", "127.0.0.1:80", True),
        ("0.0.0.0:80", "localhost:80", True),
        ("0.0.0.0:80", "gateway.example:80", True),
        ("0.0.0.0:80", "[::1]:80", False),
        ("[::]:80", "0.0.0.0:80", True),
        ("[::]:80", "127.0.0.1:80", True),
        ("[::]:80", "[0:0::1]:80", True),
        ("[::1]:80", "[0:0::1]:80", True),
        ("[::ffff:127.0.0.1]:80", "127.0.0.1:80", True),
        ("a.example:80", "A.example:80", True),
        ("a.example:80", "b.example:80", False),
        ("unix:/run/a.sock", "unix:/run/../run/a.sock", True),
        ("unix:/run/a.sock", "unix:/run/b.sock", False),
        ("unix:/run/a.sock", "127.0.0.1:80", False),
    ],
)
def test_addresses_that_cannot_be_had_together(one: str, other: str, clashes: bool) -> None:
    first, second = parse_address(one), parse_address(other)
    assert clash(first, second) is clashes
    assert clash(second, first) is clashes
