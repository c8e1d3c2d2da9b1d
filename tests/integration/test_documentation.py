"""What README.md and docs/ print is run as it is printed, page by page; ports and times may differ."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from kiwi_demo.broker import Broker
from tests.doc_snippets import Snippet, pages, snippets
from tests.integration.doc_session import answers, commands, messages, needs, path_of, pattern, session

pytestmark = pytest.mark.integration

KAFKA = "docs/start/kafka.md"
BLOCKS = {name: snippets(path.read_text(encoding="utf-8")) for name, path in pages().items()}
ELSEWHERE = "/events"
"""Sessions at this address are of Zetta: tests/unit/dialects/zetta/test_documented_session.py."""


def is_run(block: Snippet) -> bool:
    if block.not_run or (block.language == "text" and (not block.title or path_of(block) == ELSEWHERE)):
        return False
    return block.language in ("sh", "console", "text") or bool(block.title)


RUN = [
    name
    for name, blocks in BLOCKS.items()
    if any(b.language in ("sh", "console") for b in filter(is_run, blocks))
]


@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", RUN)
def test_a_page(name: str, broker: Broker, new_topic: Callable[[], str], tmp_path: Path) -> None:
    blocks = [block for block in BLOCKS[name] if is_run(block)]
    if missing := {program for block in blocks for program in needs(block)}:
        pytest.skip(f"this machine has no {', '.join(missing)}")
    with session(tmp_path, broker.bootstrap, new_topic()) as run:
        if name == "README.md":
            run.clone()
        if name != KAFKA and any("orders" in block.text for block in blocks):
            (producer,) = [block for block in BLOCKS[KAFKA] if block.title == "produce.py"]
            run.file(producer.title, producer.text)
            run.command(f"python {producer.title} 1000")
        for block in blocks:
            run.run(block)


def test_sessions_are_read() -> None:
    assert commands("# a\nb \\\n  c # d\n\ne\n") == ["b   c # d", "e"]
    assert answers("$ a\n1\n...\n$ b\n") == [("a", "1\n...\n"), ("b", "")]
    assert messages('> {"a":1,\n   "b":2}\n< c\n') == [(">", '{"a":1,"b":2}'), ("<", "c")]
    assert pattern("a 12\n...}") == "a\\ \\d+\\\n(?s:.*)\\}"
