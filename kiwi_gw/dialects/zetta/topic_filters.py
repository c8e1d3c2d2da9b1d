"""What the topic of a subscription asks for: a pattern of topics or of devices, and a query over those."""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import blake2b
from typing import TYPE_CHECKING, Final

from kiwi_gw.core.notices import Unanswered
from kiwi_gw.dialects.compiling import BUSY
from kiwi_gw.dialects.zetta.topics import Topic, TopicError, TopicPattern, parse
from kiwi_gw.query.errors import QueryError
from kiwi_gw.query.limits import MAX_KEPT, MAX_TEXT
from kiwi_gw.query.weighted_lru import WeightedLru
from kiwi_gw.query.worker_messages import caql_question, decode_answer, is_small

if TYPE_CHECKING:
    from kiwi_gw.query.compiler import CompiledQuery

EVENT_ROOTS: Final = ("data", "topic", "timestamp")
DEVICE_ROOTS: Final = ("device", "id", "type", "name", "state")
"""The first is the description itself."""


@dataclass(frozen=True, slots=True)
class TopicFilter:
    """Describe what a subscription wants.

    pattern: of concrete topics; of servers, if it asks for devices. query: None if all that match are wanted
    as they are; key: equal for queries that give the same. projects: whether the query selects something.
    """

    pattern: TopicPattern
    devices: bool = False
    query: CompiledQuery | None = None
    key: str = ""
    projects: bool = False

    @property
    def concrete(self) -> bool:
        """Return whether it names the one topic that it means."""
        return self.pattern.concrete and not self.devices


@dataclass(frozen=True, slots=True)
class ParsedTopic:
    """Hold the topic of a subscription, read as far as that takes no time."""

    text: str
    topic: Topic

    @property
    def roots(self) -> tuple[str, ...]:
        """Return the roots that its query sees."""
        return DEVICE_ROOTS if self.topic.of_devices else EVENT_ROOTS

    @property
    def question(self) -> bytes | None:
        """Return the question about its query for a worker; None: it is read and compiled in no time."""
        query = self.topic.query
        return None if query is None or is_small(query) else caql_question(query, self.roots)


def parse_topic(text: str, most_bytes: int = MAX_TEXT) -> ParsedTopic:
    """Read the topic of a subscription, but not its query. most_bytes: of that. Raises ValueError, in words
    with the position, if the text is not a topic or was refused lately."""
    known = _refused.known(text)
    if known is not None:
        raise ValueError(known)
    try:
        topic = parse(text)
    except TopicError as error:
        raise _wrong(text, str(error)) from error
    if topic.query is not None and len(topic.query.encode("utf-8", "surrogatepass")) > most_bytes:
        raise ValueError(f"the query is longer than {most_bytes} bytes")
    return ParsedTopic(text, topic)


def filter_of(wanted: ParsedTopic, answer: bytes | Unanswered | None = None) -> TopicFilter:
    """Read the query, too. answer: of the worker, if it was asked. Raises ValueError as `parse_topic`."""
    topic = wanted.topic
    if topic.query is None:
        return TopicFilter(topic.pattern, topic.of_devices)
    if answer is Unanswered.BUSY:
        raise ValueError(BUSY)
    if isinstance(answer, Unanswered):
        raise _wrong(wanted.text, "the query takes too much time or memory to be read")
    try:
        return _with_query(wanted, topic.query, answer)
    except QueryError as error:
        raise _wrong(wanted.text, f"the query cannot be used: {error}") from error


_refused: Final[WeightedLru[str]] = WeightedLru(MAX_KEPT)


def _wrong(text: str, words: str) -> ValueError:
    """Remember that the text is wrong, and return the error."""
    if len(text) <= MAX_KEPT and _refused.known(text) is None:
        _refused.keep(text, len(text) + len(words), words)
    return ValueError(words)


def _with_query(wanted: ParsedTopic, text: str, answer: bytes | None) -> TopicFilter:
    # Late: a gateway answers before it has them (`kiwi_gw.query.warm_up`).
    from kiwi_gw.query import caql
    from kiwi_gw.query.compiler import compile_query

    query, bytecode = (caql.read(text, wanted.roots), None) if answer is None else decode_answer(answer)
    made = compile_query(query, frozenset(wanted.roots), bytecode=bytecode)
    topic = wanted.topic
    # A digest, for the key is in that of every form of the connection: 4 KiB of query would be too large.
    key = blake2b(query.key.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()
    return TopicFilter(topic.pattern, topic.of_devices, made, key, query.select is not None)
