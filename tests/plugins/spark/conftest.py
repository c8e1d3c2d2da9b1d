"""What tests of Spark sources on a fake driver share, and those of locked jars."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from kiwi_gw.api import Backoff
from kiwi_spark.gateway import driver_supervisor, query_supervisor
from tests.plugins.spark.maven_server import MavenServer


@pytest.fixture
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """What has failed is started again almost at once: not for who must see that it is away."""
    for module in (query_supervisor, driver_supervisor):
        monkeypatch.setattr(module, "Backoff", lambda **given: Backoff(0.01, 0.01))


@pytest.fixture
def maven(monkeypatch: pytest.MonkeyPatch) -> Iterator[MavenServer]:
    """A repository of our own, where `$KIWI_GW_MAVEN` says; tries follow each other at once."""
    with MavenServer() as server:
        serving = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        serving.start()
        monkeypatch.setenv("KIWI_GW_MAVEN", server.address)
        for name in ("http_proxy", "HTTP_PROXY", "https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY"):
            monkeypatch.delenv(name, raising=False)
        monkeypatch.setattr("kiwi_spark.java.jar_set._PAUSES", (0.0, 0.0))
        try:
            yield server
        finally:
            server.ending.set()
            server.shutdown()
            serving.join()
