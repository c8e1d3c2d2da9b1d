"""Requests that come while the source of their topic is starting wait for it, if it is about to start."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio

from kiwi_gw.dialects.pulsar import topics
from kiwi_gw.runtime import request_load
from kiwi_gw.testing import GatewayUnderTest, Script, ScriptedSources, open_gateway
from tests.edge.test_pulsar import BROKER, EXPECTING, JSON, OWN, Rights, ask, messages, raw

CONFIG = """\
plugins: [scripted{plugins}]
pulsar: {{enabled: true, produce_timeout_ms: {produce_ms}}}
sources:
  - {{type: scripted, id: orders, note: "{note}"}}
"""
POST = messages({"value": "a"})
READ = OWN + "/partitions/0/messages?timeout=0"
NOT_YET = "the topic is not there, or not yet"


@asynccontextmanager
async def starting(
    *, rights: bool = False, produce_ms: int = 10_000
) -> AsyncIterator[tuple[GatewayUnderTest, Script]]:
    """A gateway whose source starts when the script is released."""
    sources = ScriptedSources(writable=True)
    sources["orders"].hold()
    plugins: dict[str, Any] = {"scripted": sources} | ({"rights": Rights()} if rights else {})
    text = CONFIG.format(plugins=", rights" if rights else "", produce_ms=produce_ms, note="")
    async with open_gateway(text, plugins=plugins) as gateway:
        with trio.fail_after(20):
            yield gateway, sources["orders"]


class Asking:
    """Requests that are under way. answers: those that there are, by the path and what is behind it."""

    def __init__(self, gateway: GatewayUnderTest, nursery: trio.Nursery) -> None:
        self._gateway, self._nursery = gateway, nursery
        self.answers: dict[str, tuple[int, dict[str, str], Any]] = {}

    async def begin(self, path: str, method: str = "POST", body: object = b"", **more: Any) -> None:
        """Ask, and go on when that waits."""
        load = self._gateway.gateway.request_load
        before = load.waiting

        async def run() -> None:
            self.answers[path] = await ask(self._gateway, body, path, method, **more)

        self._nursery.start_soon(run)
        while load.waiting == before:
            await trio.lowlevel.checkpoint()
        assert path not in self.answers


async def test_all_that_come_meanwhile_are_answered_when_it_has_started() -> None:
    subscription = OWN + "/subscription/s"
    async with starting() as (gateway, script), trio.open_nursery() as nursery:
        asking = Asking(gateway, nursery)
        await asking.begin(OWN, body=POST)
        await asking.begin(OWN + "/partitions/0", body=POST)
        await asking.begin(OWN + "/partitions/9", body=POST)
        await asking.begin(BROKER, body={"messages": [{"payload": "a"}]})
        await asking.begin(READ, "GET", headers=())
        await asking.begin(subscription)
        await asking.begin(OWN + "/subscription/t/cursor", "GET", headers=())
        await asking.begin(OWN + "/subscription/t/consumer/x/messages", "GET", headers=())
        await asking.begin(OWN + "/subscription/t/consumers/x", "DELETE", headers=())
        assert asking.answers == {}
        script.release()
        while len(asking.answers) < 9:
            await trio.lowlevel.checkpoint()
        found = {
            path: (status, (said or {}).get("error_code"))
            for path, (status, _, said) in asking.answers.items()
        }
        assert found == {
            OWN: (200, None),
            OWN + "/partitions/0": (200, None),
            OWN + "/partitions/9": (404, 40402),
            BROKER: (200, None),
            READ: (200, None),
            subscription: (200, None),
            OWN + "/subscription/t/cursor": (404, 40404),
            OWN + "/subscription/t/consumer/x/messages": (404, 40403),
            OWN + "/subscription/t/consumers/x": (404, 40403),
        }
        assert script.positions == {0: 3}
        assert not gateway.gateway.request_load.waiting


@pytest.mark.slow
async def test_they_wait_no_longer_than_they_may(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(topics, "START_SECONDS", 0.05)
    async with starting(produce_ms=1_000) as (gateway, script):
        for path, method, body in ((READ, "GET", b""), (OWN, "POST", POST)):
            status, headers, answer = await ask(gateway, body, path, method)
            assert (status, answer["error_code"], headers["retry-after"]) == (503, 50301, "1")
            assert answer["message"].startswith(NOT_YET)
        assert script.positions == {0: 0}


async def test_what_keeps_it_from_starting_is_said_at_once() -> None:
    async with starting() as (gateway, script), trio.open_nursery() as nursery:
        asking = Asking(gateway, nursery)
        await asking.begin(OWN, body=POST)
        await asking.begin(READ, "GET", headers=())
        hub = gateway.gateway.hub("orders")
        assert hub is not None
        hub.report_degraded("there is no topic")
        while len(asking.answers) < 2:
            await trio.lowlevel.checkpoint()
        assert asking.answers[OWN][2]["message"] == f"{NOT_YET}; nothing was written: there is no topic"
        assert asking.answers[READ][2]["message"] == f"{NOT_YET}: there is no topic"
        before_the_body = await raw(gateway, EXPECTING.format(OWN))
        assert before_the_body.startswith(b"HTTP/1.1 503")
        hub.report_degraded("")
        again = Asking(gateway, nursery)
        await again.begin(OWN, body=POST)
        script.release()
        while not again.answers:
            await trio.lowlevel.checkpoint()
        assert again.answers[OWN][0] == 200


async def test_who_may_not_is_told_at_once_and_who_may_is_asked_for_the_body() -> None:
    async with starting(rights=True) as (gateway, script):
        for name, code in (("reader", 40301), ("nobody", 40401)):
            headers = [JSON, ("Authorization", f"Bearer {name}")]
            assert (await ask(gateway, POST, headers=headers))[2]["error_code"] == code
        async with await gateway.connect() as stream:
            head = EXPECTING.replace("\n\n", "\nAuthorization: Bearer writer\n\n").format(OWN)
            await stream.send_all(head.replace("\n", "\r\n").encode())
            assert (await stream.receive_some()).startswith(b"HTTP/1.1 100")
        script.release()


async def test_a_client_that_leaves_waits_no_longer() -> None:
    async with starting() as (gateway, _):
        load = gateway.gateway.request_load
        for path, method, more in ((OWN, "POST", "Content-Length: 2\n"), (READ, "GET", "")):
            text = f"{method} {path} HTTP/1.1\nHost: 127.0.0.1\nContent-Type: application/json\n{more}\n"
            async with await gateway.connect() as stream:
                await stream.send_all(text.replace("\n", "\r\n").encode() + (b"{}" if more else b""))
                while not load.waiting:
                    await trio.lowlevel.checkpoint()
            while load.waiting:
                await trio.lowlevel.checkpoint()


async def test_only_so_many_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(request_load, "MOST_WAITING", 4)
    async with starting() as (gateway, script), trio.open_nursery() as nursery:
        asking = Asking(gateway, nursery)
        await asking.begin(OWN, body=POST)
        await asking.begin(READ, "GET", headers=())
        assert (await ask(gateway, POST))[2]["error_code"] == 42901
        script.release()


@pytest.mark.parametrize("altered", [True, False])
async def test_a_source_that_is_altered_is_waited_for_and_one_that_is_removed_is_not(altered: bool) -> None:
    async with starting() as (gateway, script), trio.open_nursery() as nursery:
        asking = Asking(gateway, nursery)
        await asking.begin(OWN, body=POST)
        text = CONFIG.format(plugins="", produce_ms=10_000, note="another")
        gateway.file.write_text(text if altered else text.partition("sources")[0])
        while script.runs < 2 if altered else gateway.gateway.hub("orders"):
            await trio.lowlevel.checkpoint()
        script.release()
        while OWN not in asking.answers:
            await trio.lowlevel.checkpoint()
        assert asking.answers[OWN][0] == (200 if altered else 404)


async def test_a_gateway_that_stops_answers_those_who_wait() -> None:
    async with starting() as (gateway, _), trio.open_nursery() as nursery:
        asking = Asking(gateway, nursery)
        await asking.begin(OWN, body=POST)
        await asking.begin(READ, "GET", headers=())
        with trio.fail_after(2):
            await gateway.stop()
        assert {path: answer[0] for path, answer in asking.answers.items()} == {OWN: 503, READ: 503}
