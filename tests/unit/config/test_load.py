"""What a valid file means."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest
from pydantic import SecretStr

from kiwi_gw.config import LoadedConfig, TcpAddress, UnixAddress, load, load_again
from kiwi_gw.dialects.kiwi.settings import KiwiSettings
from kiwi_gw.errors import ConfigError
from kiwi_gw.model import OverflowPolicy

Loader = Callable[..., LoadedConfig]
Complaints = Callable[..., list[str]]
PLUGINS = "plugins: ['ticking:plugin']\n"


def secret(loaded: LoadedConfig, source: str) -> str:
    value = dict(loaded.settings.sources[source].settings)["password"]
    assert isinstance(value, SecretStr)
    return value.get_secret_value()


@pytest.mark.parametrize("text", ["", "\n", "# sources:\n", "---\n", "null\n"])
def test_an_empty_file_is_no_configuration(load_text: Loader, text: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load_text(text, tail="")
    (problem,) = caught.value.problems
    assert problem.message.startswith("is empty: a gateway needs `sources`; `kiwi-gw config init`")


def test_a_file_that_says_nothing_is_the_defaults(load_text: Loader, tmp_path: Path) -> None:
    loaded = load_text("{}", tail="")
    settings = loaded.settings
    assert settings.name == "kiwi-gw"
    assert settings.server.addresses == (TcpAddress("127.0.0.1", 8000),)
    assert settings.server.healthcheck
    assert settings.server.tls is None
    assert settings.server.limits.max_connections == 10_000
    assert settings.window.bytes == 64 * 1024 * 1024
    assert settings.subscriber.overflow is None
    assert settings.dialects["kiwi"] == KiwiSettings(envelope="flat")
    assert settings.sources == {}
    assert settings.sections == {}
    assert settings.plugins == loaded.plugins.names == ()
    assert loaded.path == tmp_path / "kiwi.yml"
    assert loaded.text_hash == hashlib.sha256(loaded.path.read_bytes()).hexdigest()


def test_sections_that_are_commented_out_are_empty(load_text: Loader) -> None:
    text = "sources:\nserver:\n  # address: x\nsubscriber:\nwindow:\nlogging:\nkiwi:\noption:\n"
    settings = load_text(text).settings
    assert settings.sources == {}
    assert dict(settings.sections["option"]) == {"colour": "red"}


def test_sections_have_their_defaults_where_the_file_has_none(load_text: Loader) -> None:
    loaded = load_text("")
    assert dict(loaded.context().section("option")) == {"colour": "red"}
    assert dict(loaded.context().section("cluster"))["hosts"] == ["earth"]
    assert loaded.context().gateway_name == "kiwi-gw"


def test_sources_have_ids_types_and_lines(load_text: Loader) -> None:
    text = (
        "sources:\n  - type: tick\n    id: a\n  - type: topic\n    topic: b\n"
        "  - {type: topic, topic: b, id: c}\n  - {type: plain, id: d}\n"
    )
    sources = load_text(text).settings.sources
    assert [(key, item.id, item.type, item.line) for key, item in sources.items()] == [
        ("a", "a", "tick", 2),
        ("b", "b", "topic", 4),
        ("c", "c", "topic", 6),
        ("d", "d", "plain", 7),
    ]
    assert dict(sources["a"].settings)["interval_ms"] == 1000


def test_what_holds_for_a_source_is_merged_over_what_holds_for_all(load_text: Loader) -> None:
    text = """
subscriber: {buffer_capacity: 100, lag_notice_interval_ms: 5s}
window: {events: 1000, memory_bytes: 1GiB}
sources:
  - {type: tick, id: plain}
  - type: tick
    id: own
    subscriber: {overflow: close, buffer_capacity: 5000}
    window: {bytes: 600MiB}
