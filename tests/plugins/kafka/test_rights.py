"""What `kiwi-gw check` says of the right to write, over a cluster in memory."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace

import pytest
import trio

from kiwi_kafka.diagnostics import check_topics
from kiwi_kafka.ports import MissingTopic, TopicDescription
from tests.plugins.kafka.fakes import FakeAdminClient, FakeCluster


@dataclass
class Rights(FakeCluster):
    """writable: as the broker says it."""

    writable: bool | None = None

    async def admin(self) -> FakeAdminClient:
        await trio.lowlevel.checkpoint()
        return _Admin(self)


class _Admin(FakeAdminClient):
    async def describe_topics(
        self, topics: Collection[str], rights: bool = False
    ) -> dict[str, TopicDescription | MissingTopic]:
        assert isinstance(self.at, Rights)
        found = await super().describe_topics(topics, rights)
        return {
            name: replace(info, writable=self.at.writable) if isinstance(info, TopicDescription) else info
            for name, info in found.items()
        }


@pytest.mark.parametrize(
    ("writable", "written", "level", "words"),
    [
        (True, True, "ok", "can be read and written"),
        (False, True, "error", "no right to write"),
        (None, True, "ok", "the broker does not say"),
        (False, False, "ok", "can be read; "),
    ],
)
async def test_who_may_write(writable: bool | None, written: bool, level: str, words: str) -> None:
    cluster = Rights(writable=writable)
    cluster.create("t", 2)
    (finding,) = await check_topics(cluster, ["t"], ["t"] if written else [])
    assert finding.level == level
    assert words in finding.message
