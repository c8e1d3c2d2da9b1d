"""How to reach the brokers, from the settings."""

from __future__ import annotations

import ssl
from dataclasses import dataclass, field

from kiwi_kafka.settings import SASL_PROTOCOLS, TLS_PROTOCOLS, KafkaSettings, SecuritySettings


@dataclass(frozen=True, slots=True)
class ConnectionOptions:
    """Say how to connect, and as whom.

    timeout: seconds for connecting, and for the answer to each request. max_idle: seconds after which a
    connection is not used any more. mechanism: of SASL, None without it.
    """

    client_id: str
    timeout: float
    max_idle: float
    tls: ssl.SSLContext | None
    mechanism: str | None
    username: str
    password: str = field(repr=False)


def connection_options(settings: KafkaSettings, timeout_ms: int) -> ConnectionOptions:
    """Return the options for one client. Raises as `tls_context`."""
    client, security = settings.client, settings.security
    return ConnectionOptions(
        client.client_id,
        timeout_ms / 1000,
        client.connections_max_idle_ms / 1000,
        tls_context(security),
        security.mechanism if security.protocol in SASL_PROTOCOLS else None,
        security.username or "",
        security.password.get_secret_value() if security.password else "",
    )


def tls_context(security: SecuritySettings) -> ssl.SSLContext | None:
    """Return the TLS context, None for protocols without. OSError or ssl.SSLError if a file cannot be
    used."""
    if security.protocol not in TLS_PROTOCOLS:
        return None
    context = ssl.create_default_context(cafile=str(security.ca) if security.ca else None)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.check_hostname = security.check_hostname
    if security.cert is not None and security.key is not None:
        secret = security.key_password
        context.load_cert_chain(security.cert, security.key, secret.get_secret_value() if secret else None)
    return context
