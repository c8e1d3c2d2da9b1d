"""Reads what a client sends behind its handshake: frames in, messages out (RFC 6455, 5 and 7).

Everything that a frame's header gives away is judged at the byte that gives it away, before its payload is
waited for, and text is checked as it arrives: what is wrong is known in the frame that holds it. What an
unfinished message costs is its payload so far, in one buffer, and at most thirteen bytes of a header that
was cut.
"""

from __future__ import annotations

import codecs
import enum
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NoReturn

from kiwi_gw.codes import CloseCode
from kiwi_gw.errors import ConnectionEnd

_CONTINUATION, _TEXT, _BINARY, _CLOSE, _PING, _PONG = 0x0, 0x1, 0x2, 0x8, 0x9, 0xA
_FIN, _MASKED, _CONTROL = 0x80, 0x80, 0x08
_BETWEEN = -1  # instead of an opcode: the next byte begins a frame
_NO_CODE = 1005
_UTF8 = codecs.getincrementaldecoder("utf-8")


@dataclass(frozen=True, slots=True)
class PingFrame:
    """To be answered by a pong with the same payload."""

    payload: bytes


@dataclass(frozen=True, slots=True)
class CloseFrame:
    """The client's close frame; nothing follows it. code: 1005 where it has none (7.4.1)."""

    code: int


class CountedFrame(enum.Enum):
    """A frame that asks for nothing, and costs our time all the same: they have to be counted."""

    PONG = "pong"
    FRAGMENT = "fragment"  # of a message that is not finished by it


Inbound = str | bytes | PingFrame | CloseFrame | CountedFrame
"""A text message, a binary message, or a frame that is none."""


def _first_byte_faults() -> tuple[str, ...]:
    """Say what is wrong with each possible first byte of a frame; empty for the legal ones."""
    faults = []
    for byte in range(256):
        opcode = byte & 0x0F
        if byte & 0x70:
            faults.append("reserved bits are set")
        elif opcode not in (_CONTINUATION, _TEXT, _BINARY, _CLOSE, _PING, _PONG):
            faults.append("reserved opcode")
        elif opcode & _CONTROL and not byte & _FIN:
            faults.append("a control frame is fragmented")
        else:
            faults.append("")
    return tuple(faults)


_FAULTS = _first_byte_faults()


