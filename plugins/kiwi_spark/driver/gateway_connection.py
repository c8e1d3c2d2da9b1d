"""The connection to the gateway's socket on which commands come and answers go."""

from __future__ import annotations

import socket
import threading
from collections import deque
from contextlib import suppress
from typing import Final

from kiwi_spark.protocol.messages import VERSION, Hello, Message, MessageReader, frame_of

_RECEIVE_BYTES: Final = 64 * 1024


class GatewayConnection:
    """Messages in both directions. Any thread may send and close; one at a time may receive."""

    def __init__(self, path: str, token: str, role: str) -> None:
        """Connect, and say who this is. OSError: the gateway is not there."""
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._reader = MessageReader()
        self._waiting: deque[Message] = deque()
        self._send_lock = threading.Lock()
        try:
            self._socket.connect(path)
            self.send(Hello(version=VERSION, token=token, role=role))
        except BaseException:
            self._socket.close()
            raise

    def send(self, message: Message) -> None:
        """OSError: the gateway is gone. WireError: the message is too large."""
        frame = frame_of(message)
        with self._send_lock:
            self._socket.sendall(frame)

    def receive(self) -> Message | None:
        """Return the next message; None at the end. OSError: it broke. WireError: that was none."""
        while not self._waiting:
            data = self._socket.recv(_RECEIVE_BYTES)
            if not data:
                return None
            self._waiting.extend(self._reader.feed(data))
        return self._waiting.popleft()

    def stop_receiving(self) -> None:
        """Have `receive` return None."""
        with suppress(OSError):  # it has ended already
            self._socket.shutdown(socket.SHUT_RD)

    def close(self) -> None:
        """End the connection, also for a thread that waits in `receive`."""
        with suppress(OSError):  # the other side was first
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
