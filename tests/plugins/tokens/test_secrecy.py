"""A token never shows: not in a log line, a repr, an error, a traceback or a refusal."""

from __future__ import annotations

import logging
import traceback
from pathlib import Path
from typing import Any

import pytest

from kiwi_gw.api import Action, EventSchema, Password, SourceInfo, Token

STATIC = "static-0123456789-abcdefghij"
SECRET_HEAD = "kiwi-gw.bearer."


def test_tokens_show_nowhere(
    gate: Any,
    issuer: Any,
    head: Any,
    key_server: Any,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    capfd: pytest.CaptureFixture[str],
) -> None:
    caplog.set_level(logging.DEBUG)
    good, bad, expired = issuer.token(), issuer.token("stranger"), issuer.token(exp=1)
    tokens = [
        STATIC,
        good,
        bad,
        expired,
        "wrong-0123456789-abcdefghij",
        good[:-4],
        "not a token at all",
        "é" * 30,
    ]
    shown: list[str] = []
    for keys in ({"jwks_url": key_server.url}, {"jwks_file": tmp_path / "missing.json"}):
        gate.configure(
            roles={"reader": {"sources": ["*"]}},
            static=[{"name": "ci", "token": STATIC, "roles": ["reader"]}],
            jwt={"issuer": issuer.name, "audience": issuer.audience} | keys,
        )
        for token in tokens:
            credentials = [
                head(authorization=f"Bearer {token}"),
                head(query=f"access_token={token}"),
                head(sec_websocket_protocol=f"kiwi-gw, {SECRET_HEAD}{token}"),
                head(authorization=f"Bearer {token}", query="access_token=other-0123456789"),
                head(authorization=f"Basic {token}"),
                Token(token),
                Password("ci", token),
            ]
            for credential in credentials:
                answer = gate.ask(credential)
                shown += [repr(credential), repr(answer), str(answer)]
                shown += [str(getattr(answer, "claims", ""))]
                if hasattr(answer, "roles"):
                    source = SourceInfo("s", "t", EventSchema(()))
                    shown.append(
                        repr(gate.manager.hook.authorize(identity=answer, action=Action.ADMIN, source=source))
                    )
        state = gate.plugin._state
        shown += [repr(gate.plugin), repr(state), str(vars(gate.plugin)), repr(state.static._entries)]
    out, err = capfd.readouterr()
    shown += [out, err, caplog.text]
    everything = "\n".join(shown)
    assert "key set" in caplog.text  # something was logged, so the search means something
    for token in tokens:
        assert token not in everything
        for part in token.split("."):
            assert len(part) < 8 or part not in everything


def test_a_traceback_of_a_failing_check_shows_no_token(
    jwt_gate: Any, issuer: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Should a part of the plugin break, what the gateway logs of it still holds no token."""

    def broken(*_: object) -> None:
        raise MemoryError("no memory")

    token = issuer.token()
    for target in ("kiwi_tokens.jwks.find_key", "kiwi_tokens.key_sources.find_key", "jwt.decode"):
        with monkeypatch.context() as patch:
            patch.setattr(target, broken)
            try:
                jwt_gate.bearer(token)
            except MemoryError as error:
                text = "".join(traceback.format_exception(error))
                assert token not in text
                assert token.split(".")[2] not in text
