"""Where a client puts its token: a header, the query, or a WebSocket subprotocol."""

from __future__ import annotations

import re
from urllib.parse import parse_qsl

from kiwi_gw.api import HeadCredential, Refusal

MAX_TOKEN = 8192
"""Characters. Longer ones are refused unread: no token is so long, and decoding costs time."""

_TOKEN = re.compile(r"[A-Za-z0-9._~+/-]+=*")  # RFC 6750, b64token

INVALID_TOKEN = "invalid_token"  # noqa: S105  (the name of an error)
NO_TOKEN = "no_token"  # noqa: S105


def invalid(message: str) -> Refusal:
    """Refuse a token that will not become valid by trying again."""
    return Refusal(INVALID_TOKEN, message)


def token_of(
    head: HeadCredential, query_parameter: str | None, subprotocol_prefix: str | None
) -> str | Refusal | None:
    """Return the one token of a request; None if it brings no credentials at all.

    It is sought in `Authorization: Bearer` (RFC 6750, 2.1), then in the query (2.3), then among the offered
    subprotocols. The same token twice is fine. Two different ones are refused: which one was meant would
    depend on the reader of the request.
    """
    found: list[str] = []
    other_scheme = False
    for value in _values(head, "authorization"):
        scheme, _, rest = value.strip().partition(" ")
        if scheme.lower() == "bearer":
            found.append(rest.strip())
        else:
            other_scheme = True
    if query_parameter is not None and head.query:
        try:
            pairs = parse_qsl(head.query, keep_blank_values=True, max_num_fields=100, errors="strict")
        except ValueError:
            return invalid("the query of the address cannot be read")
        found.extend(value for name, value in pairs if name == query_parameter)
    if subprotocol_prefix is not None:
        for value in _values(head, "sec-websocket-protocol"):
            names = (name.strip() for name in value.split(","))
            found.extend(
                n.removeprefix(subprotocol_prefix) for n in names if n.startswith(subprotocol_prefix)
            )
    if len(set(found)) > 1:
        return invalid("the request carries more than one token")
    if found:
        return found[0]
    # Credentials that cannot be checked must not count as none: anonymous access would hide the mistake.
    return invalid("the Authorization header is not a Bearer token") if other_scheme else None


def well_formed(token: str) -> bool:
    return 0 < len(token) <= MAX_TOKEN and _TOKEN.fullmatch(token) is not None


def _values(head: HeadCredential, name: str) -> list[str]:
    return [value for key, value in head.headers if key == name]
