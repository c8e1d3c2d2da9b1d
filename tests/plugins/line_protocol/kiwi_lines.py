"""A protocol of lines, as a plugin: text frames over WebSocket, and two HTTP routes.

    LOGIN ann s3cret      +LOGIN ann TOKEN     or -LOGIN invalid_token
    TOKEN text            +LOGIN ann           or -LOGIN invalid_token
    SUB news              +SUB news            or -SUB news unknown_source
    CREDIT news 2         +CREDIT news 2
    UNSUB news            +UNSUB news
    PUT news 7 the text   +PUT 7 PARTITION OFFSET   or -PUT 7 why
    DONE news us 0 17     +DONE news us        or -DONE news us why
    RESUME news us        as SUB, from what us has done
                          news> 17 the text of an event
                          !END news removed
                          !LAG news 12

`/lines/{client}/ws` wants a LOGIN in time, `GET /lines/sources/{source}` credentials in its head. `POST
/lines/login` takes a password and answers with a token, `GET /lines/auth` says whose is in `X-Lines-Token`.
`POST /lines/writing/{source}` writes lines, and answers when they are written; errors there are JSON.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated

import msgspec
from msgspec import Meta, Struct
from pydantic import Field

from kiwi_gw.api import (
    Action,
    Batch,
    Credential,
    Encoded,
    HeadCredential,
    Identity,
    Milliseconds,
    Outgoing,
    Password,
    Published,
    Refusal,
    RefusalCode,
    Section,
    SourceInfo,
    Token,
    Unpublished,
    WireFormat,
    hookimpl,
)
from kiwi_gw.dialect_api import (
    AddCredit,
    Call,
    CallDone,
    Cancel,
    Cancelled,
    ClientRights,
    Close,
    CloseCode,
    Command,
    Commit,
    CommitDone,
    Committed,
    CreditAdded,
    Dialect,
    DialectContext,
    DialectType,
    Document,
    Ended,
    ErrorPages,
    HttpFailure,
    HttpRequest,
    HttpResponse,
    HttpRoute,
    Lagged,
    LogIn,
    Mode,
    NoParameters,
    Notice,
    Open,
    Opened,
    OpenFailed,
    Produce,
    Produced,
    RecordWriter,
    Reply,
    Route,
    Session,
    SessionLimits,
    WebSocketRoute,
    text_frame,
)

MOST_WRITTEN = 256 * 1024


class LinesSettings(Section):
    """The line protocol."""

    enabled: bool = True
    """Whether it is served."""
    login_ms: Milliseconds = 5_000
    """Time for a LOGIN."""


class LinesSource(Section):
    """What the events of this source are in the line protocol."""

    prefix: str | None = Field(default=None, pattern=r"^[^ \n]+$")
    """What their lines begin with; null: the id of the source."""


def prefix_of(source: SourceInfo) -> str:
    block = source.blocks["lines"]
    assert isinstance(block, LinesSource)
    return block.prefix or f"{source.id}>"


def wire(source: SourceInfo) -> WireFormat:
    prefix = prefix_of(source)

    def encode(batch: Batch) -> Encoded:
        buffer, ends = bytearray(), []
        for offset, value in zip(batch.offsets, batch.columns["value"], strict=True):
            text = value if isinstance(value, bytes) else str(value).encode()
            buffer += text_frame(b"%b %d %b" % (prefix.encode(), offset, text))
            ends.append(len(buffer))
        return Encoded(bytes(buffer), ends)

    return WireFormat(("lines", prefix), encode)


@dataclass(slots=True)
class LinesSession:
    """Implements `Session`. client: as the path names it. A pull subscription is one that a CREDIT began."""

    client: str
    limits: SessionLimits
    open: set[object] = field(default_factory=set)

    def receive(self, message: str | bytes, now: float) -> Iterable[Command]:
        if isinstance(message, str) and message.startswith("PUT "):
            yield put(message)
            return
        match message.split() if isinstance(message, str) else ():
            case ["LOGIN", user, password]:
                yield Call("login", LogIn(Password(user, password)))
            case ["TOKEN", text]:
                yield Call("login", LogIn(Token(text)))
            case ["SUB", source] if source not in self.open:
                yield self._open(source, Mode.PUSH, 0)
            case ["RESUME", source, group] if source not in self.open:
                yield replace(self._open(source, Mode.PUSH, 0), start=Committed(group))
            case ["DONE", source, group, partition, offset] if partition.isdigit() and offset.isdigit():
                handle = f"{source} {group}"
                yield Commit(handle, source, group, {int(partition): (int(offset) + 1, "")})
            case ["CREDIT", source, n] if n.isdigit() and int(n):
                yield (
                    AddCredit(source, int(n))
                    if source in self.open
                    else self._open(source, Mode.PULL, int(n))
                )
            case ["UNSUB", source] if source in self.open:
                self.open.discard(source)
                yield Cancel(source)
            case _:
                yield Close(CloseCode.POLICY_VIOLATION, "no such line")

    def _open(self, source: str, mode: Mode, credit: int) -> Open:
        self.open.add(source)
        return Open(source, source, wire, mode, credit)

    def notice(self, notice: Notice) -> Iterable[Command]:
        match notice:
            case CallDone(result=Identity(name, issued_token=token)):
                yield say(f"+LOGIN {name}@{self.client}{f' {token}' if token else ''}")
            case CallDone(result=Refusal(code)):
                yield say(f"-LOGIN {code}")
            case Produced(handle, Published(partition, offset)):
                yield say(f"+PUT {handle} {partition} {offset}")
            case Produced(handle, Unpublished(message=why) | Refusal(message=why)):
                yield say(f"-PUT {handle} {why}")
            case CommitDone(handle, None):
                yield say(f"+DONE {handle}")
            case CommitDone(handle, Refusal(message=why)):
                yield say(f"-DONE {handle} {why}")
            case Opened(handle):
                yield say(f"+SUB {handle}")
            case OpenFailed(handle, code):
                self.open.discard(handle)
                yield say(f"-SUB {handle} {code}")
            case CreditAdded(handle, n):
                yield say(f"+CREDIT {handle} {n}")
            case Cancelled(handle):
                yield say(f"+UNSUB {handle}")
            case Ended(handle, reason=reason):
                self.open.discard(handle)
                yield say(f"!END {handle} {reason.value}")
            case Lagged(handle, dropped=dropped) if dropped:
                yield say(f"!LAG {handle} {dropped}")


def put(line: str) -> Produce | Close:
    """Read a PUT, with the key in front of its text where that has a colon."""
    match line.split(" ", 3):
        case [_, source, number, text]:
            key, colon, value = text.rpartition(":")
            return Produce(number, source, Outgoing(key.encode() if colon else None, value.encode()))
    return Close(CloseCode.POLICY_VIOLATION, "no such line")


def say(line: str) -> Reply:
    return Reply(text_frame(line.encode()))


class Wanted(Struct, frozen=True):
    """Of which source, and how often its prefix is wanted."""

    source: str
    times: Annotated[int, Meta(ge=1, le=9, description="an integer from 1 to 9")] = 1


class Shown(Struct, frozen=True):
    """How the lines of a source begin."""

    reader: str
    prefix: str


def show(request: HttpRequest[Wanted, bytes]) -> Shown | HttpResponse:
    """Say how the lines of a source begin, to those who may read it."""
    for source in request.sources:
        if source.id == request.parameters.source:
            return Shown(request.identity.name, prefix_of(source) * request.parameters.times)
    return HttpResponse(404, b"no source has this id\n")


class Renaming(Struct, frozen=True):
    """What the lines of a source are to begin with."""

    prefix: Annotated[str, Meta(min_length=1, max_length=9, description="a string of 1 to 9 characters")]


def rename(request: HttpRequest[Wanted, Renaming]) -> Shown:
    """Say how they would begin."""
    return Shown(request.identity.name, request.body.prefix * request.parameters.times)


class Where(Struct, frozen=True, forbid_unknown_fields=True):
    """Where lines are written."""

    source: str


class Writing(Struct, frozen=True):
    """Lines to be written. seconds: for how long that may take."""

    lines: list[str]
    seconds: Annotated[float, Meta(gt=0, description="a number above 0")] = 5.0


class Written(Struct, frozen=True):
    """Where they are, or why not. partitions: of the source."""

    places: list[int | str]
    partitions: list[int]


def may_write(where: Where, rights: ClientRights) -> RecordWriter | HttpResponse:
    source = next((each for each in rights.sources() if each.id == where.source), None)
    refusal = None if source is None else rights.refusal(Action.PUBLISH, source)
    if source is None or refusal is not None:
        return HttpResponse(403, b"no", headers=(("X-Why", "none" if refusal is None else refusal.code),))
    return rights.writer(source.id)


async def write(request: HttpRequest[Where, Writing]) -> Written:
    """Write lines."""
    rights = request.rights
    records = []
    for line in request.body.lines:
        records.append(Outgoing(None, line.encode()))
        await rights.turn()
    results = await request.admitted.produce(records, request.body.seconds)
    places = [result.offset if isinstance(result, Published) else result.message for result in results]
    return Written(places, sorted(rights.partitions(request.parameters.source) or ()))


def as_json(failure: HttpFailure) -> HttpResponse:
    code = None if failure.refusal is None else failure.refusal.code
    said = msgspec.json.encode([failure.status, failure.message, code])
    return HttpResponse(failure.status, said, "application/json", (("X-Page", "lines"),))


class Login(Struct, frozen=True):
    """Who wants to log in."""

    user: str
    password: str


class Known(Struct, frozen=True):
    """Whose token it is."""

    token: str
    user: str
    roles: Sequence[str]


def password_of(head: HeadCredential, body: bytes) -> Credential | Refusal:
    try:
        said = msgspec.json.decode(body, type=Login)
    except (msgspec.DecodeError, RecursionError):
        return Refusal("malformed", "no login")
    return Password(said.user, said.password)


def token_of(head: HeadCredential, body: bytes) -> Credential | Refusal:
    text = head.header("x-lines-token")
    return Refusal(RefusalCode.NO_TOKEN, "no token") if text is None else Token(text)


def refused(failure: HttpFailure) -> HttpResponse | None:
    status, refusal = failure.status, failure.refusal
    if refusal is None:
        return None
    return HttpResponse(status, b"unauthorized" if status == 401 else refusal.code.encode(), "text/plain")


def log_in(request: HttpRequest[NoParameters, Login]) -> HttpResponse:
    """Give a token for a password."""
    return HttpResponse(200, (request.identity.issued_token or "").encode(), "text/plain")


def whose(request: HttpRequest[NoParameters, bytes]) -> Known:
    """Say whose token it is."""
    who, token = request.identity, request.head.header("x-lines-token") or ""
    return Known(token, who.name, sorted(who.roles))


def hello(host: str, secure: bool) -> bytes:
    return f"LINES {'wss' if secure else 'ws'}://{host}/lines/NAME/ws\n".encode()


@dataclass(frozen=True, slots=True)
class Lines:
    """Implements `Dialect`."""

    login_seconds: float

    @property
    def routes(self) -> Sequence[Route]:
        return (
            WebSocketRoute("/lines/{client}/ws", ("lines",), 1024, self.login_seconds),
            HttpRoute("GET", "/lines/sources/{source}", show, Wanted, bytes, Shown),
            HttpRoute("POST", "/lines/sources/{source}/prefix", rename, Wanted, Renaming, Shown, 1024),
            HttpRoute(
                "POST", "/lines/login", log_in, NoParameters, Login, Shown, 1024, password_of, pages=True
            ),
            HttpRoute("GET", "/lines/auth", whose, NoParameters, bytes, Known, 0, token_of, pages=True),
            HttpRoute(
                "POST",
                "/lines/writing/{source}",
                write,
                Where,
                Writing,
                Written,
                MOST_WRITTEN,
                pages=True,
                json_only=True,
                admit=may_write,
            ),
            ErrorPages("/lines/writing", as_json),
            ErrorPages("/lines/login", refused),
            ErrorPages("/lines/auth", refused),
        )

    @property
    def documents(self) -> Mapping[str, Document]:
        return {"text/x-lines": hello}

    def open_session(
        self, head: HeadCredential, parameters: Mapping[str, str], identity: Identity, limits: SessionLimits
    ) -> Session:
        return LinesSession(parameters["client"], limits)


def build(settings: LinesSettings, context: DialectContext) -> Dialect | None:
    return Lines(settings.login_ms / 1000) if settings.enabled else None


@hookimpl
def dialect_types() -> Sequence[DialectType[LinesSettings]]:
    return (DialectType("lines", LinesSettings, build, LinesSource),)
