"""A client of Lenses' SQL v2: statements, one after the other, each on a connection of its own.

Settings: host, port, partitions, records (that are in the topic), statements: pairs of a statement and its
condition. Says `ready`; on a word it executes the next one and says `seconds` (from sending it to END),
`first` (to the first RECORD, seconds; null: none came), `bytes`, `cpu` (our own), `faults`.
"""

from __future__ import annotations

import time

from benchmarks import statements
from benchmarks.statements import END, PATH, RECORD
from benchmarks.workers import child
from benchmarks.workers.subscriber import Address, subscribed

_RECEIVE_BYTES = 256 * 1024
_LONGEST = 150.0


def main() -> None:
    settings = child.settings()
    address = Address(settings["host"], settings["port"], PATH)
    count, partitions = settings["records"], settings["partitions"]
    child.say(ready=True)
    for sql, where in settings["statements"]:
        child.wait_word()
        seconds, first, chunks, cpu = _execute(address, sql)
        child.say(seconds=seconds, first=first, bytes=sum(map(len, chunks)), cpu=round(cpu, 3))
        due = statements.passing(where, count, partitions)
        child.say(faults=statements.faults(chunks, due, partitions))
        del chunks
    child.wait_word()


def _execute(address: Address, sql: str) -> tuple[float, float | None, list[bytes], float]:
    """Read until END, and look at nothing until then but whether a record has come."""
    sock, rest = subscribed(address, [], b"")
    sock.settimeout(_LONGEST)
    chunks, first = [rest], None
    begun, cpu = time.monotonic(), time.process_time()
    sock.sendall(statements.message(sql))
    while END not in chunks[-1][-64:]:
        chunk = sock.recv(_RECEIVE_BYTES)
        if not chunk:
            break
        if len(chunk) < len(END) + 64:  # it may have come in two parts
            chunk = chunks.pop() + chunk
        chunks.append(chunk)
        if first is None and RECORD in chunk:
            first = time.monotonic() - begun
    seconds, used = time.monotonic() - begun, time.process_time() - cpu
    sock.close()
    return round(seconds, 4), first, chunks, used


if __name__ == "__main__":
    main()