"""
    sources = load_text(text).settings.sources
    plain, own = sources["plain"], sources["own"]
    assert (plain.buffer_capacity, plain.lag_notice_threshold) == (100, 50)
    assert own.subscriber.overflow is OverflowPolicy.CLOSE
    assert own.subscriber.lag_notice_interval_ms == 5000
    assert own.buffer_capacity == 1000  # no more than the window holds
    assert own.lag_notice_threshold == 500
    assert (own.window.events, own.window.bytes, own.window.memory_bytes) == (1000, 600 << 20, 1 << 30)


def test_a_source_may_take_back_what_holds_for_all(load_text: Loader) -> None:
    text = (
        "subscriber: {buffer_capacity: 7}\nsources:\n"
        "  - {type: tick, id: a, subscriber: {buffer_capacity: null}}"
    )
    assert load_text(text).settings.sources["a"].buffer_capacity == 65_536


def test_addresses(load_text: Loader) -> None:
    text = "server:\n  address: ['[::1]:80', 'unix:/run/a.sock']"
    assert load_text(text).settings.server.addresses == (TcpAddress("::1", 80), UnixAddress("/run/a.sock"))


def test_keys_for_anchors_are_ignored(load_text: Loader) -> None:
    text = (
        "x-window: &w {events: 5}\nwindow: *w\nsources:\n  - type: tick\n    id: a\n    window:\n"
        "      <<: *w\n      bytes: 1KiB"
    )
    settings = load_text(text).settings
    assert settings.window.events == 5
    assert settings.sources["a"].window.bytes == 1024


def test_a_byte_order_mark_does_no_harm(tmp_path: Path) -> None:
    path = tmp_path / "k.yml"
    path.write_bytes(b"\xef\xbb\xbfname: a")
    assert load(path, {}).settings.name == "a"


# --- substitution ------------------------------------------------------------------------------


def test_a_substituted_number_is_text_where_text_is_wanted(load_text: Loader) -> None:
    text = (
        "sources:\n  - type: tick\n    id: ${ID}\n    min: ${ID}\n    password: ${PIN}\n"
        "    labels: ['${ID}']\nname: ${ID}"
    )
    loaded = load_text(text, {"ID": "007", "PIN": "0123"})
    source = loaded.settings.sources["007"]
    assert dict(source.settings)["min"] == 7
    assert dict(source.settings)["labels"] == ["007"]
    assert secret(loaded, "007") == "0123"
    assert loaded.settings.name == "007"


def test_what_a_variable_holds_is_never_structure(load_text: Loader) -> None:
    loaded = load_text("name: ${N}", {"N": "[a, b]"})
    assert loaded.settings.name == "[a, b]"


# --- the environment over the file -------------------------------------------------------------


def test_the_environment_wins(load_text: Loader) -> None:
    text = "server: {address: '1.1.1.1:1'}\nsources:\n  - {type: tick, id: a}\nname: ${UNSET}"
    environ = {
        "KIWI_GW_SERVER__ADDRESS": "127.0.0.1:9",
        "KIWI_GW_SERVER__LIMITS__MAX_CONNECTIONS": "5",
        "KIWI_GW_SERVER__ALLOWED_ORIGINS": "[https://a.example, 'null']",
        "KIWI_GW_SOURCES__0__MIN": "3",
        "KIWI_GW_SOURCES__0__PASSWORD": "[123",
        "KIWI_GW_ENVELOPE": "nested",
        "KIWI_GW_NAME": "5",
        "KIWI_GW_SERVICE_HOST": "ignored",
        "KIWI_GW_PORT": "tcp://ignored:1",
        "KIWI_GW__": "ignored",
    }
    loaded = load_text(text, environ)
    settings = loaded.settings
    assert settings.server.address == ("127.0.0.1:9",)
    assert settings.server.limits.max_connections == 5
    assert settings.server.allowed_origins == ("https://a.example", "null")
    assert dict(settings.sources["a"].settings)["min"] == 3
    assert secret(loaded, "a") == "[123"
    assert settings.dialects["kiwi"] == KiwiSettings(envelope="nested")
    assert settings.name == "5"


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        (
            {"KIWI_GW_SERVER__DRAIN_MS": "soon"},
            "environment KIWI_GW_SERVER__DRAIN_MS: server.drain_ms: must be milliseconds or a duration like "
            "'500ms', '10s', '5m', not 'soon'",
        ),
        (
            {"KIWI_GW_SERVR__DRAIN_MS": "1"},
            "environment KIWI_GW_SERVR__DRAIN_MS: servr: unknown key; did you mean 'server'?",
        ),
        (
            {"KIWI_GW_SERVER__TLS__CERT": "a"},
            "environment KIWI_GW_SERVER__TLS__CERT: server.tls.key: is missing: Path of the private "
            "key, in PEM",
        ),
        (
            {"KIWI_GW_SOURCES__7__ID": "a"},
            "environment KIWI_GW_SOURCES__7__ID: sources: is not a mapping that could hold '7'",
        ),
        (
            {"KIWI_GW_ENVELOPE": "flat", "KIWI_GW_KIWI__ENVELOPE": "flat"},
            "environment KIWI_GW_KIWI__ENVELOPE: kiwi.envelope: is also set by KIWI_GW_ENVELOPE; "
            "keep one of them",
        ),
    ],
)
def test_mistakes_in_the_environment(environ: dict[str, str], expected: str, complaints: Complaints) -> None:
    assert complaints("sources:\n  - {type: tick, id: a}", environ) == [expected]


# --- secrets in files --------------------------------------------------------------------------


def test_secrets_from_files(load_text: Loader, tmp_path: Path) -> None:
    (tmp_path / "one").write_text("12345\n")
    (tmp_path / "two").write_text("$$ ${X}\n")
    text = f"""
