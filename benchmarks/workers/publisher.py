"""A publisher: one connection that speaks Lenses' v1 and sends PUBLISHes without waiting for answers.

Settings: host, port, source, records (in all), size (bytes of each value), keys (so many, in turn).
Says `ready`; on a word `published` (how many), `seconds`, `cpu` (our own), `faults`: every request has its
one SUCCESS, no two the same place, and the places of one key are in the order in which it was sent.
"""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from benchmarks import records
from benchmarks.frames import bounds, masked
from benchmarks.protocols import WORDS, lenses
from benchmarks.workers import child
from benchmarks.workers.subscriber import Address, subscribed

_FIRST_ID = 1_000
_MOST_FAULTS = 5
_RECEIVE_BYTES = 256 * 1024


class _Answer(msgspec.Struct):
    type: str
    content: str
    correlationId: int = 0  # noqa: N815  (the protocol's name)


_answer = msgspec.json.Decoder(_Answer).decode


def main() -> None:
    settings = child.settings()
    address = Address(settings["host"], settings["port"], WORDS["lenses"].path.format(0))
    login = lenses("LOGIN", 1, {"user": "any", "password": "any"})
    sock, rest = subscribed(address, [login], WORDS["lenses"].answered)
    requests = b"".join(map(masked, _requests(settings)))
    child.say(ready=True)
    child.wait_word()
    begun, cpu = time.monotonic(), time.process_time()
    sender = threading.Thread(target=sock.sendall, args=(requests,), daemon=True)
    sender.start()
    answers = _read(sock, rest, settings["records"])
    seconds, used = time.monotonic() - begun, time.process_time() - cpu
    sender.join()
    child.say(
        published=len(answers),
        seconds=round(seconds, 4),
        cpu=round(used, 2),
        faults=_faults(answers, settings["records"], settings["keys"]),
    )
    child.wait_word()


def _requests(settings: Mapping[str, Any]) -> Sequence[Mapping[str, object]]:
    value = records.value(0, settings["size"]).decode()
    source, keys = settings["source"], settings["keys"]
    return [
        lenses("PUBLISH", _FIRST_ID + n, {"topic": source, "key": f"{n % keys}", "value": value})
        for n in range(settings["records"])
    ]


def _read(sock: socket.socket, rest: bytes, count: int) -> list[bytes]:
    """Read so many answers, or until the server closes the connection."""
    found: list[bytes] = []
    while len(found) < count:
        chunk = sock.recv(_RECEIVE_BYTES)
        if not chunk:
            break
        data, at = rest + chunk, 0
        while (frame := bounds(data, at)) is not None:
            begin, at = frame
            if not data.startswith(b'{"type":"HEARTBEAT"', begin):
                found.append(data[begin:at])
        rest = data[at:]
    return found


def _faults(answers: Sequence[bytes], count: int, keys: int) -> list[str]:
    places: dict[int, tuple[int, int]] = {}
    wrong: list[str] = []
    for text in answers:
        answer = _answer(text)
        if answer.type != "SUCCESS" or answer.correlationId - _FIRST_ID in places:
            wrong.append(f"not the one SUCCESS of a request: {text.decode()}")
            continue
        place = json.loads(answer.content)
        places[answer.correlationId - _FIRST_ID] = place["partition"], place["offset"]
    if len(places) != count or len(set(places.values())) != count:
        wrong.append(f"{len(places)} of {count} requests succeeded, with {len(set(places.values()))} places")
    for key in range(keys):
        mine = [places[number] for number in range(key, count, keys) if number in places]
        if mine != sorted(mine):
            wrong.append(f"key {key}: its records are not in the order in which they were sent")
    return wrong[:_MOST_FAULTS]


if __name__ == "__main__":
    main()
