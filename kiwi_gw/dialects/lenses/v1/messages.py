"""What is said in Lenses v1: the envelope of a request, what its `content` holds, and what is answered.

`content` of a request is a string that holds JSON, so a request is read twice.
"""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import UNSET, Meta, Raw, Struct, UnsetType

Int64 = Annotated[int, Meta(ge=-(2**63), le=2**63 - 1, description="an integer of 64 bits")]
Offset = Annotated[int, Meta(ge=0, le=2**63 - 2, description="an integer from 0 to 2^63 - 2")]
Partition = Annotated[int, Meta(ge=0, le=2**31 - 1, description="an integer from 0 to 2^31 - 1")]
Text = Annotated[str, Meta(description="a string")]
Table = Annotated[str, Meta(min_length=1, max_length=255, description="a string of 1 to 255 characters")]

RequestType = Literal["LOGIN", "SUBSCRIBE", "UNSUBSCRIBE", "PUBLISH", "COMMIT"]


class Request(Struct, frozen=True, rename="camel"):
    """Hold what every request has. Members that there are not are ignored."""

    type: Annotated[
        RequestType, Meta(description="LOGIN, SUBSCRIBE, UNSUBSCRIBE, PUBLISH or COMMIT, in capitals")
    ]
    correlation_id: Int64
    content: Annotated[str, Meta(description="a string that holds JSON")]
    auth_token: Annotated[str, Meta(description="a string")] | None = None

    def __repr__(self) -> str:
        return f"Request({self.type!r}, {self.correlation_id}, ...)"  # a password may be in it


class Login(Struct, frozen=True):
    """A user and a password."""

    user: Text
    password: Text

    def __repr__(self) -> str:
        return f"Login({self.user!r}, ...)"


class Subscribe(Struct, frozen=True):
    """What is to be subscribed to, each in SQL."""

    sqls: Annotated[list[Text], Meta(min_length=1, max_length=32, description="a list of 1 to 32 strings")]


class TopicName(Struct, frozen=True):
    """The form of a topic in the document's template of UNSUBSCRIBE."""

    topic: Table


class Unsubscribe(Struct, frozen=True):
    """The topics that are to end, as strings or in the document's other form."""

    topics: Annotated[
        list[Table | TopicName], Meta(max_length=1_000, description="a list of at most 1,000 topics")
    ]


class Publish(Struct, frozen=True):
    """One record. key, value: a string is its UTF-8, other JSON its text, null or absent: null. ktype, vtype:
    how they are encoded."""

    topic: Table
    key: Raw = Raw(b"null")
    value: Raw = Raw(b"null")
    ktype: Text = "STRING"
    vtype: Text = "STRING"
    partition: Partition | None = None


class CommittedOffset(Struct, frozen=True):
    """The offset of a record that is done."""

    topic: Table
    partition: Partition
    offset: Offset


class Commit(Struct, frozen=True):
    """The records that are done."""

    commits: Annotated[
        list[CommittedOffset],
        Meta(min_length=1, max_length=1_000, description="a list of 1 to 1,000 objects"),
    ]


Content = Login | Subscribe | Unsubscribe | Publish | Commit

CONTENTS: dict[str, type[Content]] = {
    "LOGIN": Login,
    "SUBSCRIBE": Subscribe,
    "UNSUBSCRIBE": Unsubscribe,
    "PUBLISH": Publish,
    "COMMIT": Commit,
}
"""What `content` holds, by the type of its request."""


class _Answer(Struct, frozen=True, rename="camel", tag_field="type"):
    correlation_id: int
    content: str


class Success(_Answer, frozen=True, tag="SUCCESS"):
    """What was asked for is done. Every request gets exactly one of these three."""


class Error(_Answer, frozen=True, tag="ERROR"):
    """It is not done, or no longer: content says why."""


class InvalidRequest(Struct, frozen=True, rename="camel", tag_field="type", tag="INVALIDREQUEST"):
    """It is no request. correlation_id: null, if it has none that can be read."""

    correlation_id: int | None
    content: str


class Lost(Struct, frozen=True):
    """Records of a partition that were given up, from the first offset to the last."""

    topic: str
    partition: int
    first: int
    last: int


class EndedTopic(Struct, frozen=True):
    """A topic whose subscription is over as it was asked for."""

    topic: str
    reason: Literal["limit"]


class Heartbeat(Struct, frozen=True, omit_defaults=True, tag="HEARTBEAT", tag_field="type"):
    """Sent where nothing else was for a while; or at once, if it has something to say.

    dropped: records that were given up since the last that said so; null: the source does not know. lost:
    which, where that is known. ended: what is over.
    """

    lost: tuple[Lost, ...] | UnsetType = UNSET
    dropped: int | UnsetType | None = UNSET
    ended: tuple[EndedTopic, ...] | UnsetType = UNSET


class KafkaRecord(Struct, frozen=True, omit_defaults=True):
    """One record. key, value: absent where they are null."""

    topic: str
    partition: int
    offset: int
    timestamp: int
    key: str | UnsetType = UNSET
    value: str | UnsetType = UNSET


class KafkaMessage(Struct, frozen=True, rename="camel", tag="KAFKAMSG", tag_field="type"):
    """Records of a topic, with the id of their SUBSCRIBE."""

    content: list[KafkaRecord]
    correlation_id: int


ServerMessage = Success | Error | InvalidRequest | Heartbeat | KafkaMessage
