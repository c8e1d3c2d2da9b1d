"""How far the limit of descriptors is raised, and when that is not far enough."""

from __future__ import annotations

import resource

import pytest

from kiwi_gw.edge.descriptors import raise_limit

INFINITE = resource.RLIM_INFINITY


@pytest.mark.parametrize(
    ("soft", "hard", "after", "warns"),
    [
        (1024, 100_000, 10_512, False),
        (1024, INFINITE, 10_512, False),
        (20_000, 100_000, 20_000, False),
        (INFINITE, INFINITE, INFINITE, False),
        (1024, 4096, 4096, True),
        (4096, 4096, 4096, True),
    ],
)
def test_it_is_raised_as_far_as_needed_and_allowed(
    monkeypatch: pytest.MonkeyPatch, soft: int, hard: int, after: int, warns: bool
) -> None:
    limits = [soft, hard]
    monkeypatch.setattr(resource, "getrlimit", lambda which: tuple(limits))
    monkeypatch.setattr(resource, "setrlimit", lambda which, new: limits.__setitem__(slice(None), new))
    warning = raise_limit(10_000)
    assert limits == [after, hard]
    assert (warning is not None) == warns
    if warning is not None:
        assert "4096" in warning
        assert "10512" in warning


@pytest.mark.parametrize("soft", [1024, 4096])
def test_without_a_limit_of_connections_it_is_raised_as_far_as_allowed(
    monkeypatch: pytest.MonkeyPatch, soft: int
) -> None:
    limits = [soft, 4096]
    monkeypatch.setattr(resource, "getrlimit", lambda which: tuple(limits))
    monkeypatch.setattr(resource, "setrlimit", lambda which, new: limits.__setitem__(slice(None), new))
    assert raise_limit(0) is None
    assert limits == [4096, 4096]
