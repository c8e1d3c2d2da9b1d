"""What YAML 1.1 reads as a number, a truth value or a time is text to YAML 1.2, through to the settings."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from kiwi_gw.config import LoadedConfig
from kiwi_gw.config.document import resolve

Loader = Callable[..., LoadedConfig]
Complaints = Callable[..., list[str]]

LEFTOVERS = [
    *("1_0", "1_000", "_1", "1__0", "1_0.5", "0x1_F"),
    *("0b101", "017_7", "-0x1f", "+0o7", "0o8", "0O17", "0X1F"),
    *("1:30", "190:20:30", "1:30.5"),
    *("yes", "Yes", "NO", "on", "Off", "y", "N", "tRUE"),
    *("2024-01-01", "2024-01-01T00:00:00Z", "2024-01-01 00:00:00"),
    *("=", "inf", "nan", "infinity", ".iNF", "None", "nULL"),
]


@pytest.mark.parametrize("scalar", LEFTOVERS)
def test_a_scalar_of_yaml_1_1_is_text(scalar: str) -> None:
    assert resolve(scalar) == scalar


@pytest.mark.parametrize("scalar", LEFTOVERS)
@pytest.mark.parametrize("quote", ["", "'"])
@pytest.mark.parametrize(
    "key",
    [
        "sources[0].min",  # any whole number
        "sources[0].lazy",
        "sources[0].interval_ms",
        "server.limits.max_connections",
        "window.bytes",
    ],
)
def test_and_never_becomes_a_number_or_a_truth_value(
    complaints: Complaints, key: str, quote: str, scalar: str
) -> None:
    text = f"{quote}{scalar}{quote}"
    if key.startswith("sources"):
        lines = f"sources:\n- {{type: tick, id: a, {key[11:]}: {text}}}"
    else:
        *outer, last = key.split(".")
        lines = "\n".join("  " * depth + f"{name}:" for depth, name in enumerate([*outer, last])) + f" {text}"
    (complaint,) = complaints(lines)
    assert f" {key}: must be " in complaint
    assert complaint.endswith(f"not {scalar!r}")


@pytest.mark.parametrize(
    ("scalar", "value"), [("010", 10), ("0o17", 15), ("0x1f", 31), ("+7", 7), ("'12'", 12), ("' 12 '", 12)]
)
def test_a_number_of_yaml_1_2_is_one_everywhere(load_text: Loader, scalar: str, value: int) -> None:
    loaded = load_text(f"sources:\n- {{type: tick, id: a, min: {scalar}, interval_ms: {scalar}}}")
    settings = loaded.settings.sources["a"].settings.model_dump()
    assert (settings["min"], settings["interval_ms"]) == (value, value)


@pytest.mark.parametrize("variable", ["1_0", "yes"])
def test_the_environment_is_read_by_the_same_rules(complaints: Complaints, variable: str) -> None:
    name, key = (
        ("KIWI_GW_WINDOW__EVENTS", "window.events")
        if variable == "1_0"
        else ("KIWI_GW_SERVER__HEALTHCHECK", "server.healthcheck")
    )
    (complaint,) = complaints("x-nothing: 1", {name: variable})
    assert f"{key}: must be " in complaint
