"""What is answered to plain HTTP requests, declared with its types: they are what is checked, refused with
words and shown as OpenAPI.

    class Wanted(msgspec.Struct):
        source: str                 # of the path
        limit: Annotated[int, Meta(ge=1, le=100, description="an integer from 1 to 100")] = 10

    def show(request: HttpRequest[Wanted, bytes]) -> Shown | HttpResponse: ...

    HttpRoute("GET", "/lines/{source}", show, Wanted, bytes, Shown)
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Coroutine, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from typing import Any, Generic, Protocol, TypeVar, cast
from urllib.parse import parse_qsl

import msgspec
from msgspec import Struct

from kiwi_gw.api import GroupState, RegisteredSchema, SchemaVersion
from kiwi_gw.dialect_api.reading import AtEvents, EventReader, GroupReader, GroupSink, GroupTerms, WireOf
from kiwi_gw.errors import KiwiError
from kiwi_gw.model import (
    Action,
    AtTime,
    Credential,
    HeadCredential,
    Identity,
    Outgoing,
    Part,
    Positions,
    Published,
    Refusal,
    SourceInfo,
    Start,
    StartAt,
    Unpublished,
    WireFormat,
)
from kiwi_gw.struct_errors import sentence

P = TypeVar("P", bound=Struct)
B = TypeVar("B", bound=Struct | bytes)
A = TypeVar("A", bound=Struct)
T = TypeVar("T", bound=Struct)


class InvalidRequest(KiwiError):  # noqa: N818  (it states what the request is)
    """The parameters or the body are not as they must be: 400. The message is a sentence for the client."""


class RequestLimit(KiwiError):  # noqa: N818  (it states what was reached)
    """There is no room for what the request asks for, just now: 429. The message is a sentence for the
    client."""


class NoParameters(Struct, frozen=True):
    """There are none, neither in the path nor in the query."""


class ClientRights(Protocol):
    """Say what the client of a plain request may do here, and do it in its name."""

    def sources(self) -> Iterable[SourceInfo]:
        """Return all sources, in the order of the configuration, whatever it may do with them."""

    def source(self, source_id: str) -> SourceInfo | None:
        """Return one of them. None: there is none of that id."""

    def refusal(self, action: Action, source: SourceInfo) -> Refusal | None:
        """Say why it may not do that with the source. None: it may."""

    def unwelcome(self) -> Refusal | None:
        """Say why the client is nobody any more: its credentials have expired, or were withdrawn. For
        requests that wait. None: it is who it was."""

    def partitions(self, source_id: str) -> Positions | None:
        """Return the partitions of a source, and where the next event of each will be. None: they are not
        known now."""

    def trouble(self, source_id: str) -> str:
        """Say what keeps a source from its origin just now, for people. Empty: nothing that is known."""

    async def wait_started(self, source_id: str, within: float) -> None:
        """Wait until a source that is about to start has started, for so many seconds at most, and no longer
        than nothing is known that keeps it from that, and the client stays."""

    def life(self, source_id: str) -> int:
        """Return 48 bits that say what a source reads: others when that was made anew, under the same name.
        Where that is not known, they are of this process."""

    async def turn(self) -> None:
        """Let others have their turn, if this request has had one. For handlers with loops."""

    def writer(self, source_id: str) -> RecordWriter:
        """Return what writes to a source, whatever the client may do. It stays with the source as it is now:
        if that is removed or altered, nothing is written. KeyError: there is none of that id."""

    def read(
        self, source_id: str, wire: WireFormat, start: Start | AtEvents
    ) -> AbstractAsyncContextManager[EventReader]:
        """Read a source as the client may, while the block runs. Entering it raises SubscribeRefused (`code`
        says why) and RequestLimit."""

    def view(self, source_id: str) -> object:
        """Return what stands for all that plugins change of a source's events for this client: clients with
        equal ones see the same now."""

    def join(self, source_id: str, terms: GroupTerms, wire: WireOf, sink: GroupSink) -> GroupReader:
        """Be a member of a group, and read as this client may, whatever becomes of its request.
        SubscribeRefused: the source keeps no groups. RequestLimit: this process is a member of too many."""

    async def places(self, source_id: str, start: StartAt | AtTime) -> Positions:
        """Find where a start is in the partitions of a source that can be read again. Raises
        CommitRefused."""

    async def group_state(self, source_id: str, group: str) -> GroupState:
        """Return what the source knows of a group. Raises CommitRefused, also where that takes too long."""

    async def forget_group(self, source_id: str, group: str) -> None:
        """Have the source forget a group without members. Raises CommitRefused."""

    async def register_schema(self, source_id: str, part: Part, definition: str) -> SchemaVersion:
        """Have a schema of what is written to a source registered, whatever the client may do
        (`SchemaRegistrar`). Raises SchemaRefused, also where that takes too long."""

    async def find_schema(self, source_id: str, part: Part, version: int) -> SchemaVersion:
        """Find the schema with this version, likewise."""

    async def schema_versions(
        self, source_id: str, part: Part, schemas: Sequence[RegisteredSchema], within: float
    ) -> Mapping[int, int]:
        """Find the versions that schemas are, by their ids: those that are known within so many seconds."""


class RecordWriter(Protocol):
    """Write records to one source."""

    async def produce(self, records: Sequence[Outgoing], within: float) -> Sequence[Published | Unpublished]:
        """Write them. Returns what became of each within so many seconds, in their order. Raises
        RequestLimit."""


@dataclass(frozen=True, slots=True)
class HttpRequest(Generic[P, B]):
    """A request whose client is known and may ask.

    parameters: of the path and of the query. body: of the declared type. admitted: what `HttpRoute.admit` has
    returned.
    """

    head: HeadCredential
    parameters: P
    identity: Identity
    body: B
    rights: ClientRights
    admitted: Any = None

    @property
    def sources(self) -> Sequence[SourceInfo]:
        """Return those that the client may subscribe to, in the order of the configuration."""
        rights = self.rights
        return [info for info in rights.sources() if rights.refusal(Action.SUBSCRIBE, info) is None]


@dataclass(frozen=True, slots=True)
class HttpResponse:
    """An answer that is not the declared one. headers: beside `Content-Length`, `Content-Type`, `Connection`,
    `Date` and `Transfer-Encoding`, which nobody else writes: with one of these, or one that is no header, the
    answer is an error of the gateway."""

    status: int = 200
    body: bytes = b""
    content_type: str = "text/plain; charset=utf-8"
    headers: tuple[tuple[str, str], ...] = ()


class NotStreamed(KiwiError):  # noqa: N818  (it states what became of the answer)
    """There is this answer instead of one in pieces. Raised before the first piece."""

    def __init__(self, response: HttpResponse) -> None:
        super().__init__(f"answered with {response.status}")
        self.response = response


@dataclass(frozen=True, slots=True)
class HttpStream:
    """An answer in pieces (200): each is made when the client has taken the one before, so that it is one in
    memory, whatever the client does.

    pieces: the first one, which may be empty, says that there is an answer; until then `NotStreamed` and what
    a handler may raise are answered. They are closed at the end, or as soon as the client is gone.
    patient: a client may take as long as a WebSocket client may (`server.limits.stall_timeout_ms`), not only
    as long as is usual for HTTP. headers: as those of `HttpResponse`.
    """

    pieces: AsyncGenerator[bytes, None]
    content_type: str
    patient: bool = False
    headers: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class HttpFailure:
    """A plain request that is answered with an error. message: a sentence for people. refusal: of the client,
    where that is why. stopping: the gateway is about to stop, and that is why."""

    status: int
    message: str
    refusal: Refusal | None = None
    stopping: bool = False


@dataclass(frozen=True, slots=True)
class ErrorPages:
    """Declare how a protocol answers errors of plain requests, those that the gateway finds, too: there is
    no such path or method, a foreign origin, a body that is too large. It stands among the routes.

    path: for requests at it, and below it. answer: beside the headers of the error, which no cache keeps;
    None: with text, as everywhere else.
    """

    path: str
    answer: Callable[[HttpFailure], HttpResponse | None]


@dataclass(frozen=True, slots=True)
class Operation:
    """What can be asked, for OpenAPI. body: None: it has none, or one of any kind. answers: what is answered,
    by status; None: text. error_type: the media type of errors. body_required: whether there must be one.
    head: whether HEAD is served, too, where this is GET (which is not described)."""

    method: str
    path: str
    summary: str
    parameters: type[Struct] = NoParameters
    body: type[Struct] | None = None
    answers: Mapping[int, type[Struct] | None] = field(default_factory=lambda: {200: None})
    error_type: str = "text/plain"
    body_required: bool = True
    head: bool = True


@dataclass(frozen=True, slots=True)
class HttpRoute(Generic[P, B, A]):
    """What the protocol answers to plain HTTP requests.

    path: as for `WebSocketRoute`. admit: called when it is known who asks, before the body is read; what it
    returns is `HttpRequest.admitted`, or an answer: then the body is not read. answer: called for every
    request, after its credentials, its origin and its types were checked; it answers at once, or later if it
    is a coroutine, and may raise InvalidRequest and RequestLimit. parameters: of the path, and of the query,
    where of several with one name the last one counts. body: a struct is read as JSON, `bytes` are the body
    as it came. returns: what is answered with 200, as JSON. max_body_bytes: a larger body, or one that gzip
    makes of it, gets 413.
    credential: finds the credentials of a request in its head and its body; a refusal if they are not as they
        must be. None: they are in the head, as for a handshake. The body is read before it is known who asks,
        so `max_body_bytes` should be small.
    pages: pages of `server.allowed_origins` may read the answers (CORS), which no cache keeps.
    json_only: a body with another Content-Type than `application/json` gets 415.
    shown: what OpenAPI says of the body of a handler that reads the bytes itself. error_type: what it says of
    errors (see `ErrorPages`). empty: whether it is answered with 204, and nothing.
    body_required: whether there must be a body, where one is shown. head: GET also serves HEAD.
    """

    method: str
    path: str
    answer: Callable[
        [HttpRequest[P, B]],
        A | HttpResponse | HttpStream | Coroutine[Any, Any, A | HttpResponse | HttpStream],
    ]
    parameters: type[P]
    body: type[B]
    returns: type[A]
    max_body_bytes: int = 64 * 1024
    credential: Callable[[HeadCredential, bytes], Credential | Refusal] | None = None
    pages: bool = False
    json_only: bool = False
    shown: type[Struct] | None = None
    admit: Callable[[P, ClientRights], object | HttpResponse] | None = None
    error_type: str = "text/plain"
    empty: bool = False
    body_required: bool = True
    head: bool = True

    @property
    def operation(self) -> Operation:
        """Describe it; the first paragraph of the handler's docstring is its summary."""
        summary = " ".join((self.answer.__doc__ or "").split("\n\n")[0].split())
        body = self.shown if self.body is bytes else cast(type[Struct], self.body)
        return Operation(
            self.method,
            self.path,
            summary,
            self.parameters,
            body,
            {204: None} if self.empty else {200: self.returns},
            self.error_type,
            self.body_required,
            self.head,
        )

    def read_body(self, body: bytes) -> B:
        """Read a body. Raises InvalidRequest."""
        if self.body is bytes:
            return cast(B, body)
        kind = cast(type[Struct], self.body)
        try:
            return cast(B, msgspec.json.decode(body, type=kind))
        except msgspec.ValidationError as error:
            raise InvalidRequest(sentence(error, kind)) from None
        except (msgspec.DecodeError, UnicodeError, RecursionError):
            raise InvalidRequest("the body is not JSON") from None


