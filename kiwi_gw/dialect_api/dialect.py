"""What a plugin declares of a wire protocol: its settings, its routes, how a session is opened.

A protocol is free of I/O. It makes one `Session` per WebSocket connection, which holds what the protocol
has to remember (which sources are subscribed, correlation ids, topic patterns); it is called with what the
client sent and with what happened to its subscriptions, and answers with commands (`kiwi_gw.core.commands`),
which the connection carries out at once and in order.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Generic, Protocol, TypeVar

from kiwi_gw.api import Section
from kiwi_gw.core.commands import Session
from kiwi_gw.dialect_api.http import ErrorPages, HttpRoute
from kiwi_gw.dialect_api.limits import SessionLimits
from kiwi_gw.model import HeadCredential, Identity

Document = Callable[[str, bool], bytes]
"""Makes a document for clients that reach the gateway as that host, over TLS or not."""

S = TypeVar("S", bound=Section)


@dataclass(frozen=True, slots=True)
class WebSocketRoute:
    """Where the protocol is spoken over WebSocket.

    path: as it is requested, or with parameters, each of which stands for one segment:
        `/api/kafka/ws/{client}`.
    subprotocols: accepted names, the best first.
    max_message_bytes: larger messages close the connection with 1009; None: as
        `server.limits.max_message_bytes` says.
    login_seconds: None, if the request head must have the credentials. Otherwise it may; wrong ones are
        refused. A client without any connects, may subscribe to nothing and learns of no source until a
        `Call` with `LogIn` has succeeded, and is closed with 4401 if that takes longer.
    dialect: what it is called in metrics and logs, where a protocol has several; None: as the protocol is.
    """

    path: str
    subprotocols: tuple[str, ...] = ()
    max_message_bytes: int | None = None
    login_seconds: float | None = None
    dialect: str | None = None


Route = WebSocketRoute | HttpRoute[Any, Any, Any] | ErrorPages


class Dialect(Protocol):
    """One wire protocol with its settings.

    routes: the first one over WebSocket is shown on the landing page. documents: what `GET /` answers, by
    media type, where the Accept header names it.
    """

    @property
    def routes(self) -> Sequence[Route]: ...

    @property
    def documents(self) -> Mapping[str, Document]: ...

    def open_session(
        self, head: HeadCredential, parameters: Mapping[str, str], identity: Identity, limits: SessionLimits
    ) -> Session:
        """Open the session of one client.

        head: of the request that became the connection; do not keep it, connections last. parameters: of the
        path, percent-decoded. identity: the client; on a route with `login_seconds` an anonymous one, where
        the head has shown nothing: it has no rights until it logs in.
        """


@dataclass(frozen=True, slots=True)
class DialectContext:
    """What a dialect is built with. max_event_bytes: of the largest frame of an event (`window.event_bytes`);
    a larger event is given up, as `Encoded.unsendable` says. workers: how many processes serve the same port,
    each with a dialect of its own. worker_port: one that this process alone serves; None: there is none.
    secret: random; all workers of one gateway have the same, until it is started again."""

    gateway_name: str
    max_event_bytes: int
    workers: int = 1
    worker_port: int | None = None
    secret: bytes = field(default_factory=partial(secrets.token_bytes, 32), repr=False)


@dataclass(frozen=True, slots=True)
class Messages:
    """What is said in a protocol, for its JSON Schema. client: what clients send, server: what they are sent;
    a struct of msgspec each, or a union of several with tags."""

    client: Any
    server: Any


@dataclass(frozen=True, slots=True)
class DialectType(Generic[S]):
    """A wire protocol, as a plugin provides it by the hook `dialect_types`.

    name: in metrics and logs, and the key of its section in the configuration and of its block in a source's.
    settings: the model of that section. Changes of it need a restart.
    build: makes the dialect when the gateway starts; None: these settings switch it off. No I/O.
    source_settings: the model of its block in a source's configuration, with defaults for all its keys;
        `SourceInfo.blocks` has it under the name. None: there is no such block.
    environment: keys of its section that have a short name in the environment: `{"MODE": "mode"}` lets
        `KIWI_GW_MODE` set the key `mode`. Only for plugins that are always loaded: which others are is known
        when the environment was read.
    columns: names those that it writes, with these settings, where sources have them, and that sources leave
        out unless somebody wants them (`headers`).
    groups: says what the names of the groups begin with in which it has members of a source, with these
        settings, by the id of the source and what it says to protocols; the rest is theirs to choose. None:
        there are none.
    messages: None: they are no JSON. other_messages: of further protocols that it speaks, by their names.
    warm_up: imports what its first client would wait for, and all others with it. Called once, in a thread,
        before clients are let in, unless it is switched off.
    """

    name: str
    settings: type[S]
    build: Callable[[S, DialectContext], Dialect | None]
    source_settings: type[Section] | None = None
    environment: Mapping[str, str] = field(default_factory=dict)
    columns: Callable[[S], Collection[str]] = lambda settings: ()
    groups: Callable[[S, str, Mapping[str, Section]], str | None] = lambda settings, source_id, blocks: None
    messages: Messages | None = None
    other_messages: Mapping[str, Messages] = field(default_factory=dict)
    warm_up: Callable[[], None] = lambda: None
