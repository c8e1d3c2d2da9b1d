"""The scripts that README.md and docs/guides/authentication.md show, in Node and in a browser."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import trio

from kiwi_demo.broker import Broker
from tests.doc_snippets import Snippet, pages, snippets
from tests.integration.gateway import gateway, kafka_config
from tests.integration.test_independent_clients import Messages, in_a_browser, site
from tests.integration.test_node import ROOT, node
from tests.integration.test_resume import lines_of
from tests.topics import Topics

pytestmark = pytest.mark.integration

TOKEN = "dashboard-0123456789"
SOURCE = "public-ticks"
AUTHENTICATION = "docs/guides/authentication.md"
WATCH = f"""
const heard = [];
const send = () => fetch('/', {{ method: 'POST', body: JSON.stringify(heard) }});
open(ADDRESS, TOKEN).then((socket) => {{
  socket.onopen = () => socket.send(JSON.stringify({{ type: 'SUBSCRIBE', sourceId: '{SOURCE}' }}));
  socket.onmessage = ({{ data }}) => {{ heard.push(JSON.parse(data)); if (heard.length === 3) send(); }};
  socket.onclose = () => {{ if (heard.length < 3) {{ heard.push({{ type: 'refused' }}); send(); }} }};
}}, (error) => {{ heard.push({{ type: String(error) }}); send(); }});
"""


def block(page: str, title: str, language: str) -> Snippet:
    found = snippets(pages()[page].read_text(encoding="utf-8"))
    (one,) = [each for each in found if (each.title, each.language) == (title, language)]
    return one


async def test_the_readmes_lines_in_node(
    broker: Broker, topics: Topics, new_topic: Callable[[], str], tmp_path: Path
) -> None:
    topic = await topics.create(new_topic(), 1)
    await topics.fill(topic, 5, 1)
    script = block("README.md", "", "js").text
    async with gateway(tmp_path, kafka_config(broker.bootstrap, topic)) as running:
        script = script.replace("127.0.0.1:8000", running.address).replace('"orders"', json.dumps(topic))
        with trio.fail_after(60):
            async with lines_of([node(), "-e", script]) as lines:
                shown = [await lines.next() for _ in range(5)]
    assert [int(line.split()[1][:12]) for line in shown] == list(range(5))


@pytest.mark.parametrize("way", ["subprotocol.js", "ticket.js"])
async def test_a_page_comes_in(way: str, tmp_path: Path) -> None:
    with site() as page:
        config = block(AUTHENTICATION, "kiwi-gw.yml", "yaml").text
        config = config.replace("127.0.0.1:8001", f"127.0.0.1:{page.port}")
        async with gateway(tmp_path, config.replace("127.0.0.1:8000", "127.0.0.1:0")) as running:

            async def heard(token: str, host: str = "127.0.0.1") -> Messages:
                consts = f"const ADDRESS = '{running.address}', TOKEN = '{token}';"
                script = f"{block(AUTHENTICATION, way, 'js').text}\n{consts}\n{WATCH}"
                return await in_a_browser(page, running.address, tmp_path / f"{host}-{token}", host, script)

            kinds = [message["type"] for message in await heard(TOKEN)]
            assert kinds == ["SUBSCRIBE_OK", "RESULT", "RESULT"]
            (refused,) = await heard("wrong-0123456789abcdef")
            assert refused["type"] == "refused" or "no ticket: invalid_token: " in refused["type"]
            (refused,) = await heard(TOKEN, "localhost")  # a page of another origin
            assert refused["type"] in ("refused", "TypeError: Failed to fetch")


async def test_the_whole_page_comes_in(tmp_path: Path) -> None:
    whole = block(AUTHENTICATION, "page.html", "html").text
    script = whole.partition("<script>\n")[2].partition("</script>")[0]
    shown = "document.getElementById('log').textContent"
    look = (
        f"setInterval(() => {shown}.includes('RESULT') && fetch('/', {{ method: 'POST', body: '[]' }}), 100);"
    )
    with site() as page:
        config = block(AUTHENTICATION, "kiwi-gw.yml", "yaml").text
        config = config.replace("127.0.0.1:8001", f"127.0.0.1:{page.port}")
        async with gateway(tmp_path, config.replace("127.0.0.1:8000", "127.0.0.1:0")) as running:
            log = "document.body.append(Object.assign(document.createElement('pre'), { id: 'log' }));"
            parts = [log, block(AUTHENTICATION, "ticket.js", "js").text, script, look]
            text = "\n".join(parts).replace("127.0.0.1:8000", running.address)
            page.script = f"addEventListener('DOMContentLoaded', () => {{ {text} }});"
            assert await in_a_browser(page, running.address, tmp_path / "profile", script=page.script) == []


async def test_the_page_that_does_it_all_works_in_a_browser(tmp_path: Path) -> None:
    """Its script; what else it does is looked at in Node (`test_whole_page.py`)."""
    script = (
        (ROOT / "config" / "client.html").read_text().partition("<script>\n")[2].partition("</script>")[0]
    )
    shown = "document.getElementById('log').textContent"
    post = f"fetch('/', {{ method: 'POST', body: JSON.stringify({shown}.trim().split('\\n').reverse()) }})"
    look = f"const t = setInterval(() => {shown}.includes('count') && (clearInterval(t), {post}), 100);"
    with site() as page:
        config = block(AUTHENTICATION, "kiwi-gw.yml", "yaml").text
        config = config.replace("127.0.0.1:8001", f"127.0.0.1:{page.port}")
        async with gateway(tmp_path, config.replace("127.0.0.1:8000", "127.0.0.1:0")) as running:
            log = "document.body.append(Object.assign(document.createElement('pre'), { id: 'log' }));"
            tokens = (
                f"const tokens = ['wrong-0123456789abcdef', '{TOKEN}']; window.prompt = () => tokens.shift();"
            )
            text = "\n".join([log, tokens, script, look]).replace("127.0.0.1:8000", running.address)
            page.script = f"addEventListener('DOMContentLoaded', () => {{ {text} }});"
            refused, *rest = await in_a_browser(
                page, running.address, tmp_path / "profile", script=page.script
            )
    assert "invalid_token" in str(refused)
    assert "subscribed" in map(str, rest)
