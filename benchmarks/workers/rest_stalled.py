"""Readers over HTTP that do not read: each asks for every message of a partition, line by line and without
end, and takes nothing of the answer.

Settings: host, port, topic, partitions, clients. Says `ready` when every answer has begun; on a word it says
`faults`: none of the connections was given up meanwhile.
"""

from __future__ import annotations

import select
import socket

from benchmarks.workers import child

_BEGINS_SECONDS = 60.0


def main() -> None:
    settings = child.settings()
    address = settings["host"], settings["port"]
    sockets = [socket.create_connection(address) for _ in range(settings["clients"])]
    for number, sock in enumerate(sockets):
        sock.sendall(_request(settings["topic"], number % settings["partitions"]))
    for sock in sockets:
        sock.settimeout(_BEGINS_SECONDS)
        if not sock.recv(16, socket.MSG_PEEK).startswith(b"HTTP/1.1 200"):
            raise SystemExit("a request was refused")
    child.say(ready=True)
    child.wait_word()
    closed = select.poll()
    for sock in sockets:
        closed.register(sock, select.POLLRDHUP)
    given_up = len(closed.poll(0))
    child.say(faults=[f"{given_up} connections were given up"] if given_up else [])
    child.wait_word()


def _request(topic: str, partition: int) -> bytes:
    path = f"/topics/public/default/{topic}/partitions/{partition}/messages?from=earliest&timeout=0"
    return f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nAccept: application/x-ndjson\r\n\r\n".encode()


if __name__ == "__main__":
    main()
