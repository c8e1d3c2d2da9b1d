"""The gateway's configuration for a run: all defaults, but for what a run itself needs."""

from __future__ import annotations

import datetime
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Literal

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from pydantic import ValidationError

from benchmarks.sizes import Sizes
from kiwi_demo.loopback import HOST
from kiwi_gw.config.schema import Settings, SubscriberSettings

_MIB = 1024 * 1024


@dataclass(frozen=True, slots=True)
class Certificate:
    """Hold the paths of a certificate (its own authority) and its key, in PEM."""

    cert: Path
    key: Path


def configuration(
    sizes: Sizes, topics: Sequence[str], bootstrap: str, tls: Certificate | None = None
) -> dict[str, Any]:
    """Configure one Kafka source per topic."""
    server: dict[str, Any] = {"address": f"{HOST}:0"}
    if tls is not None:
        server["tls"] = {"cert": str(tls.cert), "key": str(tls.key)}
    return merged(
        {
            "server": server,
            "kafka": {"bootstrap_servers": bootstrap},
            "sources": [{"type": "kafka", "topic": topic, **sizes.source} for topic in topics],
        },
        {} if can_replay() else _lossless_window(sizes),
        sizes.settings,
    )


def can(ability: Literal["replay", "metrics"]) -> bool:
    """Return whether the gateway of this tree can do that at all."""
    return can_replay() if ability == "replay" else "metrics" in Settings.__dataclass_fields__


@cache
def can_replay() -> bool:
    """Return whether the gateway reads again from Kafka what has left its window."""
    try:
        SubscriberSettings.model_validate({"overflow": "replay"})
    except ValidationError:
        return False
    return True


def _lossless_window(sizes: Sizes) -> Mapping[str, object]:
    """Size a window that holds the whole run. Without replay only this makes a run lossless in which some
    client is slower than the broker."""
    if sizes.topics > 1:
        return {}
    window = sizes.total * (sizes.size + 256) + 64 * _MIB
    return {"window": {"events": sizes.total, "bytes": window, "memory_bytes": 2 * window + 512 * _MIB}}


def merged(*layers: Mapping[str, object]) -> dict[str, Any]:
    """Merge nested mappings into one; a later one wins, key by key."""
    whole: dict[str, Any] = {}
    for layer in layers:
        for name, value in layer.items():
            old = whole.get(name)
            whole[name] = (
                merged(old, value) if isinstance(old, Mapping) and isinstance(value, Mapping) else value
            )
    return whole


def new_certificate(folder: Path) -> Certificate:
    """Make a certificate for this machine's loopback that vouches for itself for a day (P-256)."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "kiwi-gw benchmark")])
    now = datetime.datetime.now(datetime.UTC)
    cert = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(hours=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    made = Certificate(folder / "cert.pem", folder / "key.pem")
    made.cert.write_bytes(cert.public_bytes(serialization.Encoding.PEM))
    made.key.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )
    return made
