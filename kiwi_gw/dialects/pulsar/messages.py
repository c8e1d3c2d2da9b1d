"""Declare what is asked for and answered: structs that validate requests, and make the OpenAPI document."""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal

from msgspec import Meta, Raw, Struct, field

MOST_MESSAGES = 10_000
MOST_READ_BYTES = 16 << 20
MOST_TIMEOUT = 60_000
MOST_PROPERTIES = 1_000
MOST_ALL_PROPERTIES = 10_000
"""Of all messages of a request."""

SEQUENCE = "__pulsar.sequence"
"""The header that keeps a message's sequenceId."""

NOTHING = Raw(b"")
"""A member that is not there."""


def _nothing() -> Raw:
    return NOTHING


ABSENT: Final = (b"", b"null")


def is_absent(given: Raw) -> bool:
    """Return whether a member is not there, or null."""
    return bytes(given) in ABSENT


Int64 = Annotated[int, Meta(ge=-(2**63), le=2**63 - 1, description="an integer of 64 bits")]
Time = Annotated[int, Meta(ge=0, le=2**63 - 1, description="milliseconds since 1970, an integer")]
Properties = Annotated[
    dict[str, str],
    Meta(max_length=MOST_PROPERTIES, description=f"an object of at most {MOST_PROPERTIES:,} strings"),
]
Partition = Annotated[int, Meta(ge=0, le=2**31 - 1, description="an integer from 0 to 2^31 - 1")]


