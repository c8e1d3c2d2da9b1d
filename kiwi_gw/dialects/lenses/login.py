"""Logging in over HTTP: a password for a token, and whose token it is (document 000, Login). Clients of both
protocols use it.

    POST /api/login {"user":"ann","password":"..."}    200, the token and nothing else
    GET /api/auth   X-Kafka-Lenses-Token: ...          200 {"token":"...","user":"ann","roles":["reader"]}

Who is not let in gets 401 and `unauthorized`, without a line's end.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec
from msgspec import Struct

from kiwi_gw.codes import RefusalCode
from kiwi_gw.dialect_api.dialect import Route
from kiwi_gw.dialect_api.http import (
    ErrorPages,
    HttpFailure,
    HttpRequest,
    HttpResponse,
    HttpRoute,
    NoParameters,
)
from kiwi_gw.dialects.lenses.v1.messages import Login
from kiwi_gw.model import Credential, HeadCredential, Identity, Password, Refusal, Token

TOKEN_HEADER: Final = "x-kafka-lenses-token"  # noqa: S105  (a header's name)

_PLAIN: Final = "text/plain"
_MOST_BYTES: Final = 16 * 1024


class Known(Struct, frozen=True):
    """Whose token it is."""

    token: str
    user: str
    roles: Sequence[str]


def login_routes() -> Sequence[Route]:
    """Make the routes."""
    return (
        HttpRoute(
            "POST", "/api/login", log_in, NoParameters, Login, Known, _MOST_BYTES, _password, pages=True
        ),
        HttpRoute("GET", "/api/auth", whose, NoParameters, bytes, Known, 0, _token, pages=True),
        ErrorPages("/api/login", _refused),
        ErrorPages("/api/auth", _refused),
    )


def log_in(request: HttpRequest[NoParameters, Login]) -> HttpResponse:
    """Give a token for a password."""
    return HttpResponse(200, token_for(request.identity).encode(), _PLAIN)


def whose(request: HttpRequest[NoParameters, bytes]) -> Known:
    """Say whose token it is."""
    identity = request.identity
    return Known(request.head.header(TOKEN_HEADER) or "", identity.name, sorted(identity.roles))


def token_for(identity: Identity) -> str:
    """Return what a client that has logged in shows from then on. Where no plugin issues tokens, its name
    stands for one: it is known on that connection, and everywhere if no plugin asks at all."""
    return identity.issued_token or identity.name


def _password(head: HeadCredential, body: bytes) -> Credential | Refusal:
    try:
        said = msgspec.json.decode(body, type=Login)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return Refusal(RefusalCode.NO_CREDENTIALS, "a user and a password are needed")
    return Password(said.user, said.password)


def _token(head: HeadCredential, body: bytes) -> Credential | Refusal:
    text = head.header(TOKEN_HEADER)
    return Refusal(RefusalCode.NO_TOKEN, "no token") if text is None else Token(text)


def _refused(failure: HttpFailure) -> HttpResponse | None:
    if failure.refusal is None:
        return None
    words = "unauthorized" if failure.status == 401 else failure.refusal.code
    return HttpResponse(failure.status, words.encode(), _PLAIN)
