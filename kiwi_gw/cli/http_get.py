"""A GET request with nothing but the standard library: verbs that ask something should start quickly."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import ssl

    from kiwi_gw.client.address import Address


def asked(address: Address) -> str:
    """Format an address for people, as what it is where it is asked over HTTP."""
    shown = str(address)
    return f"http{shown.removeprefix('ws')}" if shown.startswith("ws") else shown


def http_get(
    address: Address,
    path: str,
    timeout: float,
    *,
    context: ssl.SSLContext | None = None,
    headers: Mapping[str, str] = {},
    most_bytes: int = 16 << 20,
) -> tuple[int, str]:
    """Send one request; return the status and so many bytes of the body as text. Raise OSError.

    context: for TLS; None: certificates are checked.
    """
    import http.client
    import socket

    connection: http.client.HTTPConnection
    if address.tls:
        connection = http.client.HTTPSConnection(address.host, address.port, timeout=timeout, context=context)
    else:
        connection = http.client.HTTPConnection(address.host, address.port, timeout=timeout)
    try:
        if address.socket_path is not None:
            connection.sock = socket.socket(socket.AF_UNIX)
            connection.sock.settimeout(timeout)
            connection.sock.connect(address.socket_path)
        connection.request("GET", path, headers={"User-Agent": "kiwi-gw", "Connection": "close", **headers})
        response = connection.getresponse()
        return response.status, response.read(most_bytes).decode(errors="replace").strip()
    except http.client.HTTPException as error:
        raise OSError(f"not an HTTP answer: {type(error).__name__}") from None
    finally:
        connection.close()
