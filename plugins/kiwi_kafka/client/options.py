"""aiokafka's options, from the settings."""

from __future__ import annotations

import ssl
from typing import Any

from kiwi_kafka.settings import TLS_PROTOCOLS, KafkaSettings, SecuritySettings


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


def connection_options(settings: KafkaSettings) -> dict[str, Any]:
    """Return the options of every client of aiokafka: where, how long, and as whom."""
    client, security = settings.client, settings.security
    return {
        "bootstrap_servers": settings.servers,
        "client_id": client.client_id,
        "request_timeout_ms": client.request_timeout_ms,
        "retry_backoff_ms": client.retry_backoff_ms,
        "metadata_max_age_ms": client.metadata_max_age_ms,
        "connections_max_idle_ms": client.connections_max_idle_ms,
        "security_protocol": security.protocol,
        "ssl_context": tls_context(security),
        "sasl_mechanism": security.mechanism,
        "sasl_plain_username": security.username,
        "sasl_plain_password": security.password.get_secret_value() if security.password else None,
    }


def consumer_options(settings: KafkaSettings) -> dict[str, Any]:
    """Return the further options of a consumer: it has no group, and never resets an offset by itself."""
    client = settings.client
    return {
        "group_id": None,
        "enable_auto_commit": False,
        "auto_offset_reset": "none",
        "isolation_level": "read_committed",
        "fetch_min_bytes": client.fetch_min_bytes,
        "fetch_max_bytes": client.fetch_max_bytes,
        "max_partition_fetch_bytes": client.max_partition_fetch_bytes,
        "max_poll_records": client.max_poll_records,
        "client_rack": client.client_rack,
        "consumer_timeout_ms": 5_000,
    }
