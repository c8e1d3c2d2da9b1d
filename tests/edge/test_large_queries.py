"""Large queries, over a socket: another process reads and compiles them while the loop does other things."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing

from kiwi_gw.core.accounts import SharedAccount
from kiwi_gw.core.round_budget import RoundBudget
from kiwi_gw.query import caql, sql
from kiwi_gw.query.compiler import query_codegen
from kiwi_gw.runtime.offloads import Offloads
from kiwi_gw.testing import GatewayUnderTest
from tests.edge.hooks_bench import running
from tests.edge.test_queries import numbers, results
from tests.edge.wire import TEXT, command, connect, frame

NAMES = [f"{number:02}" * 30 for number in range(60)]
LARGE = f"value.n % 2 = 0 OR value.name IN ({', '.join(map(repr, NAMES))})"
WRONG = f"{LARGE} AND value.n >"

HELD = """
import sys
from kiwi_gw.query.worker_messages import answer
from kiwi_gw.query.worker import serve
def held(asked):
    with open(sys.argv[1]) as pipe:  # until the test writes into it
        pipe.read()
    return answer(asked)
serve(held)
"""


class Gate:
    """What holds the process for queries. asked: how often it was passed."""

    def __init__(self, path: Path) -> None:
        self.path = path
        os.mkfifo(path)

    def on(self, gateway: GatewayUnderTest) -> Offloads:
        """Every question of this gateway waits."""
        offloads = gateway.gateway.offloads
        offloads._command = (sys.executable, "-P", "-c", HELD, str(self.path))
        return offloads

    async def pass_one(self) -> None:
        """Wait until a question is there, and let it pass."""
        await trio.to_thread.run_sync(self.path.write_text, "", abandon_on_cancel=True)


@pytest.fixture
def gate(tmp_path: Path) -> Gate:
    return Gate(tmp_path / "gate")


def beside(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever reads or compiles a query in this process fails from now on."""
    monkeypatch.setattr(sql, "read", lambda *_: pytest.fail("read on the loop"))
    monkeypatch.setattr(caql, "read", lambda *_: pytest.fail("read on the loop"))
    monkeypatch.setattr(query_codegen, "compile", lambda *_: pytest.fail("compiled here"), raising=False)


def zetta(topic: str) -> bytes:
    return frame(TEXT, json.dumps({"type": "subscribe", "topic": topic}).encode())


def waiting(offloads: Offloads) -> list[int]:
    """How many wait for each question, the one that is being answered first."""
    return [len(job.waiting) for job in offloads._jobs.values()]


async def settled(offloads: Offloads, *counts: int) -> None:
    """Until so many wait, and the process is at the first question."""
    while waiting(offloads) != list(counts) or not all(job.tries for job in [*offloads._jobs.values()][:1]):
        await trio.lowlevel.checkpoint()


@pytest.mark.usefixtures("no_tracebacks")
async def test_a_query_of_4_kib_is_read_and_compiled_beside_the_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    assert 3_500 < len(LARGE) <= 4_096
    async with running() as (gateway, scripted), connect(gateway) as client:
        beside(monkeypatch)
        await client.subscribe("a", where=LARGE)
        pid = gateway.gateway.offloads.pid
        await scripted["a"].publish(numbers(1, 2, 3, 4))
        assert await results(client, 2) == [2, 4]
        await client.subscribe("b", where=LARGE)  # known by now
        assert gateway.gateway.offloads.pid == pid is not None
    with pytest.raises(ProcessLookupError):  # it ended with the gateway
        os.kill(pid, 0)


@pytest.mark.usefixtures("no_tracebacks")
async def test_so_is_one_of_the_other_protocol(monkeypatch: pytest.MonkeyPatch) -> None:
    wanted = " or ".join(f'data.name = "{name}"' for name in NAMES[:12])
    topic = f"kiwi-gw/scripted/a/events?where data.n = 2 or {wanted}"
    async with running() as (gateway, scripted), connect(gateway, "/events") as client:
        beside(monkeypatch)
        await client.send(zetta(topic))
        message = await client.message()
        assert (message["type"], message["topic"]) == ("subscribe-ack", topic)
        await scripted["a"].publish(numbers(1, 2, 3))
        assert (await client.message())["data"]["n"] == 2


@pytest.mark.usefixtures("no_tracebacks")
async def test_others_are_served_while_a_query_is_read(gate: Gate) -> None:
    async with running() as (gateway, scripted), connect(gateway) as slow, connect(gateway) as other:
        offloads = gate.on(gateway)
        await slow.send(command("SUBSCRIBE", "a", where=LARGE))
        await settled(offloads, 1)
        await slow.subscribe("b")  # nor does it wait for itself
        await other.subscribe("a", where="value.n > 1")
        await scripted["a"].publish(numbers(1, 2))
        assert await results(other, 1) == [2]
        assert (await slow.ask("SUBSCRIBE", "a"))["data"]["error"].startswith("Source already has")
        await gate.pass_one()
        assert (await slow.message())["type"] == "SUBSCRIBE_OK"


