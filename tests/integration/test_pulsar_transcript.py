"""Every row of the tables of Pulsar's REST interface, asked of two gateways with a real Kafka. What is said
and what is answered is in `pulsar_transcript.txt`."""

from __future__ import annotations

import gzip
import json
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from email.message import Message
from http.client import HTTPConnection
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

import pytest
import trio

from kiwi_demo.broker import Broker
from kiwi_gw.dialects.pulsar.subscriptions import MOST_CONSUMERS
from tests.integration.gateway import GatewayProcess, gateway
from tests.integration.test_pulsar import config, folder_of
from tests.topics import Record, Topics

pytestmark = pytest.mark.integration

NewTopic = Callable[[], str]

TRANSCRIPT: Final = Path(__file__).with_name("pulsar_transcript.txt")
BODIES: Final = {
    "large": b" " * (1 << 20) + b"{}",
    "bomb": gzip.compress(b" " * (1 << 24)),
    "deep": b'{"messages":[{"value":' + b"[" * 100_000,
}
RIGHTS: Final = {
    "writer": ["subscribe", "replay", "publish", "commit"],
    "other": ["subscribe", "replay", "publish", "commit"],
    "reader": ["subscribe", "replay"],
    "tail": ["subscribe"],
    "keeper": ["commit"],
}
_NAME: Final = re.compile(r"\$([A-Za-z]+)")


@dataclass(frozen=True, slots=True)
class Exchange:
    """A request and its answer. line: of the transcript. who: whose token it has, with `@2` at the other
    gateway."""

    line: int
    who: str
    method: str
    path: str
    said: Sequence[str]
    status: int
    answer: Sequence[str]


def exchanges(text: str) -> Iterator[Exchange | str]:
    """Read a transcript: exchanges, and names of what is done between them."""
    number = 1
    for block in text.split("\n\n"):
        lines = [line for line in block.splitlines() if not line.startswith("#")]
        if len(lines) == 1:
            yield lines[0].removeprefix("! ")
        elif lines:
            at = next(n for n, line in enumerate(lines) if re.fullmatch("[0-9]{3}", line))
            who, method, path = lines[0].split(" ", 2)
            yield Exchange(number, who, method, path, lines[1:at], int(lines[at]), lines[at + 1 :])
        number += block.count("\n") + 2


def is_header(line: str) -> bool:
    return re.match(r"[A-Za-z-]+: ", line) is not None


def differs(expected: Any, found: Any, names: dict[str, Any], place: str = "$") -> str:
    """Say where they are not the same; nothing if they are. `$name` is anything the first time, and the same
    from then on; `...` in a text stands for anything."""
    if isinstance(expected, str) and (name := _NAME.fullmatch(expected)):
        expected = names.setdefault(name[1], found)
    elif isinstance(expected, str) and isinstance(found, str):
        parts = _NAME.sub(lambda it: str(names[it[1]]), expected).split("...")
        expected = found if re.fullmatch(".*".join(map(re.escape, parts)), found) else expected
    elif expected == "...":
        return ""
    elif isinstance(expected, dict) and isinstance(found, dict) and expected.keys() == found.keys():
        each = (differs(expected[key], found[key], names, f"{place}.{key}") for key in expected)
        return next(filter(None, each), "")
    elif isinstance(expected, list) and isinstance(found, list) and len(expected) == len(found):
        pairs = enumerate(zip(expected, found, strict=True))
        return next(filter(None, (differs(*pair, names, f"{place}[{n}]") for n, pair in pairs)), "")
    return "" if expected == found and type(expected) is type(found) else f"{place}: {found!r}"


