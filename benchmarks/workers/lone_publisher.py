"""A publisher that has one PUBLISH on its way at a time (Lenses' v1), and notes how long each takes.

Settings: host, port, source, size (bytes of each value), warm and seconds (how long it publishes before it
notes, and then). Says `ready`; on a word it begins, and says `delays` (percentiles, ms), `published`, `cpu`
(our own), `faults`.
"""

from __future__ import annotations

import time

from benchmarks import records
from benchmarks.frames import bounds, masked
from benchmarks.latency import Delays
from benchmarks.protocols import WORDS, lenses
from benchmarks.workers import child
from benchmarks.workers.subscriber import Address, subscribed

_FIRST_ID = 1_000


def main() -> None:
    settings = child.settings()
    address = Address(settings["host"], settings["port"], WORDS["lenses"].path.format("lone"))
    login = lenses("LOGIN", 1, {"user": "any", "password": "any"})
    sock, rest = subscribed(address, [login], WORDS["lenses"].answered)
    value = records.value(0, settings["size"]).decode()
    child.say(ready=True)
    child.wait_word()
    begun, cpu = time.monotonic(), time.process_time()
    warm_until, until = begun + settings["warm"], begun + settings["warm"] + settings["seconds"]
    delays, wrong, number = Delays(), 0, _FIRST_ID
    while (now := time.monotonic()) < until:
        content = {"topic": settings["source"], "key": f"{number % 100}", "value": value}
        request = masked(lenses("PUBLISH", number, content))
        sent = time.monotonic_ns()
        sock.sendall(request)
        answered = False
        while not answered:
            while (found := bounds(rest, 0)) is None:
                rest += sock.recv(65_536)
            answer, rest = rest[found[0] : found[1]], rest[found[1] :]
            answered = b"%d" % number in answer
            wrong += answered and not answer.startswith(b'{"type":"SUCCESS"')
        if now >= warm_until:
            delays.add(time.monotonic_ns(), [sent])
        number += 1
    child.say(
        delays=delays.said(),
        published=number - _FIRST_ID,
        cpu=round(time.process_time() - cpu, 2),
        faults=[f"{wrong} requests failed"] if wrong else [],
    )
    child.wait_word()


if __name__ == "__main__":
    main()
