"""What tests of Spark sources on a fake driver share."""

from __future__ import annotations

import pytest

from kiwi_spark import query, supervisor


@pytest.fixture
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """What has failed is started again almost at once: not for who must see that it is away."""
    for module in (query, supervisor):
        monkeypatch.setattr(module, "FIRST_PAUSE", 0.01)
        monkeypatch.setattr(module, "LONGEST_PAUSE", 0.01)
