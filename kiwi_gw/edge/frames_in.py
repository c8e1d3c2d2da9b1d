"""Follows the frame headers of what a client sends, without touching the payloads (RFC 6455, 5.2).

A WebSocket library collects a message before it judges its size, knows no bound on fragments, and waits
for the whole header. Everything a header gives away is judged here, at the byte that gives it away.

At most nine bytes are ever held: a header that was cut, up to the end of its length.
"""

from __future__ import annotations

from kiwi_gw.errors import ConnectionEnd

_CONTINUATION, _TEXT, _BINARY, _CLOSE, _PING, _PONG = 0x0, 0x1, 0x2, 0x8, 0x9, 0xA
_FIN = 0x80
_MASKED = 0x80
_MASK_BYTES = 4
_FOREVER = 1 << 70  # more than any client can send: skip whatever still comes

_DATA_OPCODES = (_CONTINUATION, _TEXT, _BINARY)
_CONTROL_OPCODES = (_CLOSE, _PING, _PONG)


def _first_byte_faults() -> tuple[str, ...]:
    """What is wrong with each possible first byte of a frame; empty for the legal ones."""
    faults = []
    for byte in range(256):
        opcode = byte & 0x0F
        if byte & 0x70:
            faults.append("reserved bits are set")
        elif opcode not in (*_DATA_OPCODES, *_CONTROL_OPCODES):
            faults.append("reserved opcode")
        elif opcode in _CONTROL_OPCODES and not byte & _FIN:
            faults.append("a control frame is fragmented")
        else:
            faults.append("")
    return tuple(faults)


_FAULTS = _first_byte_faults()


class FrameScanner:
    """Fed with everything that a client sends behind its handshake, cut in any way.

    max_payload: bytes that a message may have, over all its fragments. max_fragments: frames that it may
    have. Counters: `data_frames` (fragments of messages), `messages` (finished ones), `pings`, `pongs`.
    """

    __slots__ = (
        "_fragments",
        "_held",
        "_max_fragments",
        "_max_payload",
        "_message_bytes",
        "_skip",
        "data_frames",
        "goodbye",
        "messages",
        "pings",
        "pongs",
    )

    def __init__(self, max_payload: int, max_fragments: int = 1024) -> None:
        self._max_payload = max_payload
        self._max_fragments = max_fragments
        self._skip = 0  # bytes of mask and payload still to come
        self._held = b""
        self._fragments = 0  # of the message that is unfinished; 0: there is none
        self._message_bytes = 0
        self.goodbye = False  # the client's close frame has come: nothing follows it
        self.data_frames = 0
        self.messages = 0
        self.pings = 0
        self.pongs = 0

    @property
    def inside_frame(self) -> bool:
        """Whether a frame has begun of which bytes are missing. False once the client has said goodbye."""
        return bool(self._held) or 0 < self._skip < _FOREVER // 2

    def feed(self, data: bytes | bytearray) -> None:
        """Raises ConnectionEnd: 1002 against the protocol, 1008 too many fragments, 1009 too large.

        After that, and after a close frame, whatever comes is ignored.
        """
        position = self._skip
        size = len(data)
        if position >= size:
            self._skip = position - size
            return
        if self._held:
            data = self._held + data
            size = len(data)
            self._held = b""
        while position < size:
            first = data[position]
            if _FAULTS[first]:
                self._end(1002, _FAULTS[first])
            if size - position < 2:
                break
            second = data[position + 1]
            if second < _MASKED:
                self._end(1002, "a client's frames are masked")
            length = second & 0x7F
            header = 2
            if length > 125:
                if first & 0x08:
                    self._end(1002, "a control frame is longer than 125 bytes")
                header = 4 if length == 126 else 10
                if header == 10 and size - position > 2 and data[position + 2] & 0x80:
                    self._end(1002, "the highest bit of a length is set")
                if size - position < header:
                    break
                length = int.from_bytes(data[position + 2 : position + header], "big")
                if length < (126 if header == 4 else 65_536):
                    self._end(1002, "a length is not in its shortest form")
            self._frame(first, length)
            position += header + _MASK_BYTES + length
            if first & 0x0F == _CLOSE:
                self.goodbye = True
                position = _FOREVER
        if position < size:
            self._held = bytes(data[position:])
            self._skip = 0
        else:
            self._skip = position - size

    def _frame(self, first: int, length: int) -> None:
        """Count the frame whose header is complete."""
        opcode = first & 0x0F
        if opcode & 0x08:
            if opcode == _PING:
                self.pings += 1
            elif opcode == _PONG:
                self.pongs += 1
            elif length == 1:
                self._end(1002, "the payload of a close frame is one byte")
            return
        if opcode == _CONTINUATION:
            if not self._fragments:
                self._end(1002, "a continuation of nothing")
        elif self._fragments:
            self._end(1002, "a new message inside a fragmented one")
        self.data_frames += 1
        self._fragments += 1
        self._message_bytes += length
        if self._message_bytes > self._max_payload:
            self._end(1009, f"a message is larger than {self._max_payload} bytes")
        if self._fragments > self._max_fragments:
            self._end(1008, f"a message has more than {self._max_fragments} fragments")
        if first & _FIN:
            self.messages += 1
            self._fragments = 0
            self._message_bytes = 0

    def _end(self, code: int, reason: str) -> None:
        self._skip = _FOREVER
        self._held = b""
        raise ConnectionEnd(code, reason)
