"""The page of docs/guides/clients.md, driven in Node: a token, positions, gaps, and what ends them."""

from __future__ import annotations

import json
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from kiwi_gw.testing import GatewayUnderTest, ScriptedSources, open_gateway
from tests.integration.gateway import gateway
from tests.integration.test_documented_scripts import AUTHENTICATION, SOURCE, TOKEN, block
from tests.integration.test_node import ROOT, Page, opened

pytestmark = pytest.mark.integration

PAGE = ROOT / "config" / "client.html"
SUBSCRIBED, STOPPED, MISSING = "subscribed", "stopped", "--- events may be missing here ---"


@asynccontextmanager
async def scripted(**more: object) -> AsyncIterator[tuple[ScriptedSources, GatewayUnderTest]]:
    sources = ScriptedSources(replayable=True)
    async with open_gateway(config(**more), plugins={"scripted": sources}) as running:
        yield sources, running


def config(**more: object) -> str:
    return json.dumps({"plugins": ["scripted"], "sources": [{"type": "scripted", "id": "a", **more}]})


@asynccontextmanager
async def page(address: str, source: str = "a", **browser: object) -> AsyncIterator[Page]:
    given = {"source": source, "gateway": f"http://{address}"}
    async with opened(PAGE, given, browser) as shown:
        yield shown


async def until(shown: Page, line: str) -> list[str]:
    """What it shows before this line."""
    lines: list[str] = []
    while (told := await shown.line()) != line:
        lines.append(told)
    return lines


def saved(address: str, positions: dict[str, Any]) -> dict[str, str]:
    return {f"a at http://{address}": json.dumps(positions)}


async def test_it_goes_on_behind_its_last_event_when_its_subscription_has_ended() -> None:
    async with scripted() as (sources, running), page(running.address) as shown:
        assert await until(shown, SUBSCRIBED) == []
        await sources["a"].publish([b"first", b"second"])
        assert [await shown.line(), await shown.line()] == ['"first"', '"second"']
        running.file.write_text(config(note="another"))
        running.send_signal(signal.SIGHUP)
        ended, disconnected = await until(shown, SUBSCRIBED)
        assert ended.startswith("altered: ")
        assert disconnected.startswith("disconnected: 1005")
        await sources["a"].publish([b"third"])
        assert await shown.line() == '"third"'


async def test_a_page_that_is_opened_again_gets_what_came_meanwhile() -> None:
    async with scripted() as (sources, running):
        await sources["a"].publish([b"seen", b"came", b"meanwhile"])
        async with page(running.address, saved=saved(running.address, {"0": 1})) as shown:
            assert await until(shown, SUBSCRIBED) == []
            assert [await shown.line(), await shown.line()] == ['"came"', '"meanwhile"']


@pytest.mark.parametrize("positions", [{"0": 999}, {"7": 1}, {"0": "what"}])
async def test_positions_that_are_no_good_are_thrown_away(positions: dict[str, Any]) -> None:
    async with (
        scripted() as (sources, running),
        page(running.address, saved=saved(running.address, positions)) as shown,
    ):
        refused, missing, _ = await until(shown, SUBSCRIBED)
        assert refused.startswith("positions: ")
        assert missing == MISSING
        await sources["a"].publish([b"new"])
        assert await shown.line() == '"new"'


async def test_who_may_not_begin_in_the_past_begins_with_what_is_new(tmp_path: Path) -> None:
    text = block(AUTHENTICATION, "kiwi-gw.yml", "yaml").text.replace("127.0.0.1:8000", "127.0.0.1:0")
    text = text.replace(
        'viewer: {sources: ["public-*"]}', 'viewer: {sources: ["public-*"], actions: [subscribe]}'
    )
    async with gateway(tmp_path, text) as running:
        there = {f"{SOURCE} at http://{running.address}": '{"0": 0}'}
        async with page(running.address, SOURCE, tokens=[TOKEN], saved=there) as shown:
            refused, missing, _ = await until(shown, SUBSCRIBED)
            assert refused == 'forbidden: not allowed: to begin in the past needs the right "replay"'
            assert missing == MISSING


async def test_what_is_missing_is_shown() -> None:
    async with scripted(window={"events": 10}) as (sources, running):
        for number in range(30):
            await sources["a"].publish([b"%d" % number])
        sources["a"].history.delete(0, 20)
        async with page(running.address, saved=saved(running.address, {"0": 5})) as shown:
            assert await until(shown, SUBSCRIBED) == []
            gap = '--- unknown how many events are missing here: {"0":[5,19]} ---'
            told = await until(shown, '"20"')
            assert gap in told
            assert not [line for line in told if line.startswith('"')]


async def test_a_token_that_is_wrong_is_said_and_another_one_asked_for(tmp_path: Path) -> None:
    text = block(AUTHENTICATION, "kiwi-gw.yml", "yaml").text.replace("127.0.0.1:8000", "127.0.0.1:0")
    tokens = ["wrong-0123456789abcdef", TOKEN]
    async with gateway(tmp_path, text) as running, page(running.address, SOURCE, tokens=tokens) as shown:
        (refused,) = await until(shown, SUBSCRIBED)
        assert "invalid_token" in refused
        assert '"count":' in await shown.line()


async def test_it_stops_when_its_source_is_over() -> None:
    async with scripted() as (sources, running), page(running.address) as shown:
        assert await until(shown, SUBSCRIBED) == []
        await sources["a"].end()
        ended, _ = await until(shown, STOPPED)
        assert ended.startswith("ended: ")


def test_the_documentation_has_the_page_word_for_word() -> None:
    text = (ROOT / "docs" / "guides" / "clients.md").read_text()
    assert f'```html title="client.html"\n{PAGE.read_text()}```' in text
