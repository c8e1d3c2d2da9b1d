"""Pulsar's REST interface as a dialect of the gateway: its routes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from msgspec import Struct

from kiwi_gw.core.commands import Session
from kiwi_gw.dialect_api.dialect import Document, Route
from kiwi_gw.dialect_api.http import ClientRights, ErrorPages, HttpRequest, HttpRoute
from kiwi_gw.dialect_api.limits import SessionLimits
from kiwi_gw.dialects.pulsar.broker_shape import BrokerProducing
from kiwi_gw.dialects.pulsar.consumer_ids import ConsumerIds
from kiwi_gw.dialects.pulsar.consuming import Consuming
from kiwi_gw.dialects.pulsar.cursors import Cursors
from kiwi_gw.dialects.pulsar.errors import JSON, broker_page, page
from kiwi_gw.dialects.pulsar.messages import (
    BrokerAnswer,
    BrokerRequest,
    ConsumerMade,
    ConsumerPath,
    CursorAnswer,
    CursorRequest,
    FetchAnswer,
    FetchParameters,
    ForgetParameters,
    NewConsumer,
    Nothing,
    PartitionPath,
    ProduceAnswer,
    ProduceRequest,
    ReadAnswer,
    ReadParameters,
    SubscriptionPath,
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
SUBSCRIPTION = TOPIC + "/subscription/{subscription}"

MOST_BYTES = 1 << 20
"""Of a request's body, and of what it is when it is inflated."""


@dataclass(frozen=True, slots=True)
class PulsarDialect:
    """Implement `kiwi_gw.dialect_api.Dialect`. consumer_ids: None: there can be no consumers."""

    settings: PulsarSettings
    consumer_ids: ConsumerIds | None

    @property
    def routes(self) -> Sequence[Route]:
        own, broker = Producing(self.settings), BrokerProducing(self.settings)
        reading = Reading(self.settings)
        routes: list[Route] = [
            ErrorPages(ROOT, page),
            *_producing(own, TOPIC, ProduceAnswer, ProduceRequest),
            _route("GET", TOPIC + PARTITION + "/messages", reading.messages, ReadParameters, ReadAnswer),
        ]
        routes += _subscriptions(self.settings, self.consumer_ids)
        if self.settings.broker_shape:
            routes += [
                ErrorPages(BROKER_ROOT, broker_page),
                *_producing(broker, BROKER_TOPIC, BrokerAnswer, BrokerRequest),
            ]
        return routes

    @property
    def documents(self) -> Mapping[str, Document]:
        return {}

    def open_session(
        self, head: HeadCredential, parameters: Mapping[str, str], identity: Identity, limits: SessionLimits
    ) -> Session:
        raise NotImplementedError("it has no route over WebSocket")


def _producing(
    producing: Producing | BrokerProducing, topic: str, returns: type[Struct], shown: type[Struct]
) -> Sequence[Route]:
    """Return the routes that write to a topic, and to one partition of it."""
    to_topic, to_partition, admit = producing.to_topic, producing.to_partition, producing.admit
    return (
        _route("POST", topic, to_topic, TopicPath, returns, shown, admit=admit),
        _route("POST", topic + PARTITION, to_partition, PartitionPath, returns, shown, admit=admit),
    )


def _subscriptions(settings: PulsarSettings, ids: ConsumerIds | None) -> Sequence[Route]:
    """Return the routes of subscriptions. A consumer is asked under both names that the document has."""
    consuming = Consuming(settings, ids)
    cursors = Cursors(settings, consuming.local)
    cursor, consumer = SUBSCRIPTION + "/cursor", SUBSCRIPTION + "/{what}/{consumer}"
    routes: list[Route] = [
        _route(
            "POST",
            SUBSCRIPTION,
            consuming.create,
            SubscriptionPath,
            ConsumerMade,
            NewConsumer,
            admit=consuming.admit_new,
        ),
        _route("DELETE", SUBSCRIPTION, cursors.forget, ForgetParameters, Nothing),
        _route("GET", cursor, cursors.see, SubscriptionPath, CursorAnswer),
        _route(
            "POST",
            cursor,
            cursors.change,
            SubscriptionPath,
            CursorAnswer,
            CursorRequest,
            admit=cursors.admit_change,
        ),
    ]
    for word in ("consumer", "consumers"):
        path = consumer.replace("{what}", word)
        routes += [
            # HEAD would take messages unseen.
            _route("GET", path + "/messages", consuming.fetch, FetchParameters, FetchAnswer, head=False),
            _route("DELETE", path, consuming.remove, ConsumerPath, Nothing),
        ]
    return routes


def _route(
    method: str,
    path: str,
    answer: Callable[[HttpRequest[Any, bytes]], Any],
    parameters: type[Struct],
    returns: type[Struct],
    shown: type[Struct] | None = None,
    *,
    head: bool = True,
    admit: Callable[[Any, ClientRights], object] | None = None,
) -> Route:
    return HttpRoute(
        method,
        path,
        answer,
        parameters,
        bytes,
        returns,
        MOST_BYTES if shown is not None else 0,
        pages=True,
        json_only=True,
        shown=shown,
        admit=admit,
        error_type=JSON,
        empty=returns is Nothing,
        body_required=shown is not NewConsumer,
        head=head,
    )
