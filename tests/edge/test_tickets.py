"""One-use tickets (ROBUSTNESS, S3): the second use is refused, also by another worker and after a restart."""

from __future__ import annotations

import json
import multiprocessing
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest
import trio
from structlog.typing import EventDict

from kiwi_gw.api import Action, Credential, HeadCredential, Identity, Permit, Refusal, SourceInfo, hookimpl
from kiwi_gw.config import LimitSettings
from kiwi_gw.edge.request_head import parse_head
from kiwi_gw.edge.tickets import (
    FolderTicketStore,
    MemoryTicketStore,
    StoredTicket,
    Tickets,
    TicketStore,
    ticket_of,
)
from kiwi_gw.testing import GatewayUnderTest, ScriptedSources, open_gateway
from tests.edge.admin import scrape, value
from tests.edge.hooks_bench import configuration, knock
from tests.edge.wall import Wall
from tests.edge.wire import Client, connect, upgrade


def identity(kept: StoredTicket | Refusal) -> Identity:
    assert isinstance(kept, StoredTicket)
    return kept.identity


ANN = Identity("ann", frozenset({"reader"}), {"of": ("a", 1)}, None)
START, OTHER_START = "0123456789abcdef", "fedcba9876543210"
OWN, FOREIGN = "https://app.example", "https://evil.example"


class Bearers:
    """A bearer is who it says."""

    def __init__(self) -> None:
        self.expires_at: float | None = None
        self.revoked: set[str] = set()

    @hookimpl
    def authenticate(self, credential: Credential) -> Identity | Refusal | None:
        assert isinstance(credential, HeadCredential)
        given = (credential.header("authorization") or "").removeprefix("Bearer ")
        if given == "anonymous":
            return None
        return Identity(given, expires_at=self.expires_at) if given else Refusal("no_token", "who are you?")

    @hookimpl
    def reauthenticate(self, identity: Identity) -> Identity | Refusal:
        return Refusal("revoked", "not any more") if identity.name in self.revoked else identity

    @hookimpl
    def authorize(self, identity: Identity, action: Action, source: SourceInfo | None) -> Permit:
        return Permit()


@asynccontextmanager
async def running(
    bearers: Bearers | None = None, *, admin: str | None = None, **limits: int
) -> AsyncIterator[GatewayUnderTest]:
    text = configuration(["scripted", "bearers"], {"server": {"limits": limits, "allowed_origins": [OWN]}})
    plugins = {"scripted": ScriptedSources(), "bearers": bearers or Bearers()}
    async with open_gateway(text, plugins=plugins, admin=admin) as gateway:
        with trio.fail_after(20):
            yield gateway


async def ask(
    gateway: GatewayUnderTest, *headers: str, method: str = "POST"
) -> tuple[int, dict[str, str], bytes]:
    stream = await gateway.connect()
    async with stream:
        lines = [f"{method} /api/v1/ticket HTTP/1.1", "Host: 127.0.0.1", "Connection: close", *headers]
        return await Client(stream).request("\r\n".join([*lines, "", ""]).encode())


async def ticket(gateway: GatewayUnderTest, who: str = "ann") -> str:
    status, headers, body = await ask(gateway, f"Authorization: Bearer {who}")
    assert (status, headers["cache-control"]) == (200, "no-store")
    said = json.loads(body)
    assert said["expires_in_ms"] == 30_000
    return str(said["ticket"])


# --- through the port ------------------------------------------------------------------------------


async def test_a_refused_ticket_is_in_the_log_without_the_ticket(log_lines: list[EventDict]) -> None:
    bearers = Bearers()
    async with running(bearers) as gateway:
        text = await ticket(gateway)
        bearers.revoked.add("ann")
        assert (await knock(gateway, f"/?ticket={text}"))[0] == 401
        assert (await knock(gateway, f"/?ticket={text}"))[0] == 401
    lines = [line for line in log_lines if line["event"] == "login refused"]
    assert [(line["code"], line.get("name")) for line in lines] == [
        ("revoked", "ann"),
        ("invalid_ticket", None),
    ]
    assert text not in str(lines)
    assert all(line["remote"] and line["path"] == "/" for line in lines)


