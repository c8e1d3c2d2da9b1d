"""`--from` as people write it."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from kiwi_gw.cli.tail.start import parse_start

NOW = datetime(2026, 1, 31, 12, 0, 0, 500_000, tzinfo=UTC)
MS = 1_769_860_800_500


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("latest", "latest"),
        ("earliest", "earliest"),
        ("snapshot", "snapshot"),
        ("-90s", {"timestamp": MS - 90_000}),
        ("-5m", {"timestamp": MS - 300_000}),
        ("-2h", {"timestamp": MS - 7_200_000}),
        ("-1d", {"timestamp": MS - 86_400_000}),
        ("-999999999d", {"timestamp": 0}),
        ("2026-01-31T12:00Z", {"timestamp": MS - 500}),
        ("2026-01-31 12:00:00.5", {"timestamp": MS}),
        ("2026-01-31T13:00+01:00", {"timestamp": MS - 500}),
        ('{"0": 12, "1": 0}', {"offsets": {"0": 12, "1": 0}}),
        ('{"offsets": {"0": 12}}', {"offsets": {"0": 12}}),
        ('{"positions": {"0": 12}}', {"positions": {"0": 12}}),
        ('{"timestamp": 5}', {"timestamp": 5}),
        ("{}", {"offsets": {}}),
    ],
)
def test_what_it_means(text: str, value: object) -> None:
    assert parse_start(text, NOW) == value


@pytest.mark.parametrize("text", ["", "newest", "-5", "5m", "-5w", "{", "[1]", "{" * 50_000, "2026-13-01"])
def test_what_it_does_not_take(text: str) -> None:
    with pytest.raises(ValueError, match=r"is none of|not JSON"):
        parse_start(text, NOW)