class FrameReader:
    """Fed with everything that a client sends, cut in any way.

    max_payload: bytes that a message may have, over all its fragments. max_fragments: frames that it may
    have; 0: any number. counts: of the frames that came, by opcode: 16 numbers, in which others may count,
    too. received_close: the client's close frame has come. over: it has, or the protocol was broken; whatever
    comes then is not looked at.
    """

    __slots__ = (
        "_control",
        "_counts",
        "_decoder",
        "_fin",
        "_fragments",
        "_held",
        "_left",
        "_mask",
        "_max_fragments",
        "_max_payload",
        "_message",
        "_message_bytes",
        "_opcode",
        "_text",
        "over",
        "received_close",
    )

    def __init__(self, max_payload: int, max_fragments: int = 1024, counts: list[int] | None = None) -> None:
        self._max_payload = max_payload
        self._max_fragments = max_fragments
        self._counts = [0] * 16 if counts is None else counts
        self.received_close = False
        self.over = False
        self._held = b""  # a header that was cut
        self._opcode = _BETWEEN
        self._fin = False
        self._mask = b""  # turned to the next byte of the payload
        self._left = 0  # bytes of the payload still to come
        self._control = b""
        self._fragments = 0  # of the message that is unfinished; 0: there is none
        self._message_bytes = 0  # that its headers have declared so far
        self._text = False
        self._message: bytearray | None = None  # what came of it; None while it is in one piece
        self._decoder: codecs.IncrementalDecoder | None = None

    def feed(self, data: bytes | bytearray) -> Iterator[Inbound]:
        """Yield what is complete now, in order. Exhaust it before the next call.

        Raises ConnectionEnd: 1002 against the protocol, 1007 text that is not UTF-8, 1008 too many
        fragments, 1009 too large. After that, and after a close frame, whatever comes is ignored.
        """
        if self._held:
            data, self._held = self._held + data, b""
        position, size = 0, len(data)
        while position < size and not self.over:
            if self._opcode == _BETWEEN:
                behind = self._header(data, position)
                if not behind:
                    self._held = bytes(data[position:])
                    return
                position = behind
            piece = data[position : position + self._left]
            position += len(piece)
            self._left -= len(piece)
            if piece:
                piece = self._unmasked(piece)
            done = self._control_piece(piece) if self._opcode & _CONTROL else self._message_piece(piece)
            if not self._left:
                self._opcode = _BETWEEN
            if done is not None:
                yield done

    # --- headers -------------------------------------------------------------------------------

    def _header(self, data: bytes | bytearray, position: int) -> int:
        """Take in the header that begins at `position`. Where its payload begins; 0: it was cut."""
        size = len(data) - position
        first = data[position]
        if _FAULTS[first]:
            self._end(CloseCode.PROTOCOL_ERROR, _FAULTS[first])
        if size < 2:
            return 0
        second = data[position + 1]
        if second < _MASKED:
            self._end(CloseCode.PROTOCOL_ERROR, "a client's frames are masked")
        length = second & 0x7F
        header = 2
        if length > 125:
            if first & _CONTROL:
                self._end(CloseCode.PROTOCOL_ERROR, "a control frame is longer than 125 bytes")
            header = 4 if length == 126 else 10
            if header == 10 and size > 2 and data[position + 2] & 0x80:
                self._end(CloseCode.PROTOCOL_ERROR, "the highest bit of a length is set")
            if size < header:
                return 0
            length = int.from_bytes(data[position + 2 : position + header], "big")
            if length < (126 if header == 4 else 65_536):
                self._end(CloseCode.PROTOCOL_ERROR, "a length is not in its shortest form")
        self._judge(first, length)
        if size < header + 4:
            return 0
        begins = position + header + 4
        self._mask = bytes(data[begins - 4 : begins])
        self._opcode, self._fin, self._left = first & 0x0F, bool(first & _FIN), length
        self._counts[self._opcode] += 1
        if not first & _CONTROL:
            self._fragments += 1
            self._message_bytes += length
        return begins

    def _judge(self, first: int, length: int) -> None:
        """Whether a frame may come now. May be asked again of a header that was cut in its mask."""
        opcode = first & 0x0F
        if opcode & _CONTROL:
            if opcode == _CLOSE and length == 1:
                self._end(CloseCode.PROTOCOL_ERROR, "the payload of a close frame is one byte")
            return
        if opcode == _CONTINUATION:
            if not self._fragments:
                self._end(CloseCode.PROTOCOL_ERROR, "a continuation of nothing")
        elif self._fragments:
            self._end(CloseCode.PROTOCOL_ERROR, "a new message inside a fragmented one")
        if self._message_bytes + length > self._max_payload:
            self._end(CloseCode.TOO_LARGE, f"a message is larger than {self._max_payload} bytes")
        if self._fragments == self._max_fragments and self._fragments:
            self._end(CloseCode.POLICY_VIOLATION, f"a message has more than {self._max_fragments} fragments")

    # --- payloads ------------------------------------------------------------------------------

    def _unmasked(self, piece: bytes | bytearray) -> bytes:
        """Take the mask off a piece (5.3), which is turned to what follows."""
        size, mask = len(piece), self._mask
        pattern = (mask * (size // 4 + 1))[:size]
        turn = size & 3
        self._mask = mask[turn:] + mask[:turn]
        number = int.from_bytes(piece, "little") ^ int.from_bytes(pattern, "little")
        return number.to_bytes(size, "little")

    def _control_piece(self, piece: bytes | bytearray) -> PingFrame | CloseFrame | CountedFrame | None:
        self._control += piece
        if self._left:
            return None
        payload, self._control = self._control, b""
        if self._opcode == _CLOSE:
            return self._close_frame(payload)
        return PingFrame(payload) if self._opcode == _PING else CountedFrame.PONG

    def _close_frame(self, payload: bytes) -> CloseFrame:
        self.received_close = self.over = True
        if not payload:
            return CloseFrame(_NO_CODE)
        code = int.from_bytes(payload[:2], "big")
        if not (1000 <= code <= 1003 or 1007 <= code <= 1014 or 3000 <= code <= 4999):
            self._end(CloseCode.PROTOCOL_ERROR, "a close code that nobody may send")
        try:
            payload[2:].decode()
        except UnicodeDecodeError:
            self._end(CloseCode.NOT_UTF8, "the reason of a close frame is not UTF-8")
        return CloseFrame(code)

    def _message_piece(self, piece: bytes | bytearray) -> str | bytes | CountedFrame | None:
        """Take in a piece of a message. What is complete with it: the message, a fragment, or nothing."""
        last = self._fin and not self._left
        if self._message is None:  # nothing of it was taken in yet
            self._text = self._opcode == _TEXT
            if last:
                self._fragments = self._message_bytes = 0
                return self._decoded(piece) if self._text else bytes(piece)
            self._message = bytearray()
        if self._text:
            self._check_text(piece, last)
        self._message += piece
        if not last:
            return None if self._left else CountedFrame.FRAGMENT
        whole, self._message, self._decoder = bytes(self._message), None, None
        self._fragments = self._message_bytes = 0
        return self._decoded(whole) if self._text else whole

    def _check_text(self, piece: bytes | bytearray, last: bool) -> None:
        decoder = self._decoder = self._decoder or _UTF8()
        try:
            decoder.decode(piece, last)
        except UnicodeDecodeError:
            self._end(CloseCode.NOT_UTF8, "a text message is not UTF-8")
        # Python waits for the third byte of a surrogate before it refuses the second.
        pending = decoder.getstate()[0]
        if len(pending) == 2 and pending[0] == 0xED and pending[1] >= 0xA0:
            self._end(CloseCode.NOT_UTF8, "a text message is not UTF-8")

    def _decoded(self, payload: bytes | bytearray) -> str:
        try:
            return payload.decode()
        except UnicodeDecodeError:
            self._end(CloseCode.NOT_UTF8, "a text message is not UTF-8")

    def _end(self, code: int, reason: str) -> NoReturn:
        self.over = True
        self._held = self._control = b""
        self._message = self._decoder = None
        raise ConnectionEnd(code, reason)
