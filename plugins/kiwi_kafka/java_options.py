"""The section `kafka` in the names of Kafka's Java client, for programs that read the same cluster with
it."""

from __future__ import annotations

from pathlib import Path

from kiwi_gw.api import PluginError
from kiwi_kafka.settings import SASL_PROTOCOLS, TLS_PROTOCOLS, KafkaSettings, SecuritySettings

_LOGIN = {
    "PLAIN": "org.apache.kafka.common.security.plain.PlainLoginModule",
    "SCRAM-SHA-256": "org.apache.kafka.common.security.scram.ScramLoginModule",
    "SCRAM-SHA-512": "org.apache.kafka.common.security.scram.ScramLoginModule",
}


def java_options(settings: KafkaSettings) -> dict[str, str]:
    """Return what a Java client needs to speak to the same brokers as the same user.

    Certificates and keys are given as text, not as names of files, so that they work on other machines, too.
    Where no `ca` is set, Java trusts the authorities that it comes with. Reads files: call it in a worker
    thread. Raises PluginError if a file cannot be read, or Java cannot use what is in it.
    """
    client, security = settings.client, settings.security
    options = {
        "bootstrap.servers": ",".join(settings.servers),
        "security.protocol": security.protocol,
        "request.timeout.ms": str(client.request_timeout_ms),
        "retry.backoff.ms": str(client.retry_backoff_ms),
        "metadata.max.age.ms": str(client.metadata_max_age_ms),
        "connections.max.idle.ms": str(client.connections_max_idle_ms),
    }
    if security.protocol in SASL_PROTOCOLS:
        options |= _sasl(security)
    if security.protocol in TLS_PROTOCOLS:
        options |= _tls(security)
    return options


def java_consumer_options(settings: KafkaSettings) -> dict[str, str]:
    """Return the same for a consumer: it reads what is committed, from near if it may. As `java_options`."""
    rack = settings.client.client_rack
    near = {} if rack is None else {"client.rack": rack}
    return {**java_options(settings), "isolation.level": "read_committed", **near}


def _sasl(security: SecuritySettings) -> dict[str, str]:
    password = security.password.get_secret_value() if security.password is not None else ""
    login = (
        f"{_LOGIN[security.mechanism]} required "
        f"username={_quoted(security.username or '')} password={_quoted(password)};"
    )
    return {"sasl.mechanism": security.mechanism, "sasl.jaas.config": login}


def _tls(security: SecuritySettings) -> dict[str, str]:
    options: dict[str, str] = {}
    if security.ca is not None:
        options["ssl.truststore.type"] = "PEM"
        options["ssl.truststore.certificates"] = _pem("ca", security.ca)
    if security.cert is not None and security.key is not None:
        key = _pem("key", security.key)
        if "BEGIN PRIVATE KEY" not in key and "BEGIN ENCRYPTED PRIVATE KEY" not in key:
            raise PluginError(
                f"kafka.security.key: Java reads keys as PKCS #8 only; write {security.key} anew with "
                "`openssl pkcs8 -topk8`"
            )
        options["ssl.keystore.type"] = "PEM"
        options["ssl.keystore.certificate.chain"] = _pem("cert", security.cert)
        options["ssl.keystore.key"] = key
        if security.key_password is not None:
            options["ssl.key.password"] = security.key_password.get_secret_value()
    if not security.check_hostname:
        options["ssl.endpoint.identification.algorithm"] = ""
    return options


def _quoted(text: str) -> str:
    """Write it as a value of a JAAS configuration."""
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _pem(name: str, path: Path) -> str:
    try:
        return path.read_text(encoding="ascii")
    except (OSError, ValueError) as error:
        raise PluginError(f"kafka.security.{name}: {path} cannot be read: {error}") from error
