"""What the log says of clients that are refused: enough to help, and no secret."""

from __future__ import annotations

import pytest
from structlog.testing import capture_logs

from kiwi_gw.api import Credential, Refusal
from kiwi_gw.model import EventSchema, HeadCredential, Identity, Password, SourceInfo, Token
from kiwi_gw.model.rights import Action
from kiwi_gw.runtime.refusal_log import login_refused, source_refused

WRONG = Refusal("invalid_token", "the token is unknown")
BEARER = (("authorization", "Bearer s3cret"),)
HEAD = HeadCredential("GET", "/events", "token=s3cret", BEARER, "10.0.0.7:4711")


@pytest.mark.parametrize(
    ("credential", "said"),
    [
        (HEAD, {"path": "/events", "remote": "10.0.0.7:4711"}),
        (Password("ann", "s3cret", "10.0.0.7"), {"remote": "10.0.0.7", "name": "ann"}),
        (Token("s3cret"), {}),
    ],
    ids=["head", "password", "token"],
)
def test_a_refused_login_is_a_warning_without_its_secret(
    credential: Credential, said: dict[str, object]
) -> None:
    with capture_logs() as lines:
        login_refused(credential, WRONG)
    (line,) = lines
    assert "s3cret" not in str(line)
    assert line == {
        "event": "login refused",
        "log_level": "warning",
        "code": "invalid_token",
        "why": "the token is unknown",
        **said,
    }


def test_who_it_was_is_said_where_that_is_known_otherwise() -> None:
    with capture_logs() as lines:
        login_refused(HEAD, WRONG, "ann")
    assert [line["name"] for line in lines] == ["ann"]


@pytest.mark.parametrize("code", ["no_token", "no_credentials"])
def test_who_has_shown_nothing_is_for_debugging_only(code: str) -> None:
    with capture_logs() as lines:
        login_refused(HEAD, Refusal(code, "who are you?"))
    assert [line["log_level"] for line in lines] == ["debug"]


def test_what_a_client_sends_is_cut() -> None:
    with capture_logs() as lines:
        login_refused(HeadCredential("GET", "/" + "x" * 9_000, "", ()), WRONG)
        login_refused(Password("n" * 9_000, "p"), WRONG)
    assert [len(line.get("path", line.get("name"))) for line in lines] == [200, 200]


def test_a_refused_source_is_for_debugging_only() -> None:
    info = SourceInfo("orders", "fake", EventSchema(()))
    with capture_logs() as lines:
        source_refused(Identity("ann"), Action.REPLAY, info, Refusal("forbidden", "not allowed"))
    (line,) = lines
    assert (line["log_level"], line["name"], line["action"], line["source"], line["why"]) == (
        "debug", "ann", "replay", "orders", "not allowed",
    )  # fmt: skip