plugins: ['ticking:plugin']
sources:
  - {{type: tick, id: a, password_file: {tmp_path}/one}}
  - {{type: tick, id: b, password: null, password_file: '${{DIR}}/two'}}
cluster:
  hosts: [earth]
  users:
    - name: ada
      password_file: {tmp_path}/one
  groups:
    all:
      name: all
      password_file: {tmp_path}/two
"""
    environ = {"DIR": str(tmp_path), "KIWI_GW_CLUSTER__GROUPS__ALL__PASSWORD_FILE": f"{tmp_path}/one"}
    loaded = load_text(text, environ, "")
    assert (secret(loaded, "a"), secret(loaded, "b")) == ("12345", "$$ ${X}")
    cluster = loaded.settings.sections["cluster"]
    dumped = cluster.model_dump()
    assert dumped["users"][0]["password"].get_secret_value() == "12345"
    assert dumped["groups"]["all"]["password"].get_secret_value() == "12345"
    assert set(loaded.files) == {tmp_path / "one", tmp_path / "two"}
    assert "12345" not in repr(loaded)


def test_mistakes_with_secret_files(complaints: Complaints, tmp_path: Path) -> None:
    (tmp_path / "one").write_text("x")
    text = f"""sources:
  - {{type: tick, id: a, password: x, password_file: {tmp_path}/one}}
  - {{type: tick, id: b, password_file: /does/not/exist}}
  - {{type: tick, id: c, password_file: 5}}
  - {{type: tick, id: d, min_file: {tmp_path}/one}}
  - type: tick
    id: e
    password_file: ${{NONE}}
cluster:
  hosts: [earth]
  users:
    - name: ada
      password_file: /does/not/exist
"""
    assert complaints(text, {}, PLUGINS) == [
        "2: sources[0].password: both password and password_file are given; keep one of them",
        "3: sources[1].password_file: the file /does/not/exist cannot be read: No such file or directory",
        "4: sources[2].password_file: must be text: the path of a file that holds the secret",
        "5: sources[3].min_file: unknown key; known here: type, id, min, interval_ms, lazy, "
        "password, labels, "
        "password_file, subscriber, window, zetta, lenses, pulsar",
        "8: sources[4].password_file: the environment variable NONE is not set; ${NONE:-...} gives "
        "it a default",
        "13: cluster.users[0].password_file: the file /does/not/exist cannot be read: No such file "
        "or directory",
    ]


# --- plugins -----------------------------------------------------------------------------------


def test_the_plugins_of_types_and_sections_are_loaded_unnamed(load_text: Loader) -> None:
    text = (
        "sources:\n  - {type: counter, id: a, min: 0, interval_ms: 1000}\nkafka: {bootstrap_servers: 'a:1'}"
    )
    loaded = load_text(text, tail="")
    assert loaded.settings.plugins == loaded.plugins.names == ("counter", "kafka")
    assert "tokens" not in loaded.plugins.names
    assert "kafka" in loaded.settings.sections


def test_a_reload_keeps_plugins_and_what_is_running(load_text: Loader, test_plugins: ModuleType) -> None:
    first = load_text("")
    vars(test_plugins)["plugin"] = object()  # as if the module had been edited
    first.path.write_text("plugins: ['ticking:plugin', 'ticking:second']\ncluster: {hosts: [a]}\nname: b")
    second = load_again(first)
    assert second.settings.name == "b"
    assert second.plugins.find("ticking:plugin") is first.plugins.find("ticking:plugin")
    assert first.plugins.names == ("ticking:plugin",)
    assert second.plugins.names == ("ticking:plugin", "ticking:second")
    assert first.settings.name == "kiwi-gw"


def test_a_reload_that_is_wrong_changes_nothing(load_text: Loader) -> None:
    first = load_text("")
    first.path.write_text("plugins: ['ticking:plugin', 'ticking:second']\nname: 5")
    with pytest.raises(ConfigError):
        load_again(first)
    assert first.plugins.names == ("ticking:plugin",)
    assert set(first.plugins.source_types()) == {"tick", "topic", "plain", "join"}


def test_a_reload_drops_plugins_that_nothing_needs(load_text: Loader) -> None:
    first = load_text("")
    first.path.write_text("name: b")
    assert load_again(first).plugins.names == ()


def test_a_reload_takes_the_environment_of_the_start(load_text: Loader) -> None:
    first = load_text("name: ${N}", {"N": "a"})
    assert load_again(first).settings.name == "a"