async def test_a_ticket_lets_its_identity_in_once_and_never_again() -> None:
    async with running() as gateway:
        text = await ticket(gateway)
        async with connect(gateway, f"/?ticket={text}"):
            (connection,) = gateway.gateway.connections
            assert connection.identity.name == "ann"
            for _ in range(20):
                status, _, body = await knock(gateway, f"/?ticket={text}")
                assert (status, body.partition(b":")[0]) == (401, b"invalid_ticket")
        assert gateway.gateway.meters.auth["ticket", "accepted"] == 1
        assert gateway.gateway.meters.auth["ticket", "refused"] == 20


async def test_a_ticket_may_come_as_a_subprotocol() -> None:
    async with running() as gateway:
        offered = ("Sec-WebSocket-Protocol", f"kiwi-gw.ticket.{await ticket(gateway, 'bob')}")
        assert (await knock(gateway, "/", offered))[0] == 101
        assert (await knock(gateway, "/", offered))[0] == 401


async def test_of_many_that_use_one_ticket_at_the_same_time_one_gets_in() -> None:
    async with running() as gateway:
        text = await ticket(gateway)
        answers: list[int] = []

        async def use() -> None:
            answers.append((await knock(gateway, f"/?ticket={text}"))[0])

        async with trio.open_nursery() as nursery:
            for _ in range(30):
                nursery.start_soon(use)
        assert sorted(answers) == [101] + [401] * 29


async def test_no_ticket_outlives_a_restart() -> None:
    async with running() as gateway:
        text = await ticket(gateway)
    async with running() as gateway:
        assert (await knock(gateway, f"/?ticket={text}"))[0] == 401


async def test_a_wrong_ticket_is_not_made_good_by_other_credentials() -> None:
    async with running() as gateway:
        bearer = ("Authorization", "Bearer ann")
        assert (await knock(gateway, "/", bearer))[0] == 101
        assert (await knock(gateway, "/?ticket=x", bearer))[0] == 401


@pytest.mark.slow
async def test_the_end_of_the_credentials_is_that_of_the_connection(wall: Wall) -> None:
    bearers = Bearers()
    bearers.expires_at = wall.now + 1
    async with running(bearers) as gateway:
        text = await ticket(gateway)
        late = await ticket(gateway)
        async with connect(gateway, f"/?ticket={text}") as client:
            assert (await client.message())["data"]["type"] == "TOKEN_EXPIRING"
            wall.now = bearers.expires_at
            assert (await client.over()).code == 4402
        status, _, body = await knock(gateway, f"/?ticket={late}")
        assert (status, body.partition(b":")[0]) == (401, b"token_expired")


async def test_an_identity_is_judged_again_when_its_ticket_is_used_and_after_that() -> None:
    bearers = Bearers()
    async with running(bearers) as gateway:
        first, second = await ticket(gateway), await ticket(gateway)
        async with connect(gateway, f"/?ticket={first}") as client:
            bearers.revoked = {"ann"}
            status, _, body = await knock(gateway, f"/?ticket={second}")
            assert (status, body.partition(b":")[0]) == (401, b"revoked")
            gateway.file.write_text(gateway.file.read_text() + "\n# again")
            assert await gateway.reloader.reload()
            assert (await client.over()).code == 4503


async def test_who_shows_no_credentials_gets_none() -> None:
    async with running() as gateway:
        for headers in ((), ("Authorization: Bearer anonymous",)):
            status, answer, _ = await ask(gateway, *headers)
            assert (status, answer["www-authenticate"]) == (401, "Bearer")
        assert (await ask(gateway, method="GET"))[0] == 405
    async with open_gateway(configuration([], sources=[])) as gateway:
        assert (await ask(gateway, "Authorization: Bearer ann"))[0] == 404
    async with running(max_tickets=0) as gateway:
        assert (await ask(gateway, "Authorization: Bearer ann"))[0] == 404


async def test_too_many_that_were_not_used_are_429() -> None:
    async with running(max_tickets_per_identity=2) as gateway:
        first = await ticket(gateway)
        await ticket(gateway)
        status, headers, _ = await ask(gateway, "Authorization: Bearer ann")
        assert (status, headers["retry-after"]) == (429, "30")
        await ticket(gateway, "bob")
        assert (await knock(gateway, f"/?ticket={first}"))[0] == 101
        await ticket(gateway)


