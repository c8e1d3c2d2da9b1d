"""The load client: many subscribers on raw sockets, in one process that only receives and compares.

Settings (see `lab.Lab.load`): host, ports (kinds of subscribers are dealt to them in turn), path, ca (a file;
null: no TLS); sources (their names; subscribers are dealt to them in turn); subscribers; mode ("push", "pull"
or "mixed": in turn), credits (pull: the balance that is renewed when half of it is used); protocol; subscribe
(further members of SUBSCRIBE: a list, dealt in turn); sets (so many kinds of subscribers whose events have
other bytes: see `subscriptions`); bases (the first offset of every partition), first (the record that the
first event holds), warm and total (records of the warm-up, and with those of the run, of each source);
stalled (so many further subscribers do not read until the word `read`); delays (so many subscribers note when
they receive), periods (for which delays are reported); churn (subscribers that go and come per second);
capture (a file for the events that were read; null: none).

Says `ready` when all are subscribed, `warm` and `done` (the time) when the last client has read its last
event, then `result`. On `read` the stalled ones read until they have everything too, and it says `drained`.
On `stop` it stops and says what it has.
"""

from __future__ import annotations

import contextlib
import gc
import resource
import select
import socket
import ssl
import sys
import time
from dataclasses import replace
from typing import Any

from benchmarks.frames import Parted, masked, masked_pong
from benchmarks.latency import Notes
from benchmarks.protocols import WORDS, subscriptions
from benchmarks.stream import Reader, Reference
from benchmarks.workers import child
from benchmarks.workers.results import said
from benchmarks.workers.subscriber import Address, established, subscribed, trusting

Stream = tuple[str, int]
"""A source, and the number of the kind of subscribers."""

_RECEIVE_BYTES = 256 * 1024
_CALM = 0.95
"""No client goes or comes any more when this part of all events has been read: the last one gets some."""


class Client:
    """Hold one subscriber. credits: the balance it renews (0: push). asked: what it has given credit for.
    stream: whose bytes it gets. parted: takes what it receives apart, where several events are in a frame.

    notes: what it notes about delays, if it does."""

    __slots__ = ("asked", "credits", "notes", "parted", "reader", "reference", "sock", "source", "stream")

    def __init__(
        self, sock: socket.socket, reader: Reader, stream: Stream, reference: Reference, credit: int
    ) -> None:
        self.sock = sock
        self.reader = reader
        self.stream = stream
        self.source = stream[0]
        self.reference = reference
        self.credits = credit
        self.asked = 0
        self.notes: Notes | None = None
        self.parted: Parted | None = None

    def feed(self, chunk: memoryview) -> None:
        """Take the bytes that were received."""
        self.reader.feed(chunk if self.parted is None else memoryview(self.parted.feed(chunk)))

    def renew(self) -> None:
        """Give credit for what was used, once that is half of it."""
        half = self.credits // 2
        used = self.reader.events - (self.reader.first or 0)
        if self.asked - used <= self.credits - half:
            self.ask(half)

    def ask(self, n: int) -> None:
        self.asked += n
        self.sock.send(masked({"type": "REQUEST", "sourceId": self.source, "n": n}))


