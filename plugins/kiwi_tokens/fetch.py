"""One bounded HTTP GET in a thread of its own.

The thread makes the deadline hold: name resolution has no timeout, nor has a server that sends a byte now and
then. The caller goes on after the deadline and breaks the connection off.
"""

from __future__ import annotations

import contextlib
import http.client
import socket
import ssl
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from typing import Any
from urllib.parse import urlsplit

from kiwi_tokens.jwks import MAX_DOCUMENT
from kiwi_tokens.settings import is_loopback


class Fetch:
    """Fetch `url` once. `arrived(fetch, document, failure)` is called in the fetching thread; exactly one of
    document and failure (words) is not empty. Then `done` is set; `good` is for `arrived` to set.

    Redirects are not followed: keys come from the address in the configuration and from nowhere else.
    Proxies are taken from the environment, trusted authorities from the system (`SSL_CERT_FILE`).
    """

    def __init__(self, url: str, deadline: float, arrived: Callable[[Fetch, bytes, str], None]) -> None:
        parts = urlsplit(url)
        self.where = f"{parts.scheme}://{parts.netloc}{parts.path}"  # a query may hold a secret
        self.done = threading.Event()
        self.good = False
        self._url = url
        self._deadline = deadline
        self._arrived = arrived
        self._connection: http.client.HTTPConnection | None = None
        self._ends_at = 0.0

    def start(self) -> None:
        self._ends_at = time.monotonic() + self._deadline
        threading.Thread(target=self._run, name="kiwi_tokens fetch", daemon=True).start()

    def abort(self) -> None:
        """Break the connection off, if there is one yet; the thread ends by the error that this makes."""
        connection = self._connection
        if connection is not None and connection.sock is not None:
            with contextlib.suppress(OSError):  # it is closed already
                connection.sock.shutdown(socket.SHUT_RDWR)

    def _run(self) -> None:
        document, failure = b"", ""
        try:
            document = self._get()
        except urllib.error.HTTPError as error:
            error.close()
            failure = f"HTTP status {error.code}"
        except http.client.HTTPException as error:
            failure = type(error).__name__  # its message may quote the address
        except OSError as error:
            failure = f"{type(error).__name__}: {error}"
        except ValueError as error:
            failure = str(error)
        try:
            self._arrived(self, document, failure)
        finally:
            self.done.set()

    def _get(self) -> bytes:
        handlers: list[urllib.request.BaseHandler] = [_NoRedirect(), _Watched(self._connected)]
        if is_loopback(urlsplit(self._url).hostname):
            handlers.append(urllib.request.ProxyHandler({}))
        opener = urllib.request.build_opener(*handlers)
        request = urllib.request.Request(self._url, headers={"Accept": "application/json"})  # noqa: S310  (the scheme is checked by the settings)
        with opener.open(request, timeout=self._deadline) as response:
            document = b""
            while chunk := response.read1(65_536):
                document += chunk
                if len(document) > MAX_DOCUMENT:
                    raise ValueError("it is too large")
                if time.monotonic() > self._ends_at:
                    raise TimeoutError("it takes too long")
        if not document:
            raise ValueError("it is empty")
        return document

    def _connected(self, connection: http.client.HTTPConnection) -> None:
        self._connection = connection


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_: Any) -> None:
        return None


class _Watched(urllib.request.HTTPHandler, urllib.request.HTTPSHandler):
    """Open connections, and say of each that it was made, so that it can be broken off."""

    def __init__(self, connected: Callable[[http.client.HTTPConnection], None]) -> None:
        super().__init__(context=ssl.create_default_context())
        self._connected = connected

    def do_open(self, http_class: Any, req: urllib.request.Request, **options: Any) -> Any:
        def connect(host: str, **more: Any) -> http.client.HTTPConnection:
            connection: http.client.HTTPConnection = http_class(host, **more)
            self._connected(connection)
            return connection

        return super().do_open(connect, req, **options)
