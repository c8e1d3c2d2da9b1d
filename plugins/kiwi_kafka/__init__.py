"""The source type `kafka`: topics of one cluster, read by a small pool of consumers without a group."""

from __future__ import annotations

from kiwi_kafka.diagnostics import check_kafka
from kiwi_kafka.plugin import KAFKA, check, config_sections, services, source_types
from kiwi_kafka.service import Kafka, open_kafka
from kiwi_kafka.settings import KafkaSettings, KafkaSourceSettings
from kiwi_kafka.source import KafkaSource

__all__ = [
    "KAFKA",
    "Kafka",
    "KafkaSettings",
    "KafkaSource",
    "KafkaSourceSettings",
    "check",
    "check_kafka",
    "config_sections",
    "open_kafka",
    "services",
    "source_types",
]
