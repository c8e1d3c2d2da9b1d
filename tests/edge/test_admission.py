"""How many connections one client may have, and how many may come (ROBUSTNESS, C6)."""

from __future__ import annotations

import random
import ssl
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import trio
import trustme

from kiwi_gw.api import ANONYMOUS, Credential, HeadCredential, Identity, Refusal, hookimpl
from kiwi_gw.config import LimitSettings
from kiwi_gw.core.accounts import ClientAccount, SharedAccount
from kiwi_gw.core.encoding import keyed_format
from kiwi_gw.edge.admission import Admission, RejectedError
from kiwi_gw.runtime.client_access import ClientAccess
from kiwi_gw.testing import GatewayUnderTest, ScriptedSources, open_gateway
from tests.edge.hooks_bench import configuration, knock
from tests.edge.wire import Client, command, connect, upgrade
from tests.stalls import within
from tests.unit.core.fakes import names

LOCAL = ("127.0.0.1", 40_000)


@dataclass
class Full:
    """Implements `AdmissionContext`: a gateway with room for all, but for its limits."""

    limits: LimitSettings
    connections: tuple[object, ...] = ()
    refusing: bool = False
    draining: bool = False
    compiling: SharedAccount = field(default_factory=lambda: SharedAccount(0))


class Named:
    """A client is who its query says; `no`: nobody."""

    @hookimpl
    def authenticate(self, credential: Credential) -> Identity | Refusal:
        assert isinstance(credential, HeadCredential)
        name = credential.query
        if not name:
            return replace(ANONYMOUS, roles=frozenset({"visitor"}), claims={"seen": 1})
        if name == "broken":
            raise RuntimeError("the hook is broken")
        return Refusal("invalid_token", "no") if name == "no" else Identity(name)


@asynccontextmanager
async def running(
    address: str = "127.0.0.1:0",
    *,
    server: dict[str, object] | None = None,
    within: float = 30,
    **limits: int,
) -> AsyncIterator[GatewayUnderTest]:
    text = configuration(["scripted", "named"], {"server": {**(server or {}), "limits": limits}})
    plugins = {"scripted": ScriptedSources(), "named": Named()}
    async with open_gateway(text, plugins=plugins, address=address) as gateway:
        with trio.fail_after(within):
            yield gateway


async def test_an_address_has_so_many_connections_and_one_more_when_one_ends() -> None:
    async with running(max_connections_per_address=2) as gateway, AsyncExitStack() as stack:
        for name in "ab":
            await stack.enter_async_context(connect(gateway, f"/?{name}"))
        with within(1):
            status, headers, body = await knock(gateway, "/?c")
        assert (status, headers["retry-after"]) == (503, "5")
        assert b"from this address" in body
        assert gateway.listener.rejected == {"limit_ip": 1}
        stream = await gateway.connect()
        async with stream:  # plain requests are no connections of a client
            await stream.send_all(b"GET /livez HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
            assert b" 200 " in await stream.receive_some(1000)
        await stack.aclose()
        await emptied(gateway)
        assert (await knock(gateway, "/?c"))[0] == 101


async def test_an_identity_has_so_many_connections_and_anonymous_clients_any_number() -> None:
    async with running(max_connections_per_identity=1) as gateway, AsyncExitStack() as stack:
        for name in ("ann", "bob", "", ""):
            await stack.enter_async_context(connect(gateway, f"/?{name}"))
        status, _, body = await knock(gateway, "/?ann")
        assert (status, body[:21]) == (503, b"too_many_connections:")
        assert gateway.listener.rejected == {"limit_identity": 1}
        assert dict(gateway.listener.admission.identities) == {"ann": 1, "bob": 1}


async def test_who_is_called_anonymous_is_an_identity_like_others() -> None:
    async with running(max_connections_per_identity=1) as gateway, connect(gateway, "/?anonymous"):
        assert (await knock(gateway, "/?anonymous"))[0] == 503


async def test_only_so_many_come_in_a_second() -> None:
    async with running(connections_per_second=1, connections_burst=3) as gateway:
        now = gateway.listener.admission._clock()
        gateway.listener.admission._clock = lambda: now
        answers = [await knock(gateway, "/?no") for _ in range(10)]
        # Those that are let in to say who they are: the burst, and one more for every second that passed.
        assert [status for status, _, _ in answers] == [401] * 3 + [503] * 7
        assert answers[3][1]["retry-after"] == "1"
        assert gateway.listener.rejected["rate"] == 7
        now += 2
        assert [(await knock(gateway, "/?no"))[0] for _ in range(3)] == [401, 401, 503]


async def test_limits_that_a_reload_sets_count_those_who_are_there() -> None:
    async with running() as gateway, connect(gateway, "/?ann"):
        limits = {"max_connections_per_address": 1}
        gateway.file.write_text(configuration(["scripted", "named"], {"server": {"limits": limits}}))
        assert await gateway.reloader.reload()
        assert (await knock(gateway, "/?bob"))[0] == 503


async def test_unix_sockets_have_no_address_to_count(tmp_path: Path) -> None:
    path = f"unix:{tmp_path}/kiwi.sock"
    async with (
        running(path, max_connections_per_address=1) as gateway,
        connect(gateway, "/?a"),
        connect(gateway, "/?b"),
    ):
        assert not gateway.listener.admission.addresses


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        (("10.0.0.1", 1), ("10.0.0.1", 2), True),
        (("10.0.0.1", 1), ("10.0.0.2", 1), False),
        (("10.0.0.1", 1), ("::ffff:10.0.0.1", 1, 0, 0), True),
        (("::ffff:10.0.0.1", 1, 0, 0), ("::ffff:10.0.0.2", 1, 0, 0), False),
        (("2001:db8:0:1::1", 1, 0, 0), ("2001:db8:0:1:ffff::9", 2, 0, 0), True),
        (("2001:db8:0:1::1", 1, 0, 0), ("2001:db8:0:2::1", 1, 0, 0), False),
        (("fe80::1%eth0", 1, 0, 2), ("fe80::2", 1, 0, 3), True),
    ],
)
def test_a_client_is_an_ipv4_address_or_a_64_network(one: object, other: object, same: bool) -> None:
    limits = LimitSettings(max_connections_per_address=1)
    admission = Admission(Full(limits))
    admission.new_slot(one).enter()
    if not same:
        admission.new_slot(other).enter()
        return
    with pytest.raises(RejectedError) as refused:
        admission.new_slot(other).enter()
    assert refused.value.reason == "limit_ip"


