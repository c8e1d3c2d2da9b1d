"""Settings as a file: what is in force, and a file to start from."""

from __future__ import annotations

from collections.abc import Mapping

import yaml

from kiwi_gw.api import Section
from kiwi_gw.config.schema import OWN_SECTIONS, Settings, SourceSettings


def show(settings: Settings) -> str:
    """Return the settings in force as YAML, with defaults; secrets are masked."""
    return yaml.safe_dump(shown(settings), sort_keys=False, allow_unicode=True, width=110)


def shown(settings: Settings) -> dict[str, object]:
    """Return the settings in force as plain data, for JSON."""
    return {
        "name": settings.name,
        "plugins": list(settings.plugins),
        "sources": [_source(source, settings) for source in settings.sources.values()],
        **_dumped(settings.sections),
        **{key: getattr(settings, key).model_dump(mode="json") for key in OWN_SECTIONS},
        **_dumped(settings.dialects),
    }


def _dumped(sections: Mapping[str, Section]) -> dict[str, object]:
    return {name: section.model_dump(mode="json", by_alias=True) for name, section in sections.items()}


def _source(source: SourceSettings, settings: Settings) -> dict[str, object]:
    shown: dict[str, object] = {"type": source.type, "id": source.id}
    shown.update(source.settings.model_dump(mode="json", by_alias=True))
    shown["id"] = source.id
    for key in ("subscriber", "window"):
        general, own = (getattr(one, key).model_dump(mode="json") for one in (settings, source))
        if own != general:
            shown[key] = {name: value for name, value in own.items() if value != general[name]}
    for name, block in source.blocks.items():
        if block != type(block)():
            shown[name] = block.model_dump(mode="json", by_alias=True, exclude_defaults=True)
    return shown


def init() -> str:
    """Return a commented file to start from. It is valid as it is."""
    return _STARTER


_STARTER = """\
# kiwi-gw: live sources for everyone who wants to watch them.
# Check this file with:   kiwi-gw validate --config FILE
# See what is in force:   kiwi-gw config show --config FILE
# Keys for your editor:   kiwi-gw config schema > kiwi-gw.schema.json
# yaml-language-server: $schema=kiwi-gw.schema.json

# Values may hold ${VARIABLE}, ${VARIABLE:-default} and ${file:/run/secrets/name}; $$ is a plain $.
# Any key can also be set from the environment: KIWI_GW_SERVER__ADDRESS=0.0.0.0:8000
# Times are milliseconds or '10s', sizes bytes or '64KiB'.

sources:
  # Counts, so that there is something to see.
  - type: counter
    id: ticks
    min: 0
    interval_ms: 1000

  # A Kafka topic. Needs: pip install 'kiwi-gw[kafka]'
  # - type: kafka
  #   topic: orders
  #   id: orders            # default: the topic
  #   subscriber:           # what holds for this source only
  #     buffer_capacity: 10000

# kafka:
#   bootstrap_servers: ${KAFKA:-127.0.0.1:9092}

server:
  address: 127.0.0.1:8000
  # tls:
  #   cert: /etc/kiwi/tls/tls.crt
  #   key: /etc/kiwi/tls/tls.key
  # Web pages of other origins that may connect.
  # allowed_origins: [https://app.example.com]

# What happens to a client that falls behind.
subscriber:
  # buffer_capacity: 65536  # events; default: as many as the window holds
  # overflow: close         # default: replay where the source can be read again, else drop_oldest
  # allow: [replay, drop_oldest, latest, close]  # what clients may ask for

# Recent events that are kept in memory, per source.
window:
  events: 65536
  bytes: 64MiB
  memory_bytes: 512MiB      # all sources together

logging:
  level: info
"""
