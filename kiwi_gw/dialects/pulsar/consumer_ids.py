"""Ids of consumers: each says, signed, where its consumer is, so that another gateway sends its client there.

A consumer lives in one process. Where a gateway says what its own URL is (`pulsar.advertised_url`), or each
of several workers has a port of its own (`server.worker_port`), the id holds that.
"""

from __future__ import annotations

import hmac
import re
import secrets
from base64 import urlsafe_b64decode, urlsafe_b64encode
from typing import Final
from urllib.parse import urlsplit

from kiwi_gw.model import HeadCredential

_SIGNATURE_BYTES: Final = 16
_RANDOM_BYTES: Final = 12
_PORT: Final = re.compile(r":[0-9]*\Z")


class ConsumerIds:
    """Make ids and read them. url: of this gateway, for its clients; None: as they call it. port: of this
    process alone; None: it has none. key: what ids are signed with."""

    def __init__(self, url: str | None, port: int | None, key: bytes) -> None:
        self._key = key
        self._home = (_with_port(url, port) if url and port else url or "").rstrip("/")
        if port and not url:
            self._home = f":{port}"

    def new(self) -> str:
        """Return another id."""
        return self._signed(secrets.token_bytes(_RANDOM_BYTES) + self._home.encode())

    def home(self, head: HeadCredential) -> str:
        """Return the URL of this process, for the client that has sent this."""
        return _url(self._home, head)

    def elsewhere(self, consumer: str, head: HeadCredential) -> str | None:
        """Return the URL of the process that has made a consumer; None: this one has, or no id was made
        so."""
        try:
            body = urlsafe_b64decode(consumer + "=" * (-len(consumer) % 4))[_SIGNATURE_BYTES:]
        except ValueError:
            return None
        home = body[_RANDOM_BYTES:].decode(errors="replace")
        if home == self._home or not home or not hmac.compare_digest(self._signed(body), consumer):
            return None
        return _url(home, head)

    def _signed(self, body: bytes) -> str:
        signature = hmac.digest(self._key, body, "sha256")[:_SIGNATURE_BYTES]
        return urlsafe_b64encode(signature + body).rstrip(b"=").decode()


def _url(home: str, head: HeadCredential) -> str:
    """Make a URL of what an id holds: one, or a port at the host that the client has called."""
    if home and not home.startswith(":"):
        return home
    host = head.header("host") or "localhost"
    return f"{'https' if head.secure else 'http'}://{_PORT.sub('', host) + home if home else host}"


def _with_port(url: str, port: int) -> str:
    parts = urlsplit(url)
    return parts._replace(netloc=f"{_PORT.sub('', parts.netloc)}:{port}").geturl()
