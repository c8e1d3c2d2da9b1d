import pytest

from kiwi_gw.client.address import parse_address


@pytest.mark.parametrize(
    ("text", "shown", "authority", "resource", "tls"),
    [
        ("ws://localhost:8000", "ws://localhost:8000/", "localhost:8000", "/", False),
        ("wss://gw.example/kiwi?x=1", "wss://gw.example/kiwi", "gw.example", "/kiwi?x=1", True),
        ("http://gw.example", "ws://gw.example/", "gw.example", "/", False),
        ("https://gw.example:8443", "wss://gw.example:8443/", "gw.example:8443", "/", True),
        ("localhost", "ws://localhost:8000/", "localhost:8000", "/", False),
        ("gw.example:9", "ws://gw.example:9/", "gw.example:9", "/", False),
        ("[::1]:9", "ws://[::1]:9/", "[::1]:9", "/", False),
        ("unix:/run/kiwi.sock", "unix:/run/kiwi.sock", "localhost", "/", False),
        ("unix:/run/kiwi.sock:/kiwi", "unix:/run/kiwi.sock:/kiwi", "localhost", "/kiwi", False),
    ],
)
def test_reads_what_people_write(text: str, shown: str, authority: str, resource: str, tls: bool) -> None:
    address = parse_address(text)
    assert (str(address), address.authority, address.resource, address.tls) == (
        shown,
        authority,
        resource,
        tls,
    )


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("kafka://x:9092", "not an address of a gateway"),
        ("ws://", "no host"),
        ("ws://x:99999", "Port out of range"),
        ("ws://me:secret@x", "--token"),
        ("unix:", "path of a socket"),
        ("ws://x/\r\nHost: y", "percent-encoded"),
        ("ws://x/a b", "percent-encoded"),
    ],
)
def test_says_what_is_wrong_with_an_address(text: str, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        parse_address(text)


def test_a_token_in_the_query_is_never_shown() -> None:
    address = parse_address("ws://localhost/?token=geheim")
    assert "geheim" not in str(address)
    assert "geheim" not in repr(address)


@pytest.mark.parametrize(
    ("text", "loopback"),
    [
        ("127.0.0.1:1", True),
        ("[::1]:1", True),
        ("[::ffff:127.0.0.1]:1", True),
        ("localhost", True),
        ("unix:/x", True),
        ("10.0.0.1", False),
        ("gw.example", False),
    ],
)
def test_knows_what_stays_on_the_machine(text: str, loopback: bool) -> None:
    assert parse_address(text).loopback is loopback