@pytest.mark.parametrize(
    ("origin", "preflight", "post"),
    [(OWN, 204, 200), (FOREIGN, 403, 403), ("null", 403, 403), ("http://127.0.0.1", 204, 200)],
)
async def test_pages_of_listed_origins_may_ask_and_no_others(origin: str, preflight: int, post: int) -> None:
    async with running() as gateway:
        wish = "Access-Control-Request-Method: POST"
        status, headers, _ = await ask(gateway, f"Origin: {origin}", wish, method="OPTIONS")
        assert status == preflight
        assert headers.get("access-control-allow-origin") == (origin if preflight == 204 else None)
        status, headers, body = await ask(gateway, f"Origin: {origin}", "Authorization: Bearer ann")
        assert status == post
        assert headers.get("access-control-allow-origin") == (origin if post == 200 else None)
        assert (b"ticket" in body) == (post == 200)
        if post == 200:  # a page is told, too, why it gets none
            status, headers, _ = await ask(gateway, f"Origin: {origin}")
            assert (status, headers["access-control-allow-origin"]) == (401, origin)


async def test_pages_without_an_origin_may_ask_where_listed_but_send_nothing_by_themselves() -> None:
    text = configuration(["scripted", "bearers"], {"server": {"allowed_origins": [OWN, "null"]}})
    plugins = {"scripted": ScriptedSources(), "bearers": Bearers()}
    async with open_gateway(text, plugins=plugins) as gateway:
        with trio.fail_after(20):
            for origin, expected in (("null", None), (OWN, "true")):
                for method in ("OPTIONS", "POST"):
                    bearer = "Authorization: Bearer ann"
                    status, headers, _ = await ask(gateway, f"Origin: {origin}", bearer, method=method)
                    expected_status = 204 if method == "OPTIONS" else 200
                    assert (status, headers["access-control-allow-origin"]) == (expected_status, origin)
                    assert headers.get("access-control-allow-credentials") == expected


async def test_a_page_that_is_refused_is_in_the_log(log_lines: list[EventDict]) -> None:
    async with running() as gateway:
        for method in ("OPTIONS", "POST"):
            assert (await ask(gateway, f"Origin: {FOREIGN}", method=method))[0] == 403
    lines = [line for line in log_lines if line["event"] == "origin refused"]
    assert [(line["origin"], line["path"]) for line in lines] == [(FOREIGN, "/api/v1/ticket")] * 2


async def test_who_asks_for_tickets_is_held_back_like_who_connects() -> None:
    async with running(connections_per_second=1, connections_burst=3) as gateway:
        now = gateway.listener.admission._clock()
        gateway.listener.admission._clock = lambda: now
        answers = [await ask(gateway) for _ in range(20)]
        assert [status for status, _, _ in answers] == [401] * 3 + [503] * 17
        assert answers[3][1]["retry-after"] == "1"
    async with running(max_connections_per_address=1) as gateway:
        text = await ticket(gateway)
        async with connect(gateway, f"/?ticket={text}"):
            assert (await ask(gateway, "Authorization: Bearer ann"))[0] == 503


async def test_a_ticket_is_kept_by_who_finds_no_room() -> None:
    async with running(max_connections_per_identity=1) as gateway:
        first, second = await ticket(gateway), await ticket(gateway)
        async with connect(gateway, f"/?ticket={first}"):
            assert (await knock(gateway, f"/?ticket={second}"))[0] == 503
            gateway.gateway.draining = True
            assert (await knock(gateway, f"/?ticket={second}"))[0] == 503
            gateway.gateway.draining = False
        while gateway.listener.admission.identities:
            await trio.lowlevel.checkpoint()
        assert (await knock(gateway, f"/?ticket={second}"))[0] == 101
        assert (await knock(gateway, f"/?ticket={second}"))[0] == 401