def test_an_identity_that_comes_later_is_counted_too_and_one_too_many_changes_nothing() -> None:
    limits = LimitSettings(max_connections_per_identity=1)
    admission = Admission(Full(limits))
    first, second = admission.new_slot(LOCAL), admission.new_slot(LOCAL)
    assert first.identify(Identity("ann")) is None
    assert second.identify(Identity("bob")) is None
    refusal = second.identify(Identity("ann"))
    assert refusal is not None
    assert (refusal.code, refusal.retry) == ("too_many_connections", True)
    assert dict(admission.identities) == {"ann": 1, "bob": 1}
    assert first.identify(Identity("ann", frozenset({"more"}))) is None  # the same one, judged again
    assert first.identify(Identity("carl")) is None
    assert second.identify(Identity("ann")) is None
    assert dict(admission.identities) == {"carl": 1, "ann": 1}


def test_who_is_refused_by_an_address_takes_no_share_of_the_rate() -> None:
    limits = LimitSettings(max_connections_per_address=1, connections_per_second=1, connections_burst=2)
    admission = Admission(Full(limits), clock=lambda: 1.0)
    admission.new_slot(LOCAL).enter()
    for _ in range(100):
        with pytest.raises(RejectedError, match="from this address"):
            admission.new_slot(LOCAL).enter()
    admission.new_slot(("10.0.0.1", 1)).enter()
    with pytest.raises(RejectedError, match="too many new"):
        admission.new_slot(("10.0.0.2", 1)).enter()


def test_ten_thousand_places_leave_nothing_however_they_end() -> None:
    limits = LimitSettings(max_connections_per_address=50, max_connections_per_identity=3)
    admission = Admission(Full(limits))
    dice = random.Random(12)
    held = []
    for _ in range(10_000):
        slot = admission.new_slot((f"10.0.0.{dice.randrange(20)}", 1))
        held.append(slot)
        try:
            slot.enter()
            for _ in range(dice.randrange(3)):
                slot.identify(dice.choice([Identity("ann"), Identity("bob"), ANONYMOUS]))
        except RejectedError:
            pass
        if dice.random() < 0.6:
            leaver = held.pop(dice.randrange(len(held)))
            leaver.leave()
            leaver.leave()
    assert sum(admission.identities.values()) <= 6
    for slot in held:
        slot.leave()
    assert not admission.addresses
    assert not admission.identities


