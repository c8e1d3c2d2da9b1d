"""A session that wants to know is told when its connection is over, once; others need not know of that."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest
from structlog.typing import EventDict

from kiwi_gw.api import ANONYMOUS
from kiwi_gw.core.commands import Cancel, Close, Command, HasEnd, Reply
from kiwi_gw.core.notices import Cancelled, Draining, Ended, Notice, OpenFailed
from kiwi_gw.runtime.connection import Connection
from kiwi_gw.runtime.session_end import ENDED_SESSION
from tests.unit.runtime.engines import ask
from tests.unit.runtime.fakes import Bench, FakeSession, Socket, Sources, config, running, settled
from tests.unit.runtime.test_engine_queries import world

Logged = Callable[[str], list[EventDict]]


class Counting:
    """A session that has at most two queries per client at a time. running: how many each has."""

    def __init__(self, client: str, running: Counter[str]) -> None:
        self._client, self._running = client, running
        self._mine: set[object] = set()
        self.told: list[Notice] = []
        self.ends = 0

    def receive(self, message: str | bytes, now: float) -> Iterable[Command]:
        match str(message).split():
            case ["QUERY", handle]:
                if self._running[self._client] >= 2:
                    yield Reply(b"too many")
                    return
                self._running[self._client] += 1
                self._mine.add(handle)
                yield ask("a", handle=handle)
            case ["STOP", handle]:
                yield Cancel(handle)
            case ["BYE"]:
                yield Close(1000, "")
                yield Reply(b"nobody hears that")

    def notice(self, notice: Notice) -> Iterable[Command]:
        self.told.append(notice)
        if isinstance(notice, OpenFailed | Ended | Cancelled) and notice.handle in self._mine:
            self._mine.discard(notice.handle)
            self._running[self._client] -= 1
        return ()

    def ended(self) -> None:
        self.ends += 1
        self._running[self._client] -= len(self._mine)


class Seat:
    """A connection of such a session."""

    def __init__(self, bench: Bench, client: str, running: Counter[str]) -> None:
        self.session, self.socket, self._bench = Counting(client, running), Socket(), bench
        number = bench.gateway.next_number()
        parts = bench.gateway, self.session, self.socket, ANONYMOUS, "fake", "here", 0.0
        self.connection = Connection(number, *parts, lambda: None)
        bench.gateway.connection_opened(self.connection)

    def says(self, *messages: str) -> None:
        for message in messages:
            self.connection.receive(message, 0.0)

    def leave(self) -> None:
        self.connection.end()
        self.connection.end()  # as what serves it does
        self._bench.gateway.connection_closed(self.connection)


WAYS: dict[str, Callable[[Seat], None]] = {
    "it vanishes": lambda seat: None,
    "it says goodbye": lambda seat: seat.says("BYE"),
    "it is dismissed": lambda seat: seat.connection.send_close(4402, "expired"),
    "it is aborted": lambda seat: seat.connection.abort(4408, "dead"),
    "it breaks": lambda seat: seat.connection.fail(ValueError("oh")),
    "the gateway stops": lambda seat: seat.connection.drain("draining", 100),
}


@pytest.mark.parametrize("way", WAYS)
async def test_what_it_counted_is_given_back_once_whatever_ends_it(tmp_path: Path, way: str) -> None:
    async with world(tmp_path) as it:
        counted: Counter[str] = Counter()
        seat, other = Seat(it.bench, "ann", counted), Seat(it.bench, "ann", counted)
        seat.says("QUERY 1")
        other.says("QUERY 2", "QUERY 3")
        assert (counted["ann"], bytes(other.socket.wire)) == (2, b"too many")
        await settled()
        WAYS[way](seat)
        told = len(seat.session.told)
        seat.leave()
        assert (counted["ann"], seat.session.ends) == (1, 1)
        it.bench.gateway.apply(it.bench.gateway.loaded)
        seat.says("QUERY 4")
        await settled()
        assert len(seat.session.told) == told
        assert counted["ann"] == 1
        other.says("QUERY 3", "STOP 2", "STOP 3")
        other.leave()
        await settled()
        assert counted["ann"] == 0
        assert it.nothing_is_left


async def test_it_comes_behind_the_end_of_all_that_it_had(tmp_path: Path) -> None:
    async with world(tmp_path) as it:
        seat = Seat(it.bench, "ann", Counter())
        seat.says("QUERY 1")
        had: list[int] = []
        tell = seat.session.ended

        def ended() -> None:
            had.append(len(seat.connection.subscriptions))
            tell()

        seat.session.ended = ended  # type: ignore[method-assign]
        seat.leave()
        assert had == [0]


async def test_one_that_fails_at_its_end_does_not_keep_its_connection(tmp_path: Path, logged: Logged) -> None:
    class Broken(FakeSession):
        def ended(self) -> None:
            raise KeyError("count")

    async with running(tmp_path, config("a"), fake=Sources()) as bench:
        client = bench.subscribe("a")
        client.connection._session = Broken()
        client.leave()
        assert len(logged("session failed at its end")) == 1
        assert bench.gateway.connections == set()
        hub = bench.gateway.hub("a")
        assert hub is not None
        assert hub.subscribers == 0


async def test_a_session_need_not_have_it(tmp_path: Path) -> None:
    assert not isinstance(FakeSession(), HasEnd)
    assert isinstance(Counting("ann", Counter()), HasEnd)
    async with running(tmp_path, config("a"), fake=Sources()) as bench:
        client = bench.subscribe("a")
        client.connection.send_close(1000, "")
        client.leave()
        client.does(ask("a"))
        assert client.told(Draining) == client.told(OpenFailed) == []


def test_nothing_is_said_behind_it() -> None:
    assert not list(ENDED_SESSION.receive("QUERY 1", 0.0))
    assert not list(ENDED_SESSION.notice(Draining(1)))
