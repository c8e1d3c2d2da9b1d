"""The raw-socket ceiling: a process that does nothing but send ready-made frames to many sockets.

The frames are those of a real run of the gateway. Each slice of them goes to one socket after the other,
one system call each; sockets that are full go on with epoll when they have room. (Tried against sends
that wait, and against epoll alone: 1.0 to 1.4 and 1.2 to 1.8 times as fast, at the same processor time.)

Settings: frames (a file), warm (events of the warm-up), slice (bytes per call), subscribers. Says `port`, and
`ready` when all clients have come. On a word it says `started` and sends the warm-up, then says `sent`; on
the next one it does the same with the rest.
"""

from __future__ import annotations

import select
import socket
from collections.abc import Sequence
from pathlib import Path

from benchmarks import frames
from benchmarks.workers import child

_UNSENT_BYTES = 64 * 1024
"""TCP_NOTSENT_LOWAT, as the gateway's default `unsent_bytes`."""

_UPGRADED = b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n"
_OK = b'{"type":"SUBSCRIBE_OK","data":{}}'


def main() -> None:
    settings = child.settings()
    data = Path(settings["frames"]).read_bytes()
    split = _end_of(data, settings["warm"])
    listener = socket.create_server(("127.0.0.1", 0), backlog=1024)
    child.say(port=listener.getsockname()[1])
    clients = [_subscriber(listener) for _ in range(settings["subscribers"])]
    child.say(ready=True)
    for part in (data[:split], data[split:]):
        ends = frames.cut(part, settings["slice"])
        child.wait_word()
        child.say(started=child.now())
        send(clients, part, ends)
        child.say(sent=child.now())
    child.wait_word()


def send(clients: Sequence[socket.socket], data: bytes, ends: Sequence[int]) -> None:
    """Send data to all clients (non-blocking sockets), cut at `ends`, as fast as they take it."""
    view = memoryview(data)
    clear = {client.fileno(): client for client in clients}
    sockets, behind = dict(clear), dict[int, int]()
    poll = select.epoll()
    begin = 0
    for end in ends:
        piece = view[begin:end]
        for number, client in list(clear.items()):
            taken = _try(client, piece)
            if taken < end - begin:
                del clear[number]
                behind[number] = begin + taken
                poll.register(number, select.EPOLLOUT)
        most = end - begin
        while behind:
            for number, _ in poll.poll(0 if clear else -1):
                at = behind[number]
                at += _try(sockets[number], view[at : min(end, at + most)])
                behind[number] = at
                if at == end:
                    del behind[number]
                    poll.unregister(number)
                    clear[number] = sockets[number]
            if clear:
                break
        begin = end
    while behind:
        for number, _ in poll.poll():
            behind[number] += _try(sockets[number], view[behind[number] :])
            if behind[number] == len(data):
                del behind[number]
                poll.unregister(number)


def _try(client: socket.socket, data: memoryview) -> int:
    try:
        return client.send(data)
    except BlockingIOError:
        return 0


def _end_of(data: bytes, events: int) -> int:
    end = 0
    for _ in range(events):
        found = frames.bounds(data, end)
        if found is None:
            raise SystemExit("there are too few frames")
        end = found[1]
    return end


def _subscriber(listener: socket.socket) -> socket.socket:
    client, _ = listener.accept()
    client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT, _UNSENT_BYTES)
    asked = b""
    while b"\r\n\r\n" not in asked:
        asked += client.recv(65_536)
    client.sendall(_UPGRADED)
    client.recv(65_536)  # SUBSCRIBE
    client.sendall(bytes((0x81, len(_OK))) + _OK)
    client.setblocking(False)
    return client


if __name__ == "__main__":
    main()
