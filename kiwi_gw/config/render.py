"""Settings as a file: what is in force, and a file to start from."""

from __future__ import annotations

import yaml

from kiwi_gw.config.schema import Settings, SourceSettings


def show(settings: Settings) -> str:
    """What is in force, defaults included, as YAML; secrets are masked."""
    return yaml.safe_dump(shown(settings), sort_keys=False, allow_unicode=True, width=110)


def shown(settings: Settings) -> dict[str, object]:
    """The same as plain data, for JSON."""
    return {
        "name": settings.name,
        "plugins": list(settings.plugins),
        "sources": [_source(source, settings) for source in settings.sources.values()],
        **{
            name: section.model_dump(mode="json", by_alias=True)
            for name, section in settings.sections.items()
        },
        "server": settings.server.model_dump(mode="json"),
        "subscriber": settings.subscriber.model_dump(mode="json"),
        "window": settings.window.model_dump(mode="json"),
        "logging": settings.logging.model_dump(mode="json"),
        "metrics": settings.metrics.model_dump(mode="json"),
        "kiwi": settings.kiwi.model_dump(mode="json"),
        "zetta": settings.zetta.model_dump(mode="json"),
    }


def _source(source: SourceSettings, settings: Settings) -> dict[str, object]:
    shown: dict[str, object] = {"type": source.type, "id": source.id}
    shown.update(source.settings.model_dump(mode="json", by_alias=True))
    shown["id"] = source.id
    general = settings.subscriber.model_dump(mode="json")
    own = source.subscriber.model_dump(mode="json")
    if own != general:
        shown["subscriber"] = {key: value for key, value in own.items() if value != general[key]}
    general = settings.window.model_dump(mode="json")
    own = source.window.model_dump(mode="json")
    if own != general:
        shown["window"] = {key: value for key, value in own.items() if value != general[key]}
    for name, block in source.blocks.items():
        if block != type(block)():
            shown[name] = block.model_dump(mode="json", exclude_defaults=True)
    return shown


def init() -> str:
    """A commented file to start from. It is valid as it is."""
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
