"""The examples, the JSON Schema and the table of keys."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from kiwi_gw.config import LoadedConfig, init, json_schema, load, show, shown
from kiwi_gw.config.document import read
from kiwi_gw.config.json_schema import text
from kiwi_gw.dialects.kiwi.settings import KiwiSettings
from kiwi_gw.plugin_manager import PluginManager, shipped
from tests.config_reference import PAGE, PART, tables
from tests.doc_blocks import replaced

Loader = Callable[..., LoadedConfig]

CONFIG = Path(__file__).parents[3] / "config"
EXAMPLES = sorted(CONFIG.glob("*.yml"))
MODELINE = "# yaml-language-server: $schema=kiwi-gw.schema.json\n"
ENVIRON = {
    "KAFKA_PASSWORD": "1234",
    "DASHBOARD_TOKEN": "dashboard-0123456789",
    "PROMETHEUS_TOKEN": "prometheus-0123456789",
    "BACKOFFICE_TOKEN": "backoffice-0123456789",
    "SHOP_TOKEN": "shop-0123456789-0123",
    "BILLING_TOKEN": "billing-0123456789-01",
    "SESSION_KEY": "a key of thirty-two bytes or more",
}
RENEW = "renew it with: python -m tests.config_reference"


def data(source: str) -> Any:
    """As an editor sees it: parsed, nothing substituted."""
    document = read(source, "", lambda scalar: scalar)
    assert document.problems == []
    return document.data


@pytest.fixture(scope="module")
def schema() -> dict[str, Any]:
    return json_schema(shipped())


@pytest.fixture(scope="module")
def validator(schema: dict[str, Any]) -> jsonschema.Draft7Validator:
    jsonschema.Draft7Validator.check_schema(schema)
    return jsonschema.Draft7Validator(schema)


def test_there_are_examples() -> None:
    assert {"counter.yml", "demo.yml", "kiwi-original.yml", "secured.yml"} <= {path.name for path in EXAMPLES}


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.name)
def test_examples(path: Path, validator: jsonschema.Draft7Validator) -> None:
    assert path.read_text().startswith(MODELINE)
    loaded = load(path, ENVIRON)
    assert loaded.settings.sources
    assert [error.message for error in validator.iter_errors(data(path.read_text()))] == []


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.name)
def test_what_is_shown_means_the_same(
    path: Path, validator: jsonschema.Draft7Validator, tmp_path: Path
) -> None:
    loaded = load(path, ENVIRON)
    text_shown = show(loaded.settings)
    assert not any(secret in text_shown for secret in ENVIRON.values())
    assert yaml.safe_load(text_shown) == shown(loaded.settings)
    assert [error.message for error in validator.iter_errors(data(text_shown))] == []
    again = tmp_path / "shown.yml"
    again.write_text(text_shown)
    if "**********" not in text_shown:
        assert load(again, {}).settings == loaded.settings


def test_the_file_of_the_original_lets_its_clients_send_what_no_server_ever_looked_at() -> None:
    kiwi = load(CONFIG / "kiwi-original.yml", {}).settings.dialects["kiwi"]
    assert isinstance(kiwi, KiwiSettings)
    assert (kiwi.unknown_members, KiwiSettings().unknown_members) == ("ignore", "refuse")


def test_demo() -> None:
    settings = load(
        CONFIG / "demo.yml", {"KIWI_DEMO_BOOTSTRAP": "127.0.0.1:1", "KIWI_DEMO_PORT": "2"}
    ).settings
    assert list(settings.sources) == ["flights", "delays-by-carrier", "late-flights", "ticks"]
    assert settings.sections["kafka"].model_dump()["bootstrap_servers"] == "127.0.0.1:1"
    assert settings.server.address == ("127.0.0.1:2",)
    settings = load(CONFIG / "demo.yml", {}).settings
    assert settings.sections["kafka"].model_dump()["bootstrap_servers"] == "127.0.0.1:9092"
    assert settings.server.address == ("127.0.0.1:8000",)


def test_the_schema_is_fresh(schema: dict[str, Any]) -> None:
    assert (CONFIG / "kiwi-gw.schema.json").read_text() == text(schema), RENEW


def test_every_time_may_be_written_as_a_duration(schema: dict[str, Any]) -> None:
    times: list[tuple[str, Any]] = []

    def collect(part: Any) -> None:
        if isinstance(part, dict):
            times.extend((key, item) for key, item in part.items() if key.endswith("_ms"))
            for item in part.values():
                collect(item)
        elif isinstance(part, list):
            for item in part:
                collect(item)

    collect({key: part for key, part in schema.items() if key != "default"})
    assert "interval_ms" in dict(times)
    for key, item in times:
        if isinstance(item, dict):  # else a default
            given = {"properties": {key: item}, "required": [key], "definitions": schema["definitions"]}
            jsonschema.Draft7Validator(given).validate({key: "10s"})
            jsonschema.Draft7Validator(given).validate({key: 10_000})


def test_the_table_of_keys_is_fresh(schema: dict[str, Any]) -> None:
    page = PAGE.read_text()
    assert page == replaced(page, PART, tables(schema, shipped())), RENEW


def test_the_table_has_the_words_that_may_stand_for_a_mapping(schema: dict[str, Any]) -> None:
    rows = tables(schema, shipped()).splitlines()
    assert any(
        row.startswith("| `inputs.NAME.start` | `latest`, `earliest` or mapping | `latest` |") for row in rows
    )
    assert any(row.startswith("| `trigger` | mapping or `auto`, `available_now` | `auto` |") for row in rows)


def test_the_starter_file_is_valid(validator: jsonschema.Draft7Validator, tmp_path: Path) -> None:
    path = tmp_path / "kiwi-gw.yml"
    path.write_text(init())
    assert list(load(path, {}).settings.sources) == ["ticks"]
    validator.validate(data(init()))


COUNTER = {"type": "counter", "id": "a", "min": 0, "interval_ms": 1}


@pytest.mark.parametrize(
    "value",
    [
        {},
        {"server": None, "sources": [], "x-anchor": [1]},
        {"server": {"drain_ms": "10s", "limits": {"max_connections": "${N}"}}},
        {"server": {"healthcheck": "${H:-true}", "tls": None}},
        {"window": {"bytes": 5}, "logging": {"level": "${L}"}},
        {"sources": [COUNTER | {"subscriber": {"overflow": "close"}, "window": {"bytes": "1MiB"}}]},
        {"subscriber": {"overflow": None, "allow": ["block", "close"], "block_fallback": None}},
        {"sources": [{"type": "kafka", "topic": "a"}], "kafka": {"bootstrap_servers": "a:1"}},
        {"kafka": {"bootstrap_servers": ["a:1"], "security": {"password_file": "/a"}}},
        {"tokens": {"static": [{"name": "a", "token_file": "/a"}]}},
    ],
)
def test_the_schema_accepts(value: dict[str, Any], validator: jsonschema.Draft7Validator) -> None:
    assert [error.message for error in validator.iter_errors(value)] == []


@pytest.mark.parametrize(
    "value",
    [
        {"sorces": []},
        {"hooks": {"intercept": "a.wasm"}},
        {"server": {"adress": "x"}},
        {"server": {"drain_ms": "soon"}},
        {"server": {"limits": {"max_connections": -1}}},
        {"server": {"limits": {"head_timeout_ms": 0}}},
        {"server": {"tls": {"cert": "a"}}},
        {"subscriber": {"overflow": "burst"}},
        {"logging": {"level": "loud"}},
        {"sources": [{}]},
        {"sources": [{"type": "nothing"}]},
        {"sources": [COUNTER | {"topic": "a"}]},
        {"sources": [{"type": "counter", "id": "a"}]},
        {"sources": [COUNTER | {"window": {"memory_bytes": 5}}]},
        {"sources": [COUNTER | {"min": "zero"}]},
        {"kafka": {}},
        {"kafka": {"bootstrap_servers": "a", "security": {"password": "a", "password_file": "b"}}},
        {"tokens": {"static": [{"name": "a"}]}},
        {"tokens": {"static": [{"name": "a", "token": "x", "token_file": "y"}]}},
    ],
)
def test_the_schema_refuses(value: dict[str, Any], validator: jsonschema.Draft7Validator) -> None:
    assert list(validator.iter_errors(value))


def test_the_schema_has_what_other_plugins_declare(load_text: Loader) -> None:
    plugins = load_text("").plugins
    schema = json_schema(plugins)
    validator = jsonschema.Draft7Validator(schema)
    validator.validate(
        {"sources": [{"type": "tick", "id": "a"}, {"type": "plain", "id": "b"}], "option": None}
    )
    assert list(validator.iter_errors({"sources": [{"type": "plain"}]}))
    validator.validate({"cluster": {"hosts": [], "users": [{"name": "a", "password_file": "b"}]}})
    assert json.loads(text(schema)) == schema


def test_without_plugins_there_is_a_schema_too() -> None:
    schema = json_schema(PluginManager())
    jsonschema.Draft7Validator.check_schema(schema)
    jsonschema.Draft7Validator(schema).validate({"name": "a", "sources": []})


def test_secrets_are_masked_for_every_plugin(load_text: Loader) -> None:
    loaded = load_text("sources:\n  - {type: tick, id: a, password: hush-hush}\n  - {type: topic, topic: b}")
    text_shown = show(loaded.settings)
    assert "hush-hush" not in text_shown
    assert "id: b" in text_shown
