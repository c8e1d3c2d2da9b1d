import pytest

from kiwi_gw.client.reconnect_rules import GiveUp, Retry, after_close, after_refusal


@pytest.mark.parametrize("code", [1000, 1001, 1005, 1006, 1011, 1012, 1013, 4401, 4402, 4408])
def test_these_closes_invite_back(code: int) -> None:
    ending = after_close(code, "why")
    assert isinstance(ending, Retry)
    assert ending.after == 0


@pytest.mark.parametrize("code", [1002, 1003, 1007, 1008, 1009, 4500, 4503, 4599])
def test_these_closes_end_it(code: int) -> None:
    ending = after_close(code, "why")
    assert ending == GiveUp(f"closed by the server: {code} why")


def test_too_much_is_a_reason_to_wait() -> None:
    assert after_close(1008, "rate_limited") == Retry("closed by the server: 1008 rate_limited", 10)


@pytest.mark.parametrize("status", [408, 429, 500, 502, 503, 504])
def test_these_refusals_invite_back(status: int) -> None:
    assert after_refusal(status, None, b"") == Retry(f"refused by the server: HTTP {status}")


@pytest.mark.parametrize("status", [301, 400, 401, 403, 404, 405, 426, 501])
def test_these_refusals_end_it(status: int) -> None:
    assert after_refusal(status, "5", b"") == GiveUp(f"refused by the server: HTTP {status}")


@pytest.mark.parametrize(("header", "seconds"), [("7", 7), ("99999", 3600), ("soon", 0), ("-1", 0), ("٣", 0)])
def test_retry_after(header: str, seconds: float) -> None:
    ending = after_refusal(503, header, b"")
    assert isinstance(ending, Retry)
    assert ending.after == seconds


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b"no token\nmore", ": no token"),
        (b'{"title": "t", "detail": "the token is old"}', ": the token is old"),
        (b'{"code": 1}', ""),
        (b"<html>..", ""),
        (b"\xff", ": \ufffd"),
    ],
)
def test_the_body_says_why(body: bytes, words: str) -> None:
    assert after_refusal(401, None, body).why == f"refused by the server: HTTP 401{words}"