def read_parameters(kind: type[T], path: Mapping[str, str], query: str) -> T:
    """Read what the path and the query of a request say. Raises InvalidRequest."""
    asked = _with_query(kind, path, query) if query else path
    try:
        return msgspec.convert(asked, kind, strict=False)
    except msgspec.ValidationError as error:
        raise InvalidRequest(sentence(error, kind)) from None


def _with_query(kind: type[Struct], path: Mapping[str, str], query: str) -> Mapping[str, str]:
    """Put what the query says to what the path does. Raises InvalidRequest."""
    asked = dict(parse_qsl(query, keep_blank_values=True))
    if twice := asked.keys() & path.keys():
        raise InvalidRequest(f"{min(twice)} is in the path already")
    known = kind.__struct_encode_fields__
    if kind.__struct_config__.forbid_unknown_fields and any(name not in known for name in asked):
        takes = ", ".join([name for name in known if name not in path]) or "none"
        # What was sent is not repeated: it may be a secret.
        raise InvalidRequest(f"unknown parameter in the query; there are: {takes}")
    return {**asked, **path}


def openapi(title: str, operations: Sequence[Operation]) -> Mapping[str, Any]:
    """Describe what can be asked (OpenAPI 3.1)."""
    kinds = [
        kind for each in operations for kind in (each.parameters, each.body, *each.answers.values()) if kind
    ]
    found, components = msgspec.json.schema_components(kinds, ref_template="#/components/schemas/{name}")
    schemas = dict(zip(kinds, found, strict=True))
    paths: dict[str, dict[str, Any]] = {}
    for each in operations:
        described = components[_name(schemas[each.parameters])]
        shown: dict[str, Any] = {
            "summary": each.summary,
            "parameters": list(_parameters(each.path, described)),
            "responses": {
                **{
                    str(status): {"description": "It is done."} if status == 204 else _response(kind, schemas)
                    for status, kind in each.answers.items()
                },
                "default": {"description": "An error, in one sentence.", "content": {each.error_type: {}}},
            },
        }
        if each.body is not None:
            content = _json(schemas[each.body])
            shown["requestBody"] = {"required": each.body_required, "content": content}
        paths.setdefault(each.path, {})[each.method.lower()] = shown
    parameters = {_name(schemas[each.parameters]) for each in operations}
    named = {name: schema for name, schema in components.items() if name not in parameters}
    return {
        "openapi": "3.1.0",
        "info": {"title": title, "version": "1"},
        "paths": paths,
        "components": {"schemas": named},
    }


def _name(reference: Mapping[str, str]) -> str:
    """Return the name of a component; where two structs have the same, it has the module in it."""
    return reference["$ref"].rpartition("/")[2]


def _parameters(path: str, described: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
    found = []
    for name, schema in described["properties"].items():
        place = "path" if f"{{{name}}}" in path else "query"
        required = name in described.get("required", ())
        found.append({"name": name, "in": place, "required": required, "schema": schema})
    return found


def _response(kind: type[Struct] | None, schemas: Mapping[type[Struct], Any]) -> Mapping[str, Any]:
    if kind is None:
        return {"description": "text", "content": {"text/plain": {}}}
    return {"description": (kind.__doc__ or "").split("\n\n")[0], "content": _json(schemas[kind])}


def _json(schema: Mapping[str, Any]) -> Mapping[str, Any]:
    return {"application/json": {"schema": schema}}
