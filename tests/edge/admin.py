"""Asking the admin address."""

from __future__ import annotations

import json
from typing import Any

import trio
from prometheus_client.parser import text_string_to_metric_families

Samples = dict[tuple[str, tuple[tuple[str, str], ...]], float]
"""Values by name and sorted labels."""


async def ask(
    address: str, path: str, method: str = "GET", headers: dict[str, str] | None = None
) -> tuple[int, dict[str, str], bytes]:
    """Status, headers and body of one request to host:port."""
    host, _, port = address.rpartition(":")
    lines = [f"{method} {path} HTTP/1.1", "Connection: close"]
    lines += [f"{name}: {value}" for name, value in {"Host": address, **(headers or {})}.items()]
    async with await trio.open_tcp_stream(host, int(port)) as stream:
        await stream.send_all("\r\n".join(lines).encode() + b"\r\n\r\n")
        answer = b"".join([bytes(chunk) async for chunk in stream])
    top, _, body = answer.partition(b"\r\n\r\n")
    first, *rest = top.decode().split("\r\n")
    return int(first.split()[1]), {k.lower(): v for k, v in (line.split(": ", 1) for line in rest)}, body


async def fetch(address: str, path: str, headers: dict[str, str] | None = None) -> Any:
    """The JSON of a page."""
    status, _, body = await ask(address, path, headers=headers)
    assert status == 200, (status, body)
    return json.loads(body)


async def scrape(address: str, headers: dict[str, str] | None = None) -> Samples:
    """Everything that `/metrics` says."""
    status, _, body = await ask(address, "/metrics", headers=headers)
    assert status == 200, (status, body)
    return samples(body.decode())


def samples(text: str) -> Samples:
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def value(found: Samples, name: str, **labels: str) -> float:
    """One sample of ours; KeyError if it is not there."""
    return found[f"kiwigw_{name}", tuple(sorted(labels.items()))]
