"""For authors of plugins, on Trio and without a broker.

`check_source` runs a source against the contract of `kiwi_gw.api`, and `MemoryPublisher` stands in for the
gateway in their own tests:

    async def test_ticks_keep_the_contract():
        report = await check_source(TICKS, {"type": "tick"}, repeatable=True)
        assert not report.finite

`open_gateway` runs a whole gateway on a real socket; `ScriptedSources` is a source whose events the test
dictates, for tests of hooks.
"""

from __future__ import annotations

from kiwi_gw.testing.gateway import GatewayUnderTest as GatewayUnderTest
from kiwi_gw.testing.gateway import open_gateway as open_gateway
from kiwi_gw.testing.memory_publisher import MemoryPublisher as MemoryPublisher
from kiwi_gw.testing.scripted import Script as Script
from kiwi_gw.testing.scripted import ScriptedSources as ScriptedSources
from kiwi_gw.testing.source_check import SourceReport as SourceReport
from kiwi_gw.testing.source_check import check_source as check_source
