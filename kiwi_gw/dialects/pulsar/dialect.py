"""Pulsar's REST interface as a dialect of the gateway: its routes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from msgspec import Struct

from kiwi_gw.core.commands import Session
from kiwi_gw.dialect_api.dialect import Document, Route
from kiwi_gw.dialect_api.http import ErrorPages, HttpRequest, HttpRoute
from kiwi_gw.dialect_api.limits import SessionLimits
from kiwi_gw.dialects.pulsar.broker_shape import BrokerProducing
from kiwi_gw.dialects.pulsar.errors import JSON, broker_page, page
from kiwi_gw.dialects.pulsar.messages import (
    BrokerAnswer,
    BrokerRequest,
    PartitionPath,
    ProduceAnswer,
    ProduceRequest,
    ReadAnswer,
    ReadParameters,
    TopicPath,
)
from kiwi_gw.dialects.pulsar.producing import Producing
from kiwi_gw.dialects.pulsar.reading import Reading
from kiwi_gw.dialects.pulsar.settings import PulsarSettings
from kiwi_gw.model import HeadCredential, Identity

ROOT = "/topics"
TOPIC = ROOT + "/{tenant}/{namespace}/{topic}"
BROKER_ROOT = ROOT + "/persistent"
BROKER_TOPIC = BROKER_ROOT + "/{tenant}/{namespace}/{topic}"
PARTITION = "/partitions/{partition}"

MOST_BYTES = 1 << 20
"""Of a request's body, and of what it is when it is inflated."""


@dataclass(frozen=True, slots=True)
class PulsarDialect:
    """Implement `kiwi_gw.dialect_api.Dialect`."""

    settings: PulsarSettings

    @property
    def routes(self) -> Sequence[Route]:
        own, broker = Producing(self.settings), BrokerProducing(self.settings)
        routes: list[Route] = [
            ErrorPages(ROOT, page),
            _post(own, TOPIC, own.to_topic, TopicPath, ProduceRequest, ProduceAnswer),
            _post(own, TOPIC + PARTITION, own.to_partition, PartitionPath, ProduceRequest, ProduceAnswer),
            HttpRoute(
                "GET",
                TOPIC + PARTITION + "/messages",
                Reading(self.settings).messages,
                ReadParameters,
                bytes,
                ReadAnswer,
                pages=True,
                error_type=JSON,
            ),
        ]
        if self.settings.broker_shape:
            routes += [
                ErrorPages(BROKER_ROOT, broker_page),
                _post(broker, BROKER_TOPIC, broker.to_topic, TopicPath, BrokerRequest, BrokerAnswer),
                _post(
                    broker,
                    BROKER_TOPIC + PARTITION,
                    broker.to_partition,
                    PartitionPath,
                    BrokerRequest,
                    BrokerAnswer,
                ),
            ]
        return routes

    @property
    def documents(self) -> Mapping[str, Document]:
        return {}

    def open_session(
        self, head: HeadCredential, parameters: Mapping[str, str], identity: Identity, limits: SessionLimits
    ) -> Session:
        raise NotImplementedError("it has no route over WebSocket")


def _post(
    producing: Producing | BrokerProducing,
    path: str,
    answer: Callable[[HttpRequest[Any, bytes]], Any],
    parameters: type[Struct],
    shown: type[Struct],
    returns: type[Struct],
) -> Route:
    return HttpRoute(
        "POST",
        path,
        answer,
        parameters,
        bytes,
        returns,
        MOST_BYTES,
        pages=True,
        json_only=True,
        shown=shown,
        admit=producing.admit,
        error_type=JSON,
    )
