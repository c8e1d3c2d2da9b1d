"""What `kiwi-gw check` says about a cluster."""

from __future__ import annotations

from collections.abc import Callable

import pytest

import kiwi_kafka
from kiwi_demo.broker import Broker
from kiwi_gw.api import Diagnostic
from kiwi_gw.plugin_manager import PluginManager
from kiwi_kafka import KafkaSettings, KafkaSourceSettings
from kiwi_kafka.diagnostics import check_kafka
from tests.integration.kafka.support import context_of
from tests.topics import Topics

pytestmark = pytest.mark.integration


async def test_brokers_and_topics(broker: Broker, topics: Topics, new_topic: Callable[[], str]) -> None:
    name, missing = await topics.create(new_topic(), 3), new_topic()
    settings = KafkaSettings(bootstrap_servers=["127.0.0.1:1", broker.bootstrap])
    findings = await check_kafka(settings, [name, missing])
    assert [(f.level, f.subject) for f in findings] == [
        ("error", "kafka broker 127.0.0.1:1"),
        ("ok", f"kafka broker {broker.bootstrap}"),
        ("ok", f"kafka topic {name}"),
        ("warning", f"kafka topic {missing}"),
    ]
    assert "Connection refused" in findings[0].message
    assert findings[2].message == "can be read; partitions: 3"
    assert await topics.partitions(missing) == 0
    *_, written = await check_kafka(KafkaSettings(bootstrap_servers=broker.bootstrap), [name], [name])
    assert written.message == "can be read and written; partitions: 3"


async def test_no_broker_at_all() -> None:
    (finding,) = await check_kafka(KafkaSettings(bootstrap_servers="127.0.0.1:1"), ["t"])
    assert finding.level == "error"


async def test_by_the_hook(broker: Broker, topics: Topics, new_topic: Callable[[], str]) -> None:
    name = await topics.create(new_topic(), 1)
    manager = PluginManager()
    manager.register(kiwi_kafka, "kafka")
    sources = [KafkaSourceSettings(type="kafka", topic=name, id=id_) for id_ in ("a", "b")]
    (check,) = manager.hook.check(context=context_of(broker.bootstrap), sources=sources)
    findings = await check()
    assert findings[1:] == [Diagnostic("ok", f"kafka topic {name}", "can be read; partitions: 1")]
    assert manager.hook.check(context=context_of(broker.bootstrap), sources=[]) == []
