"""A plain HTTP request as its handler gets it. What a handler returns is a whole response."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import dataclass, field
from functools import cached_property

import msgspec

from kiwi_gw.dialect_api import HttpResponse, HttpStream
from kiwi_gw.edge.request_head import RequestHead
from kiwi_gw.model import HeadCredential

NO_STORE = (("Cache-Control", "no-store"),)


@dataclass(frozen=True)
class ConnectionEnds:
    """The two ends of a connection, as host and port; None where they have no address."""

    client: tuple[str, int] | None = None
    server: tuple[str, int | None] | None = None
    secure: bool = False

    @property
    def here(self) -> str | None:
        """Our end, as `host_allowed` wants it."""
        return None if self.server is None else self.server[0]

    @cached_property
    def remote(self) -> str:
        """Where the client is, as it is written in logs."""
        return "unix" if self.client is None else f"{self.client[0]}:{self.client[1]}"


@dataclass(slots=True)
class PlainRequest:
    """parameters: of the path. read_body: returns the whole body; raises HttpError 413 if it has more bytes
    than that, and what is wrong with it otherwise. It tells how many bytes came, each time that some do.
    watched: a block that is given up when the client leaves, if the body was read and nothing more came.
    credential: the head as plugins see it."""

    head: RequestHead
    parameters: Mapping[str, str]
    ends: ConnectionEnds
    read_body: Callable[[int, Callable[[int], None]], Awaitable[bytes]]
    watched: Callable[[], AbstractAsyncContextManager[None]] = nullcontext
    credential: HeadCredential = field(init=False)

    def __post_init__(self) -> None:
        self.credential = self.head.credential(self.ends.remote, secure=self.ends.secure)


Handler = Callable[[PlainRequest], Awaitable[HttpResponse | HttpStream]]
"""Raises HttpError or InvalidRequest for what is refused. All else that it raises becomes 500."""


def json_response(
    body: object, headers: tuple[tuple[str, str], ...] = NO_STORE, *, status: int = 200
) -> HttpResponse:
    return HttpResponse(status, msgspec.json.encode(body) + b"\n", "application/json", headers)
