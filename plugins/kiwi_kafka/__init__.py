"""The source type `kafka`: topics of one cluster, read by a small pool of consumers without a group."""

from __future__ import annotations

from kiwi_kafka.diagnostics import check_kafka as check_kafka
from kiwi_kafka.plugin import KAFKA as KAFKA
from kiwi_kafka.plugin import check as check
from kiwi_kafka.plugin import config_sections as config_sections
from kiwi_kafka.plugin import configure as configure
from kiwi_kafka.plugin import services as services
from kiwi_kafka.plugin import source_types as source_types
from kiwi_kafka.service import Kafka as Kafka
from kiwi_kafka.service import open_kafka as open_kafka
from kiwi_kafka.settings import KafkaSettings as KafkaSettings
from kiwi_kafka.settings import KafkaSourceSettings as KafkaSourceSettings
from kiwi_kafka.source import KafkaSource as KafkaSource