async def test_nobody_new_comes_in_where_memory_is_short() -> None:
    # This process holds more than a megabyte: what is measured is its own memory, by the kernel's figure.
    async with running() as gateway, connect(gateway, "/?ann") as there:
        limits = {"resident_bytes": "1MiB"}
        gateway.file.write_text(configuration(["scripted", "named"], {"server": {"limits": limits}}))
        assert await gateway.reloader.reload()
        while not gateway.gateway.refusing:
            await trio.testing.wait_all_tasks_blocked()
        with within(1):
            status, headers, _ = await knock(gateway, "/?bob")
        assert (status, headers["retry-after"]) == (503, "5")
        assert gateway.listener.rejected == {"overload": 1}
        stream = await gateway.connect()
        async with stream:
            await stream.send_all(b"GET /readyz HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n")
            answer = await stream.receive_some(10_000)
            assert b" 503 " in answer
        assert b'"overload":2' in answer
        await there.send(command("SUBSCRIBE", "a"))
        over = await there.over()
        assert (over.code, over.reason) == (1013, "try_again_later")


async def emptied(gateway: GatewayUnderTest) -> None:
    """Until everybody has left."""
    admission = gateway.listener.admission
    while admission.addresses or admission.identities:
        await trio.testing.wait_all_tasks_blocked()


async def misbehave(gateway: GatewayUnderTest, number: int) -> None:
    """Come and go in one of several ways."""
    stream = await gateway.connect()
    async with stream:
        match number % 6:
            case 0:
                await Client(stream).handshake(f"/?c{number % 5}")
            case 1:
                assert (await Client(stream).request(upgrade("/?no")))[0] == 401
            case 2:
                await stream.send_all(upgrade("/?ann"))  # and is gone before it is answered
            case 3:
                await stream.send_all(upgrade("/?ann")[:60])
            case 4:
                assert (await Client(stream).request(upgrade("/nothing")))[0] == 404
            case 5:
                assert (await Client(stream).request(upgrade("/?broken")))[0] == 500


@pytest.mark.slow
async def test_a_thousand_that_come_and_go_in_all_ways_leave_nothing() -> None:
    # Where the machine stands still for five seconds, who is asked for credentials would get a 503.
    async with running(
        server={"auth_timeout_ms": 90_000},
        within=100,
        max_connections_per_address=500,
        max_connections_per_identity=400,
    ) as gateway:
        for first in range(0, 1_000, 50):
            async with trio.open_nursery() as nursery:
                for number in range(first, first + 50):
                    nursery.start_soon(misbehave, gateway, number)
        await emptied(gateway)
        assert (await knock(gateway, "/?ann"))[0] == 101


async def test_handshakes_of_tls_that_fail_and_connections_that_are_cancelled_leave_nothing(
    tmp_path: Path,
) -> None:
    authority = trustme.CA()
    cert = authority.issue_cert("gateway.test")
    (tmp_path / "cert.pem").write_bytes(b"".join(blob.bytes() for blob in cert.cert_chain_pems))
    (tmp_path / "key.pem").write_bytes(cert.private_key_pem.bytes())
    tls = {"cert": str(tmp_path / "cert.pem"), "key": str(tmp_path / "key.pem")}
    trusting = ssl.create_default_context()
    authority.configure_trust(trusting)
    async with running(server={"tls": tls}) as gateway:
        admission = gateway.listener.admission
        for number in range(50):
            stream = await gateway.connect()
            async with stream:
                await stream.send_all(b"\x16\x03\x01\x00\x05hello" if number % 2 else b"\x16\x03")
        async with connect(gateway, "/?ann", tls=trusting):
            assert sum(admission.addresses.values()) == 1
    assert not admission.addresses
    assert not admission.identities


@pytest.mark.parametrize(
    ("who", "one", "other", "same"),
    [
        ("", ("10.0.0.1", 1), ("10.0.0.1", 2), True),
        ("", ("10.0.0.1", 1), ("10.0.0.2", 1), False),
        ("", ("2001:db8:0:1::1", 1, 0, 0), ("2001:db8:0:1::2", 1, 0, 0), True),
        ("", "", "", False),  # Unix sockets
        ("ann", ("10.0.0.1", 1), ("10.0.0.2", 1), True),
        ("anonymous", ("10.0.0.1", 1), ("10.0.0.2", 1), True),
    ],
)
def test_who_pays_for_a_query_is_whom_admission_counts(
    who: str, one: object, other: object, same: bool
) -> None:
    """Anonymous clients of a plugin have roles and claims, and no account in common for it."""
    visitor = replace(ANONYMOUS, roles=frozenset({"visitor"}), claims={"seen": 1})
    identity = Identity(who) if who else visitor
    admission = Admission(Full(LimitSettings()))
    payers = []
    for number, address in enumerate((one, other)):
        accounts: Any = SimpleNamespace(account=lambda who: ClientAccount(1))
        access = ClientAccess(identity, number, "fake", accounts, admission.new_slot(address))
        payer = access.payer(keyed_format(replace(names(), chosen=True)))
        assert payer is not None
        payers.append(payer.identity)
    assert (payers[0] == payers[1]) is same
