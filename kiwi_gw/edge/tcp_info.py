"""What the kernel knows of a TCP connection: whether the other machine still answers.

A machine that has vanished acknowledges nothing, while our kernel sends what is outstanding again, or
probes a closed window, less and less often. A client that only does not read is different: its kernel
answers every probe, however rare they get. So silence alone means nothing (there may be two minutes between
two probes); what counts is something that was sent after the last acknowledgement.

`TCP_USER_TIMEOUT` would not do: it also ends a connection whose window stays closed for that long although
every probe is answered (Linux, `tcp_probe_timer`).
"""

from __future__ import annotations

import socket
import struct
import sys

TCP_INFO_BYTES = 60
"""As much of `struct tcp_info` (linux/tcp.h) as is read here; it only ever grows at its end."""

_INFO = struct.Struct("=3xB20xI16xI8xI")  # probes, unacked, last_data_sent, last_ack_recv (ms)
_AVAILABLE = sys.platform == "linux"  # elsewhere the option is missing, or counts in other units


def unanswered(info: bytes) -> float | None:
    """Seconds since the other side last acknowledged anything, if something was sent after that and is
    not answered yet; None if nothing is.

    info: the first `TCP_INFO_BYTES` bytes of Linux's TCP_INFO. After a long idle time that is large at
    once: how long an answer has been missing shows only when this is asked again and again.
    """
    probes, unacked, last_data_sent, last_ack_recv = _INFO.unpack_from(info)
    if probes or (unacked and last_data_sent < last_ack_recv):
        seconds: float = last_ack_recv / 1000
        return seconds
    return None


def ask(sock: socket.socket) -> float | None:
    """`unanswered` of a socket; None where that cannot be known (no TCP, no Linux, closed)."""
    if not _AVAILABLE or sock.family not in (socket.AF_INET, socket.AF_INET6):
        return None
    try:
        return unanswered(sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, TCP_INFO_BYTES))
    except OSError:
        return None  # closed, or broken: its reader finds out