@pytest.mark.usefixtures("no_tracebacks")
async def test_an_unsubscribe_meanwhile_cancels_it(gate: Gate) -> None:
    async with running() as (gateway, scripted), connect(gateway) as client:
        offloads = gate.on(gateway)
        await client.send(command("SUBSCRIBE", "a", where=LARGE, mode="pull"))
        await settled(offloads, 1)
        await client.send(command("REQUEST", "a", n=1) + command("UNSUBSCRIBE", "a"))
        types = [(await client.message())["type"] for _ in range(3)]
        assert types == ["SUBSCRIBE_ERROR", "REQUEST_ERROR", "UNSUBSCRIBE_OK"]
        await client.subscribe("a")
        await gate.pass_one()
        await settled(offloads)
        await scripted["a"].publish(numbers(1))  # nothing is filtered, nothing comes twice
        assert await results(client, 1) == [1]


@pytest.mark.usefixtures("no_tracebacks")
async def test_credit_that_comes_meanwhile_is_granted_when_it_is_open(gate: Gate) -> None:
    async with running() as (gateway, scripted), connect(gateway) as client:
        gate.on(gateway)
        await client.send(command("SUBSCRIBE", "a", where=LARGE, mode="pull") + command("REQUEST", "a", n=2))
        await gate.pass_one()
        messages = [await client.message() for _ in range(2)]
        assert [message["type"] for message in messages] == ["SUBSCRIBE_OK", "REQUEST_OK"]
        await scripted["a"].publish(numbers(2, 4, 6))
        assert await results(client, 2) == [2, 4]


@pytest.mark.usefixtures("no_tracebacks")
async def test_a_disconnect_drops_what_waits(gate: Gate) -> None:
    async with running() as (gateway, _):
        offloads = gate.on(gateway)
        async with connect(gateway) as first, connect(gateway) as second, connect(gateway) as third:
            await first.send(command("SUBSCRIBE", "a", where=LARGE))
            await settled(offloads, 1)
            for client in (second, third):
                await client.send(command("SUBSCRIBE", "a", where=LARGE + " "))
            await settled(offloads, 1, 2)  # equal texts are one question
        await settled(offloads, 0)  # it is answered, but to nobody
        await gate.pass_one()
        await settled(offloads)


@pytest.mark.usefixtures("no_tracebacks")
async def test_a_refusal_says_where_and_is_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    async with running() as (gateway, _), connect(gateway) as client:
        beside(monkeypatch)
        error = await client.ask("SUBSCRIBE", "a", where=WRONG)
        assert error["data"]["position"] == len(WRONG)
        assert "where: it ends too early" in error["data"]["error"]
        offloads = gateway.gateway.offloads
        offloads._known.clear()
        pid, offloads._command = offloads.pid, ("/nowhere",)
        assert pid is not None
        os.kill(pid, 9)  # nobody is asked
        assert await client.ask("SUBSCRIBE", "a", where=WRONG) == error


async def test_without_a_process_it_is_to_be_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kiwi_gw.runtime.offloads.PAUSE_SECONDS", 0)
    async with running() as (gateway, _), connect(gateway) as client, connect(gateway, "/events") as other:
        gateway.gateway.offloads._command = ("/nowhere",)
        error: dict[str, Any] = await client.ask("SUBSCRIBE", "a", where=LARGE)
        assert error["data"]["error"] == "Too many queries wait to be read: try again"
        await other.send(zetta(f'a/**?where data.a = "{"x" * 600}"'))
        assert "try again" in json.dumps(await other.message())
        gateway.gateway.offloads._command = Offloads(RoundBudget())._command
        await client.subscribe("a", where=LARGE)


async def test_what_it_takes_is_charged_to_the_connection_and_not_to_all(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    charged: list[float] = []
    monkeypatch.setattr(SharedAccount, "charge", lambda self, seconds, now, **_: charged.append(seconds))
    limits = {"server": {"limits": {"connection_compiling_percent": 1}}}
    async with running(extra=limits) as (gateway, _), connect(gateway) as client:
        ask = gateway.gateway.offloads.ask

        def dear(question: bytes, done: Any) -> Any:
            return ask(question, lambda answer, seconds: done(answer, 5.0))

        monkeypatch.setattr(gateway.gateway.offloads, "ask", dear)
        await client.subscribe("a", where=LARGE)
        error = await client.ask("SUBSCRIBE", "b", where="value.n = 5")
        assert error["data"]["error"].startswith("Queries take too much time just now")
        assert sum(charged) < 5