class Load:
    """Hold all subscribers of one run. clients: those that read; left: those that have gone."""

    def __init__(self, settings: dict[str, Any]) -> None:
        self.settings = settings
        tls = None if settings["ca"] is None else trusting(settings["ca"])
        self._addresses = [
            Address(settings["host"], port, settings["path"], tls) for port in settings["ports"]
        ]
        self._words = WORDS[settings["protocol"]]
        self.references: dict[Stream, Reference] = {
            (source, number): Reference(self._words.event)
            for source in settings["sources"]
            for number in range(settings["sets"])
        }
        self.clients: dict[int, Client] = {}
        self.stalled: list[Client] = []
        self.left: list[Client] = []
        self._buffer = bytearray(_RECEIVE_BYTES)
        self._poll = select.epoll()
        self._number = 0
        self.receives = 0
        self.received = 0
        self.lost = 0

    def connect(self) -> None:
        for _ in range(self.settings["subscribers"]):
            self._read_from(self._open())
        self.stalled = [self._open() for _ in range(self.settings["stalled"])]
        self._poll.register(sys.stdin, select.EPOLLIN)

    def note_delays(self) -> None:
        """Let the first subscribers note from here on when they receive."""
        for client in list(self.clients.values())[: self.settings["delays"]]:
            client.notes = Notes(client.reader.position)

    def wake_stalled(self) -> None:
        self.lost += sum(not established(client.sock) for client in self.stalled)
        for client in self.stalled:
            self._read_from(client)

    def read(self, events: int, *, churn: bool = False) -> bool:
        """Read until every client has read so many events. False: stopped, or all connections are lost."""
        waiting = {n for n, client in self.clients.items() if client.reader.events < events}
        # A client is done where its reference is complete and it has all of it: no need to count.
        complete = all(len(reference.ends) >= events for reference in self.references.values())
        buffer, view, clients = self._buffer, memoryview(self._buffer), self.clients
        poll, stdin, clock = self._poll, sys.stdin.fileno(), time.monotonic_ns
        pause = 1 / self.settings["churn"] if churn else -1.0
        next_change = time.monotonic() + pause
        while waiting:
            for number, _ in poll.poll(max(0.0, next_change - time.monotonic()) if churn else -1):
                if number == stdin:
                    child.wait_word()
                    return False
                client = clients[number]
                try:
                    taken = client.sock.recv_into(buffer)
                except ssl.SSLWantReadError:
                    continue
                except OSError:
                    taken = 0
                if not taken:
                    self.lost += 1
                    self.left.append(clients.pop(number))
                    poll.unregister(number)
                    waiting.discard(number)
                    if not clients:
                        return False
                    continue
                self.receives += 1
                self.received += taken
                reader = client.reader
                client.feed(view[:taken])
                if client.notes is not None:
                    client.notes.note(clock(), reader.position)
                if client.credits:
                    client.renew()
                if not complete:
                    ends = client.reference.ends
                    complete = len(ends) >= events and all(
                        len(reference.ends) >= events for reference in self.references.values()
                    )
                    if complete:
                        for one in clients.values():
                            one.reader.join()
                        waiting = {n for n in waiting if clients[n].reader.events < events}
                elif (
                    reader.position >= client.reference.ends[events - 1] or reader.segments
                ) and reader.events >= events:
                    waiting.discard(number)
            if churn and time.monotonic() >= next_change:
                next_change += pause
                if any(len(one.ends) > events * _CALM for one in self.references.values()):
                    churn = False
                else:
                    self._replace_one(waiting)
        return True

    def _open(self, *, late: bool = False) -> Client:
        index, settings = self._number, self.settings
        self._number += 1
        source = settings["sources"][index % len(settings["sources"])]
        pull = settings["mode"] == "pull" or (settings["mode"] == "mixed" and index % 2 == 1)
        stream = source, index % settings["sets"]
        more = settings["subscribe"][index % len(settings["subscribe"])]
        commands = subscriptions(
            settings["protocol"], source, pull=pull, more=more, before=stream[1], number=index
        )
        address = self._addresses[stream[1] % len(self._addresses)]
        address = replace(address, path=address.path.format(index))
        sock, rest = subscribed(address, commands, self._words.answered)

        def pong(payload: bytes) -> None:
            with contextlib.suppress(OSError):
                sock.send(masked_pong(payload))

        reference = self.references[stream]
        reader = Reader(reference, pong, late=late)
        client = Client(sock, reader, stream, reference, settings["credits"] if pull else 0)
        if self._words.joined is not None:
            client.parted = Parted(*self._words.joined)
        client.feed(memoryview(rest))
        if pull:
            client.ask(client.credits)
        return client

    def _read_from(self, client: Client) -> None:
        client.sock.setblocking(False)
        self.clients[client.sock.fileno()] = client
        self._poll.register(client.sock, select.EPOLLIN)

    def _replace_one(self, waiting: set[int]) -> None:
        """Replace the one that came first of those that note no delays."""
        number = next(n for n, client in self.clients.items() if client.notes is None)
        client = self.clients.pop(number)
        waiting.discard(number)
        self._poll.unregister(number)
        client.sock.close()
        self.left.append(client)
        new = self._open(late=True)
        self._read_from(new)
        waiting.add(new.sock.fileno())


def main() -> None:
    settings = child.settings()
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    load = Load(settings)
    load.connect()
    gc.collect()
    gc.freeze()
    child.say(ready=True)
    first = settings["first"]
    done = load.read(settings["warm"] - first)
    child.say(warm=child.now())
    load.receives = load.received = 0
    load.note_delays()
    begun, begun_ns = time.process_time(), time.monotonic_ns()
    done = done and load.read(settings["total"] - first, churn=settings["churn"] > 0)
    at, cpu = child.now(), time.process_time() - begun
    child.say(done=at, cpu=cpu)
    ended_ns = time.monotonic_ns()
    intact = sum(established(client.sock) for client in load.stalled)
    if load.stalled and child.wait_word() == "read":
        load.wake_stalled()
        load.read(settings["total"] - first)
        child.say(drained=child.now())
    child.say(result=said(load, begun_ns, ended_ns) | {"stalled_intact": intact})
    child.wait_word()


if __name__ == "__main__":
    main()