async def test_nothing_of_a_ticket_is_in_the_log_or_the_metrics(log_lines: list[EventDict]) -> None:
    async with running(admin="127.0.0.1:0") as gateway:
        text = await ticket(gateway)
        secret = text.rpartition(".")[2]
        async with connect(gateway, f"/?ticket={text}"):
            pass
        for path in (f"/?ticket={text}", f"/events?ticket={text}", f"/nothing?ticket={text}"):
            await knock(gateway, path)
        stream = await gateway.connect()
        async with stream:
            head = f"GET /readyz?ticket={text} HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n"
            await stream.send_all(head.encode())
            assert await stream.receive_some(10_000)
        samples = await scrape(gateway.admin_address, {"Authorization": "Bearer ann"})
        assert value(samples, "auth_total", method="ticket", result="accepted") == 1
        assert secret not in repr(samples)
        assert secret not in repr(log_lines)
        assert log_lines


# --- the tickets themselves ------------------------------------------------------------------------


def office(store: TicketStore | None = None, start: str = START, slot: int = 0, **limits: int) -> Tickets:
    held = LimitSettings(**limits)
    return Tickets(lambda: held, start, slot, store)


def test_a_ticket_is_192_random_bits_that_say_nothing() -> None:
    tickets = office(max_tickets_per_identity=1_000)
    texts = {str(tickets.issue(ANN)) for _ in range(1_000)}
    assert len(texts) == 1_000
    assert all(re.fullmatch(rf"{START}\.0\.[\w-]{{32}}", text) for text in texts)


@pytest.mark.parametrize("kind", ["memory", "folder"])
def test_what_is_taken_is_the_whole_identity_within_its_time(tmp_path: Path, kind: str) -> None:
    store: TicketStore = MemoryTicketStore() if kind == "memory" else FolderTicketStore(tmp_path, "0-")
    now = 100.0
    limits = LimitSettings(ticket_ttl_ms=5_000)
    tickets = Tickets(lambda: limits, START, 0, store, lambda: now)
    first, second = str(tickets.issue(ANN)), str(tickets.issue(ANN))
    now = 104.9
    assert identity(tickets.take(first)) == ANN
    now = 105.0
    assert isinstance(tickets.take(second), Refusal)
    assert list(tmp_path.iterdir()) == []


def test_a_token_that_an_identity_was_issued_with_is_not_kept(tmp_path: Path) -> None:
    tickets = office(FolderTicketStore(tmp_path, "0-"))
    text = tickets.issue(replace(ANN, issued_token="new-token"))
    (file,) = tmp_path.iterdir()
    assert b"new-token" not in file.read_bytes()
    assert identity(tickets.take(str(text))) == ANN


@pytest.mark.parametrize(
    "text",
    ["", "x", f"{START}.0.", f"{START}.0.{'a' * 31}", f"{START}.0.{'../' * 11}", f"{START}.9999.{'a' * 32}"],
)
def test_what_is_no_ticket_is_refused(tmp_path: Path, text: str) -> None:
    assert isinstance(office(FolderTicketStore(tmp_path, "0-")).take(text), Refusal)


def test_those_of_another_start_are_refused_even_where_their_file_is_left(tmp_path: Path) -> None:
    text = str(office(FolderTicketStore(tmp_path, "0-"), OTHER_START).issue(ANN))
    again = office(FolderTicketStore(tmp_path, "1-"))
    assert isinstance(again.take(text), Refusal)
    assert isinstance(again.take(text.replace(OTHER_START, "")), Refusal)


def test_what_was_given_out_is_bounded_and_what_expired_or_was_used_elsewhere_does_not_count(
    tmp_path: Path,
) -> None:
    now = 0.0
    limits = LimitSettings(max_tickets=6, max_tickets_per_identity=3, ticket_ttl_ms=1_000)
    one = Tickets(lambda: limits, START, 0, FolderTicketStore(tmp_path, "0-"), lambda: now)
    other = Tickets(lambda: limits, START, 1, FolderTicketStore(tmp_path, "1-"), lambda: now)
    texts = [str(one.issue(ANN)) for _ in range(3)]
    assert isinstance(one.issue(ANN), Refusal)
    assert identity(other.take(texts[0])) == ANN
    assert isinstance(one.issue(ANN), str)
    for name in "abc":
        assert isinstance(one.issue(Identity(name)), str)
    assert isinstance(one.issue(Identity("d")), Refusal)
    now = 1.0
    assert isinstance(one.issue(Identity("d")), str)
    assert len(list(tmp_path.iterdir())) == 1
    assert len(one._waiting) == len(one._of) == 1


