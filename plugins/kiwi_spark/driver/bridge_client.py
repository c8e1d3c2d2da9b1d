"""The driver's end of the bridge: a blocking connection to the gateway, with a deadline for everything."""

from __future__ import annotations

import socket
from typing import Final, Self

from kiwi_spark.bridge_wire import FRAMES, ROLE, Events, Over, Read, Reading, Refused, Take, Taken
from kiwi_spark.frames import FrameReader, Message, WireError
from kiwi_spark.wire import VERSION, Hello

ANSWER_SECONDS: Final = 15.0
"""How long an answer may take: a source may need 5 s to start and 5 s to say where its past
is. One that takes longer to start is asked again."""

_RECEIVE_BYTES: Final = 1024 * 1024


class BridgeAway(Exception):  # noqa: N818
    """The gateway does not answer. Try again."""


class BridgeRefused(Exception):  # noqa: N818
    """The gateway does not give what was asked for. code: see `bridge_wire.Refused`."""

    def __init__(self, refused: Refused) -> None:
        self.code = refused.code
        super().__init__(f"{refused.code}: {refused.message}")


class Bridge:
    """One connection, on which one source is read at a time. BridgeAway ends it.

    place: where the next event is, in the source's JSON form.
    """

    def __init__(self, path: str, token: str, answer_seconds: float = ANSWER_SECONDS) -> None:
        self._reader = FrameReader(FRAMES)
        self._waiting: list[Message] = []
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._socket.settimeout(answer_seconds)
        try:
            self._socket.connect(path)
            self._socket.sendall(FRAMES.encode(Hello(version=VERSION, token=token, role=ROLE)))
        except OSError as error:
            self._socket.close()
            raise BridgeAway(f"the gateway does not answer at {path}: {error}") from error

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def close(self) -> None:
        self._socket.close()

    def read(self, wish: Read) -> Reading:
        """Begin to read. BridgeRefused."""
        self._send(wish)
        answer = self._receive()
        if isinstance(answer, Refused):
            raise BridgeRefused(answer)
        if not isinstance(answer, Reading):
            raise WireError(f"{type(answer).__name__} answers Read")
        return answer

    def take(self, events: int) -> tuple[Taken, bytes] | Over:
        """Up to so many events, and where that leads; none, if none came in about a second."""
        self._send(Take(events=events))
        answer = self._receive()
        if isinstance(answer, Over):
            return answer
        if not isinstance(answer, Taken):
            raise WireError(f"{type(answer).__name__} answers Take")
        if not answer.events:
            return answer, b""
        data = self._receive()
        if not isinstance(data, Events):
            raise WireError(f"{type(data).__name__} where the events should be")
        return answer, data.data

    def _send(self, message: Message) -> None:
        try:
            self._socket.sendall(FRAMES.encode(message))
        except OSError as error:
            raise BridgeAway(f"the gateway does not answer: {error}") from error

    def _receive(self) -> Message:
        while not self._waiting:
            try:
                data = self._socket.recv(_RECEIVE_BYTES)
            except OSError as error:  # a timeout is one, too
                raise BridgeAway(f"the gateway does not answer: {error}") from error
            if not data:
                raise BridgeAway("the gateway has closed the connection")
            self._waiting = self._reader.feed(data)
        return self._waiting.pop(0)
