"""The table of limits in docs/reference/limits.md: each default in it is the one in the code.

A row names where each of its figures is, in their order: by a key of the configuration, or by the module and
name of a constant or of a field with a default.
"""

from __future__ import annotations

import dataclasses
import importlib
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kiwi_gw.config import LoadedConfig
from kiwi_gw.config.schema import WindowSettings
from kiwi_gw.config.server import LimitSettings

ROOT = Path(__file__).parents[3]
REFERENCE = ROOT / "docs" / "reference"
SETTINGS = "kafka: {bootstrap_servers: 'a:1'}\nsources:\n  - {type: topic, topic: b}"
UNITS = {"KiB": 1024, "MiB": 1024**2, "GiB": 1024**3, "ms": 0.001, "s": 1}
NUMBER = re.compile(r"(?:(?<!\w)(\d[\d,]*(?:\.\d+)?)(?: (KiB|MiB|GiB|ms|s|%))?(?!\w))|(\boff\b)")
HEAD = ["| limit | default | where |", "|---|---|---|"]
NO_LIMITS = {"server.limits.resident_bytes", "window.last_values"}
"""Of these sections: what there is, and what is kept."""


def rows() -> list[tuple[str, str, str]]:
    """What is limited, the default, where it is; of every line of the page that is one of a table."""
    page = (REFERENCE / "limits.md").read_text()
    head, lines = (found := [line for line in page.splitlines() if "|" in line])[:2], found[2:]
    assert head == HEAD
    cells = [line.strip("|").split(" | ") for line in lines]
    assert all(len(each) == 3 for each in cells), cells
    return [(what.strip(), default.strip(), where.strip()) for what, default, where in cells]


ROWS = rows()


def figures(words: str) -> list[float]:
    """Seconds, bytes, counts; 0 where something is off."""
    return [
        0 if off else float(number.replace(",", "")) * UNITS.get(unit, 1)
        for number, unit, off in NUMBER.findall(words)
    ]


def in_settings(loaded: LoadedConfig, key: str) -> Any:
    value: Any = loaded.settings
    for name in key.split("."):
        section = getattr(value, "sections", {}).get(name)
        value = getattr(value, name) if section is None else section
    return value


def in_code(path: str) -> Any:
    """Of the longest beginning of `path` that is a module what the rest names."""
    module, names = path, list[str]()
    while True:
        module, _, name = module.rpartition(".")
        names.insert(0, name)
        try:
            value: Any = importlib.import_module(module)
            break
        except ModuleNotFoundError:
            continue
    for name in names:
        fields: dict[str, Any] = dict(getattr(value, "model_fields", {}))
        if dataclasses.is_dataclass(value):
            fields = {one.name: one for one in dataclasses.fields(value)}
        value = fields[name].default if name in fields else getattr(value, name)
    return value


def default(loaded: LoadedConfig, where: str) -> float:
    """Seconds, bytes, counts."""
    value = in_code(where) if where.startswith("kiwi_") else in_settings(loaded, where)
    assert isinstance(value, int | float | None), f"{where} is {value!r}"
    return (value or 0) / 1000 if where.endswith("_ms") else value or 0


def test_every_limit_that_can_be_set_is_in_one_row() -> None:
    named = [where for _, _, cell in ROWS for where in re.findall(r"`([\w.]+)`", cell)]
    assert sorted(set(named)) == sorted(named)
    keys = {
        f"{section}.{name}"
        for section, settings in (("server.limits", LimitSettings), ("window", WindowSettings))
        for name in settings.model_fields
    }
    assert keys - set(named) == NO_LIMITS


def test_the_limits_that_a_client_meets_first(load_text: Callable[..., LoadedConfig]) -> None:
    words = " ".join((REFERENCE / "kiwi.md").read_text().split())
    said = re.search(r"The ones that a client meets first: (.*?)\.$", words)
    assert said is not None
    limits = load_text(SETTINGS).settings.server.limits
    assert figures(said[1]) == [
        *(limits.max_message_bytes, limits.max_fragments, limits.max_subscriptions),
        *(limits.commands_per_second, limits.requests_per_second, limits.head_timeout_ms / 1000),
    ]


@pytest.mark.parametrize(("what", "said", "where"), ROWS, ids=[row[0] for row in ROWS])
def test_the_default_that_is_said_is_in_the_code(
    what: str, said: str, where: str, load_text: Callable[..., LoadedConfig]
) -> None:
    named = re.findall(r"`([\w.]+)`", where)
    assert named, f"{what}: names neither key nor constant"
    loaded = load_text(SETTINGS)
    assert figures(said) == [default(loaded, one) for one in named]


def test_a_limit_that_is_not_in_the_code_is_found(load_text: Callable[..., LoadedConfig]) -> None:
    loaded = load_text(SETTINGS)
    for where in ("server.limits.max_nonsense", "kiwi_gw.query.limits.MAX_NONSENSE", "nonsense"):
        with pytest.raises(AttributeError):
            default(loaded, where)
    assert figures("64 KiB, 1.5 s, 10,000 at once, off, 80 %") == [65536, 1.5, 10000, 0, 80]