def test_tickets_that_were_used_elsewhere_take_no_place_of_all(tmp_path: Path) -> None:
    limits = LimitSettings(max_tickets=6)
    one = Tickets(lambda: limits, START, 0, FolderTicketStore(tmp_path, "0-"))
    other = Tickets(lambda: limits, START, 1, FolderTicketStore(tmp_path, "1-"))
    texts = [str(one.issue(Identity(name))) for name in "abcdef"]
    for text in texts[1:]:
        assert isinstance(other.take(text), StoredTicket)
    assert isinstance(one.issue(Identity("g")), str)
    assert len(one._waiting) == len(one._of) == 2


def test_those_that_expire_are_let_go_of_in_whatever_order(tmp_path: Path) -> None:
    now, limits = 0.0, LimitSettings(ticket_ttl_ms=60_000)
    tickets = Tickets(lambda: limits, START, 0, FolderTicketStore(tmp_path, "0-"), lambda: now)
    tickets.issue(ANN)
    limits = LimitSettings(ticket_ttl_ms=1_000)
    tickets.issue(ANN)
    now = 1.0
    tickets.forget_expired()
    assert len(tickets._waiting) == len(list(tmp_path.iterdir())) == 1
    now = 60.0
    tickets.forget_expired()
    assert (tickets._waiting, tickets._of, list(tmp_path.iterdir())) == ({}, {}, [])


@pytest.mark.slow
async def test_who_asks_for_no_more_tickets_leaves_none() -> None:
    async with running(ticket_ttl_ms=1_000) as gateway:
        assert (await ask(gateway, "Authorization: Bearer ann"))[0] == 200
        tickets = gateway.listener._tickets
        assert tickets is not None
        assert tickets._waiting
        while tickets._waiting:
            await trio.lowlevel.checkpoint()


def test_a_worker_that_is_replaced_leaves_nothing(tmp_path: Path) -> None:
    text = str(office(FolderTicketStore(tmp_path, "0-")).issue(ANN))
    kept = str(office(FolderTicketStore(tmp_path, "1-"), slot=1).issue(ANN))
    fresh = office(FolderTicketStore(tmp_path, "0-"))
    assert isinstance(fresh.take(text), Refusal)
    assert identity(fresh.take(kept)) == ANN


def _use(folder: Path, texts: list[str], slot: int, begin: object, won: object) -> None:
    """What a worker does: take every ticket, and say which it got."""
    tickets = office(FolderTicketStore(folder, f"{slot}-"), slot=slot)
    begin.wait()  # type: ignore[attr-defined]
    won.put([text for text in texts if not isinstance(tickets.take(text), Refusal)])  # type: ignore[attr-defined]


@pytest.mark.slow
def test_of_several_workers_that_get_a_ticket_at_the_same_time_one_takes_it(tmp_path: Path) -> None:
    spawn = multiprocessing.get_context("spawn")
    given = office(FolderTicketStore(tmp_path, "9-"), slot=9, max_tickets_per_identity=500)
    texts = [str(given.issue(ANN)) for _ in range(500)]
    begin, won = spawn.Barrier(2), spawn.Queue()
    workers = [spawn.Process(target=_use, args=(tmp_path, texts, slot, begin, won)) for slot in range(2)]
    for worker in workers:
        worker.start()
    taken = [text for _ in workers for text in won.get(timeout=60)]
    for worker in workers:
        worker.join()
    assert sorted(taken) == sorted(texts)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("path", "headers", "found"),
    [
        ("/", (), None),
        ("/?x=ticket", (), None),
        ("/?ticket=a.b", (), "a.b"),
        ("/?ticket=a&ticket=a", (), "a"),
        ("/?ticket=a&ticket=b", (), ""),
        ("/?ticket=", (), ""),
        ("/", (("Sec-WebSocket-Protocol", "kiwi, kiwi-gw.ticket.a.b"),), "a.b"),
        ("/?ticket=b", (("Sec-WebSocket-Protocol", "kiwi-gw.ticket.a"),), ""),
        ("/?" + "&".join(["ticket=a"] * 101), (), ""),
    ],
)
def test_where_a_ticket_is_looked_for(
    path: str, headers: tuple[tuple[str, str], ...], found: str | None
) -> None:
    assert ticket_of(parse_head(upgrade(path, headers))) == found
