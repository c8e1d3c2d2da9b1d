"""Both protocols send everyone everything in their benchmark."""

from __future__ import annotations

import pytest

from benchmarks.protocols import WAYS, rate


@pytest.mark.parametrize("way", WAYS)
def test_everyone_gets_everything(way: str) -> None:
    assert rate(WAYS[way], 2) > 0