class SchemasAsked(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Say what values and keys are. schema_type: of all of them, in any case; without, it is that of the
    topic. schema_version: of the values' schema, which counts more than value_schema. key_schema,
    value_schema: a SchemaInfo, or its JSON text."""

    schema_type: Annotated[str, Meta(description="a string")] | None = None
    schema_version: Int64 | None = None
    key_schema: Raw = field(default_factory=_nothing)
    value_schema: Raw = field(default_factory=_nothing)

    @property
    def say_nothing(self) -> bool:
        """Return whether it says nothing of them."""
        none = self.schema_type is None and self.schema_version is None
        return none and is_absent(self.key_schema) and is_absent(self.value_schema)


class TopicPath(Struct, frozen=True, forbid_unknown_fields=True):
    """Name a topic."""

    tenant: str
    namespace: str
    topic: str


class PartitionPath(Struct, frozen=True, forbid_unknown_fields=True):
    """Name a partition of a topic."""

    tenant: str
    namespace: str
    topic: str
    partition: Annotated[
        str, Meta(pattern=r"^[0-9]{1,10}(?!\n)$", description="an integer from 0 to 2^31 - 1, in digits")
    ]


Timeout = Annotated[
    int, Meta(ge=0, le=MOST_TIMEOUT, description=f"milliseconds, an integer from 0 to {MOST_TIMEOUT:,}")
]
MostMessages = Annotated[
    int, Meta(ge=1, le=MOST_MESSAGES, description=f"an integer from 1 to {MOST_MESSAGES:,}; else 100")
]
MostBytes = Annotated[
    int, Meta(ge=1, le=MOST_READ_BYTES, description=f"an integer from 1 to {MOST_READ_BYTES:,}; else 1048576")
]
ConsumerName = Annotated[
    str, Meta(min_length=1, max_length=200, description="a string of 1 to 200 characters")
]
SubscriptionName = Annotated[
    str, Meta(min_length=1, max_length=200, description="a name of 1 to 200 characters")
]
MessageIds = Annotated[
    list[Annotated[str, Meta(max_length=64, description="an id of a message")]],
    Meta(max_length=MOST_MESSAGES, description=f"an array of at most {MOST_MESSAGES:,} ids of messages"),
]


class ReadParameters(PartitionPath, frozen=True, forbid_unknown_fields=True):
    """Say what to read. timeout: how long it may take until there is something. max_messages, max_bytes: of
    the messages, encoded, of which one always passes; for lines without them there is no bound."""

    from_: Annotated[
        str,
        Meta(
            pattern=r"^(earliest|latest|[0-9]{1,18}|[A-Za-z0-9+/_= -]{8,64})(?!\n)$",
            description="earliest, latest, milliseconds since 1970 or an id of a message",
        ),
    ] = field(name="from", default="earliest")
    timeout: Timeout = 3_000
    max_messages: MostMessages | None = None
    max_bytes: MostBytes | None = None
    include_schema: Annotated[bool, Meta(description="true or false")] = False


class SchemaRead(Struct, frozen=True):
    """Say what values are. data: the definition, in base64; empty where there is none."""

    type: str
    version: int | None
    data: str
    properties: dict[str, str]


class MessageRead(Struct, frozen=True, omit_defaults=True):
    """A message that was read. payload, keyPayload: in base64, where value or key cannot be decoded and are
    null. Properties that are no text are null."""

    messageId: str  # noqa: N815
    key: Any
    value: Any
    partition: int
    properties: dict[str, str | None]
    eventTime: int | None  # noqa: N815
    sequenceId: int | None  # noqa: N815
    replicationClusters: list[str]  # noqa: N815
    payload: str | None = None
    keyPayload: str | None = None  # noqa: N815


class MessagesLost(Struct, frozen=True):
    """A run of messages that were deleted before they could be read: the ids of both ends."""

    first: str
    last: str


class ErrorBeside(Struct, frozen=True):
    """Say why nothing more comes."""

    error_code: int
    message: str


class ReadAnswer(Struct, frozen=True, omit_defaults=True):
    """The messages that were read, in their order. next: the id to go on from, without gap or repetition."""

    messages: list[MessageRead]
    next: str
    schemas: list[SchemaRead] | None = None
    lost: list[MessagesLost] | None = None
    error: ErrorBeside | None = None


class SubscriptionPath(Struct, frozen=True, forbid_unknown_fields=True):
    """Name a subscription of a topic."""

    tenant: str
    namespace: str
    topic: str
    subscription: SubscriptionName


class ForgetParameters(SubscriptionPath, frozen=True, forbid_unknown_fields=True):
    """Name a subscription that is to be forgotten. force: also if it has consumers."""

    force: Annotated[bool, Meta(description="true or false")] = False


class ConsumerPath(SubscriptionPath, frozen=True, forbid_unknown_fields=True):
    """Name a consumer by its id."""

    consumer: Annotated[str, Meta(max_length=200, description="an id of at most 200 characters")]


class FetchParameters(ConsumerPath, frozen=True, forbid_unknown_fields=True):
    """Say what to fetch, as for reading."""

    timeout: Timeout = 3_000
    max_messages: MostMessages | None = None
    max_bytes: MostBytes | None = None


class NewConsumer(SchemasAsked, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A consumer that is wanted. name: by which it is shown. id: of one that is there, to use it again. type:
    of the subscription. start: where a new subscription begins. ackTimeoutMs: after so long what was not
    acknowledged comes back; 0: never. Of the schemas: what is read by them names none itself."""

    name: ConsumerName | None = None
    id: Annotated[str, Meta(max_length=200, description="an id of at most 200 characters")] | None = None
    type: Literal["shared", "key_shared", "failover", "exclusive"] | None = None
    start: Literal["earliest", "latest"] = "latest"
    ackTimeoutMs: Annotated[  # noqa: N815
        int, Meta(ge=0, le=86_400_000, description="milliseconds, an integer from 0 to 86,400,000")
    ] = 60_000


class Nothing(Struct, frozen=True):
    """There is nothing to say (204)."""


class ConsumerMade(Struct, frozen=True):
    """A consumer. base_uri: where it is asked for messages, and removed."""

    id: str
    base_uri: str


class MessageGiven(MessageRead, frozen=True, omit_defaults=True):
    """A message that was fetched. redeliveryCount: how often it was delivered before."""

    redeliveryCount: int = 0  # noqa: N815


class FetchAnswer(Struct, frozen=True):
    """The messages that the consumer has now, until it acknowledges them or they come back."""

    messages: list[MessageGiven]


class CursorRequest(Struct, frozen=True, forbid_unknown_fields=True):
    """What to do with the cursor. messageIds: of the messages that are acknowledged (one by one, or with all
    before them), or are to come back. to: for a reset, where to go on: earliest, latest, milliseconds since
    1970, or ids of messages, which come first."""

    type: Literal["individual", "single", "cumulative", "negative", "reset"]
    messageIds: MessageIds = []  # noqa: N815  (msgspec copies it)
    to: str | int | MessageIds | None = None


class ConsumerSeen(Struct, frozen=True):
    """A consumer of this gateway. pending: messages that it has and has not acknowledged."""

    id: str
    name: str
    pending: int


class PartitionSeen(Struct, frozen=True):
    """How far a subscription is in a partition. position: the first message that is not acknowledged.
    acknowledged: the first 100 runs above it. lag: offsets that are left."""

    position: str
    acknowledged: list[tuple[str, str]]
    pending: int
    lag: int


class CursorSeen(Struct, frozen=True):
    """The cursor of a subscription. type: null where this gateway has no consumers of it. partitions: by
    number."""

    type: str | None
    consumers: list[ConsumerSeen]
    partitions: dict[str, PartitionSeen]


class CursorAnswer(Struct, frozen=True):
    """How far a subscription is."""

    cursor: CursorSeen


class MessageToSend(Struct, frozen=True, forbid_unknown_fields=True, gc=False):
    """A message to be written. key: a string, or as the key's schema has it. value: as the schema has it;
    null for a tombstone. deliverAt, deliverAfterMs, replicationClusters, disableReplication: what Kafka
    cannot do is refused."""

    value: Raw
    key: Raw = field(default_factory=_nothing)
    partition: Partition | None = None
    properties: Properties | None = None
    eventTime: Time | None = None  # noqa: N815  (as it is sent)
    sequenceId: Int64 | None = None  # noqa: N815
    replicationClusters: list[str] | None = None  # noqa: N815
    disableReplication: bool | None = None  # noqa: N815
    deliverAt: Int64 | None = None  # noqa: N815
    deliverAfterMs: Int64 | None = None  # noqa: N815


Messages = Annotated[
    list[MessageToSend],
    Meta(min_length=1, max_length=MOST_MESSAGES, description=f"an array of 1 to {MOST_MESSAGES:,} messages"),
]


class ProduceRequest(SchemasAsked, frozen=True, forbid_unknown_fields=True):
    """Messages to be written to a topic."""

    messages: Messages


class LooseRequest(Struct, frozen=True, forbid_unknown_fields=True):
    """The same, with messages that are not looked at yet."""

    messages: list[Raw]
    schema_type: Raw = field(default_factory=_nothing)
    schema_version: Raw = field(default_factory=_nothing)
    key_schema: Raw = field(default_factory=_nothing)
    value_schema: Raw = field(default_factory=_nothing)


class MessageWritten(Struct, frozen=True, gc=False):
    """Say what became of a message. partition, messageId: null where it was not written. error_code: 1, it
    cannot be written; 2, it may be another time, or nobody knows whether it was; null: it was written."""

    partition: int | None
    messageId: str | None  # noqa: N815
    error_code: int | None
    error: str | None


class ProduceAnswer(Struct, frozen=True):
    """Say what became of the messages, in their order. schema_version: of the values' schema; null: it is in
    no registry."""

    schema_version: int | None
    messageIds: list[MessageWritten]  # noqa: N815


class BrokerMessage(Struct, frozen=True, gc=False):
    """A message in the form of Pulsar's brokers. payload: text that the schema makes bytes of."""

    payload: str | None = None
    key: str | None = None
    properties: Properties | None = None
    eventTime: Time | str | None = None  # noqa: N815
    sequenceId: Int64 | None = None  # noqa: N815
    replicationClusters: list[str] | None = None  # noqa: N815
    disableReplication: bool | None = None  # noqa: N815
    deliverAt: Int64 | None = None  # noqa: N815
    deliverAfterMs: Int64 | None = None  # noqa: N815


BrokerMessages = Annotated[
    list[BrokerMessage],
    Meta(min_length=1, max_length=MOST_MESSAGES, description=f"an array of 1 to {MOST_MESSAGES:,} messages"),
]


class BrokerRequest(Struct, frozen=True):
    """Messages to be written, in the form of Pulsar's brokers. keySchema, valueSchema: JSON text of a
    SchemaInfo. Other members are not looked at."""

    messages: BrokerMessages
    producerName: str | None = None  # noqa: N815
    schemaVersion: Int64 | None = None  # noqa: N815
    keySchema: str | None = None  # noqa: N815
    valueSchema: str | None = None  # noqa: N815


class PublishResult(Struct, frozen=True, omit_defaults=True, gc=False):
    """Say what became of a message. messageId: `LEDGER:OFFSET:PARTITION`. errorCode: 0, it was written; 2, it
    was not, or nobody knows."""

    errorCode: Annotated[int, Meta(description="0 or 2")]  # noqa: N815
    messageId: str | None = None  # noqa: N815
    errorMsg: str | None = None  # noqa: N815
    schemaVersion: int | None = None  # noqa: N815


class BrokerAnswer(Struct, frozen=True):
    """Say what became of the messages, in their order."""

    messagePublishResults: list[PublishResult]  # noqa: N815
    schemaVersion: int = 0  # noqa: N815