class Asking:
    """Asks what a transcript says, and compares. addresses: of the gateways."""

    def __init__(self, addresses: Sequence[str], names: dict[str, Any]) -> None:
        self._connections = [HTTPConnection(address, timeout=60) for address in addresses]
        self.names = names

    def close(self) -> None:
        for connection in self._connections:
            connection.close()

    def ask(self, item: Exchange) -> str:
        """Say what is not as the transcript has it; nothing if all is."""
        who, _, number = item.who.partition("@")
        connection = self._connections[int(number or 1) - 1]
        headers, body = self._said(item)
        if who != "-":
            headers["Authorization"] = f"Bearer the-token-of-{who}"
        path = _NAME.sub(lambda it: self._in_path(it[1]), item.path)
        connection.request(item.method, path, body, headers)
        response = connection.getresponse()
        found = response.read()
        if response.status != item.status:
            return f"{response.status} {found.decode()}"
        return self._compare(item.answer, response.headers, found)

    def _in_path(self, name: str) -> str:
        found = str(self.names[name])
        return found if name in ("T", "B", "S") else quote(found, safe="")

    def _said(self, item: Exchange) -> tuple[dict[str, str], bytes | None]:
        headers = dict(line.split(": ", 1) for line in item.said if is_header(line))
        lines = [line for line in item.said if not is_header(line)]
        if not lines:
            return headers, None
        text = _NAME.sub(lambda it: str(self.names[it[1]]), "\n".join(lines))
        body = BODIES[text[1:]] if text.startswith("@") else text.encode()
        return {"Content-Type": "application/json", **headers}, body

    def _compare(self, answer: Sequence[str], headers: Message, found: bytes) -> str:
        for line in filter(is_header, answer):
            name, expected = line.split(": ", 1)
            if wrong := differs(expected, headers[name], self.names, name):
                return wrong
        lines = [line for line in answer if not is_header(line)]
        if not lines or lines == ["..."]:
            return "" if bool(found) is bool(lines) else f"{found!r}"
        texts = [line for line in found.decode().splitlines() if line]
        if len(texts) == 1:
            return differs(json.loads("\n".join(lines)), json.loads(found), self.names)
        pairs = list(zip(map(json.loads, lines), map(json.loads, texts), strict=True))
        return next(filter(None, (differs(*pair, self.names) for pair in pairs)), "")


async def test_every_row(broker: Broker, topics: Topics, new_topic: NewTopic, tmp_path: Path) -> None:
    name, trimmed = await topics.create(new_topic(), 2), await topics.create(new_topic(), 1)
    await topics.produce(trimmed, [Record(b"%d" % n) for n in range(5)])
    settings = config(broker, name, consumer_key="a key of thirty-two bytes or more")
    (source,) = settings["sources"]
    settings["sources"] = [
        {**source, "id": "orders"},
        {**source, "id": "named", "pulsar": {"name": "shop/eu/x", "schema": {"type": "JSON"}}},
        {"type": "kafka", "topic": name, "id": "shut"},
        {**source, "topic": trimmed, "id": "trimmed"},
        {**source, "topic": f"{name}-none", "id": "away"},
        {"type": "counter", "id": "ticks", "interval_ms": 100, "min": 0},
    ]
    settings["server"]["allowed_origins"] = ["http://page.example"]
    settings["tokens"] = {
        "roles": {who: {"sources": ["*"], "actions": rights} for who, rights in RIGHTS.items()}
        | {"nobody": {"sources": ["none-*"]}},
        "static": [
            {"name": who, "token": f"the-token-of-{who}", "roles": [who]} for who in (*RIGHTS, "nobody")
        ],
    }

    async def trim() -> None:
        await topics.trim(trimmed, {0: 3})

    async def fill() -> None:
        more = Exchange(0, "writer", "POST", "$T/subscription/many", ["{}"], 200, ["..."])
        for _ in range(MOST_CONSUMERS - 1):
            assert not await trio.to_thread.run_sync(asking.ask, more)

    done = {"trim": trim, "fill": fill}
    async with AsyncExitStack() as stack:
        running: list[GatewayProcess] = []
        for number, host in enumerate(("one", "two")):
            pulsar = {**settings["pulsar"], "advertised_url": f"http://{host}.example"}
            one = gateway(folder_of(tmp_path, number), {**settings, "pulsar": pulsar})
            running.append(await stack.enter_async_context(one))
            for each in (name, trimmed):
                await running[-1].logged("source runs", source="orders" if each == name else "trimmed")
            await running[-1].logged("waiting for kafka topic", topic=f"{name}-none")
        names = {"T": "/topics/public/default/orders", "B": "/topics/persistent/public/default/orders"}
        names["S"] = f"{names['T']}/subscription/s"
        asking = Asking([one.address for one in running], names)
        stack.callback(asking.close)
        nursery = await stack.enter_async_context(trio.open_nursery())
        nursery.start_soon(_is_too_slow, running[0].port, names["T"])
        wrong = []
        for item in exchanges(TRANSCRIPT.read_text()):
            if isinstance(item, str):
                await done[item]()
            elif found := await trio.to_thread.run_sync(asking.ask, item):
                wrong.append(f"{TRANSCRIPT.name}:{item.line}: {item.method} {item.path}: {found}")
        assert not wrong, "\n".join(wrong)


async def _is_too_slow(port: int, path: str) -> None:
    head = f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer the-token-of-writer\r\n"
    head += "Content-Type: application/json\r\nContent-Length: 9\r\n\r\n{"
    async with await trio.open_tcp_stream("127.0.0.1", port) as stream:
        await stream.send_all(head.encode())
        answer = b"".join([bytes(chunk) async for chunk in stream])
    assert answer.startswith(b"HTTP/1.1 408 ")
    assert json.loads(answer.partition(b"\r\n\r\n")[2])["error_code"] == 40801
