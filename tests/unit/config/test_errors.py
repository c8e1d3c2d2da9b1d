"""Every kind of mistake, with the exact words and the line."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType

import pytest
from pydantic import model_validator

from kiwi_gw.api import ConfigSection, Section, hookimpl
from kiwi_gw.config import LoadedConfig, load
from kiwi_gw.errors import ConfigError

Loader = Callable[..., LoadedConfig]
Complaints = Callable[..., list[str]]
PLUGINS = "plugins: ['ticking:plugin']\n"


HOOKS = (
    "WASM hooks do not run here; write Python hooks of these names (kiwi_gw/hookspecs.py) and name them in "
    "plugins: [module:object]"
)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        # keys
        ("server:\n  adress: x", ["2: server.adress: unknown key; did you mean 'address'?"]),
        ("sorces: []", ["1: sorces: unknown key; did you mean 'sources'?"]),
        ("clutser: {}", ["1: clutser: unknown key; did you mean 'cluster'?"]),
        ("zzz: 1", ["1: zzz: unknown key"]),
        ("kiwi:\n  zzz: 1", ["2: kiwi.zzz: unknown key; known here: envelope, unknown_members"]),
        (
            "server:\n  limits:\n    max_conections: 5",
            ["3: server.limits.max_conections: unknown key; did you mean 'max_connections'?"],
        ),
        (
            "sources:\n  - type: tick\n    id: a\n    subscribers: {}",
            ["4: sources[0].subscribers: unknown key; did you mean 'subscriber'?"],
        ),
        (
            "sources:\n  - {type: tick, id: a, password_fil: x}",
            ["2: sources[0].password_fil: unknown key; did you mean 'password_file'?"],
        ),
        (
            "sources:\n  - type: tick\n    id: a\n    subscriber:\n      overflw: close",
            ["5: sources[0].subscriber.overflw: unknown key; did you mean 'overflow'?"],
        ),
        ("server:\n  tls:\n    cert: x", ["2: server.tls.key: is missing: Path of the private key, in PEM"]),
        (
            "sources:\n  - type: tick",
            ["2: sources[0].id: is missing: The name under which clients subscribe"],
        ),
        (
            "sources:\n  - type: plain",
            ["2: sources[0].id: is missing: the name under which clients subscribe"],
        ),
        ("sources:\n\n  - id: a", ["3: sources[0].type: is missing; `kiwi-gw plugins` lists the types"]),
        # types
        (
            "subscriber:\n  buffer_capacity: ten",
            ["2: subscriber.buffer_capacity: must be a whole number, not 'ten'"],
        ),
        (
            "subscriber:\n  buffer_capacity: 1.5",
            ["2: subscriber.buffer_capacity: must be a whole number, not the number 1.5"],
        ),
        (
            "subscriber:\n  buffer_capacity: [1]",
            ["2: subscriber.buffer_capacity: must be a whole number, not a list"],
        ),
        (
            "subscriber:\n  buffer_capacity: true",
            ["2: subscriber.buffer_capacity: must be a number, not true"],
        ),
        ("window:\n  events:", ["2: window.events: must be a whole number, not empty"]),
        ("server: 5", ["1: server: must be a mapping, not the number 5"]),
        ("server:\n  healthcheck: maybe", ["2: server.healthcheck: must be true or false, not 'maybe'"]),
        (
            "server:\n  allowed_origins: https://a.example",
            ["2: server.allowed_origins: must be a list, not 'https://a.example'"],
        ),
        (
            "server:\n  address: 0.0.0.0:8000\n  admin_address: 127.0.0.1:8000",
            [
                "3: server.admin_address: 127.0.0.1:8000 cannot be listened on beside "
                "server.address 0.0.0.0:8000"
            ],
        ),
        (
            "server:\n  address:\n  - localhost:8000\n  - '[::]:8000'",
            ["4: server.address[1]: [::]:8000 cannot be listened on beside localhost:8000"],
        ),
        (
            "server:\n  worker_port: 8000\n  workers: 2",
            [
                "2: server.worker_port: a worker cannot listen on 127.0.0.1:8000: it is taken by another "
                "address of the gateway"
            ],
        ),
        (
            "server:\n  admin_address: 127.0.0.1:9001\n  worker_port: 9000\n  workers: 2",
            [
                "3: server.worker_port: a worker cannot listen on 127.0.0.1:9001: it is taken by another "
                "address of the gateway"
            ],
        ),
        (
            "server:\n  worker_port: 65535\n  workers: 2",
            ["1: server: worker_port and workers go beyond the port 65,535"],
        ),
        (
            "server:\n  worker_port: 9000\n  address: unix:/run/x.sock",
            ["1: server: worker_port needs a TCP address in address"],
        ),
        ("name: 5", ["1: name: must be text, not the number 5 (put it in quotes)"]),
        (
            "sources:\n  - {type: tick, id: 5}",
            ["2: sources[0].id: must be text, not the number 5 (put it in quotes)"],
        ),
        (
            "sources:\n  - {type: plain, id: 5}",
            ["2: sources[0].id: must be text, not the number 5 (put it in quotes)"],
        ),
        (
            "sources:\n  - {type: 5}",
            ["2: sources[0].type: must be text, not the number 5; `kiwi-gw plugins` lists the types"],
        ),
        (
            "sources:\n  - {type: tick, id: a, labels: 5}",
            ["2: sources[0].labels: must be a list or text, not the number 5"],
        ),
        (
            "sources:\n  - {type: tick, id: a, labels: [a, 5]}",
            ["2: sources[0].labels[1]: must be text, not the number 5 (put it in quotes)"],
        ),
        ("sources: 5", ["1: sources: must be a list, not the number 5"]),
        ("sources:\n  - counter", ["2: sources[0]: must be a mapping, not 'counter'"]),
        (
            "logging:\n  level: inf",
            [
                "2: logging.level: must be 'debug', 'info', 'warning' or 'error', not 'inf'; did you mean "
                "'info'?"
            ],
        ),
        (
            "server:\n  unix_mode: 0660",
            ['2: server.unix_mode: must be an octal number in quotes, like "0660", not 660'],
        ),
        (
            "server:\n  unix_mode: '0880'",
            ["2: server.unix_mode: must be an octal number in quotes, like \"0660\", not '0880'"],
        ),
        (
            "server:\n  limits: {memory_shed_percent: 90, memory_refuse_percent: 85}",
            ["2: server.limits: memory_refuse_percent (85) must be more than memory_shed_percent (90)"],
        ),
        (
            "server:\n  drain_ms: soon",
            ["2: server.drain_ms: must be milliseconds or a duration like '500ms', '10s', '5m', not 'soon'"],
        ),
        (
            "window:\n  bytes: 64MB",
            ["2: window.bytes: must be a number of bytes or a size like '64KiB', '8MiB', '1GiB', not '64MB'"],
        ),
        (
            "server:\n  address: 8000",
            ["2: server.address: must be an address like 127.0.0.1:8000, or a list of such"],
        ),
        (
            "server:\n  address: [a:1, '8000']",
            [
                "2: server.address: must be host:port, [v6]:port or unix:/path, like 127.0.0.1:8000, not "
                "'8000'"
            ],
        ),
        (
            "server:\n  allowed_origins:\n    - example.com",
            [
                "3: server.allowed_origins[0]: must be an origin like https://example.com, 'null' or '*', "
                "not 'example.com'"
            ],
        ),
        # values
        ("window:\n  events: 0", ["2: window.events: must be greater than or equal to 1, not 0"]),
        (
            "server:\n  limits:\n    head_timeout_ms: 0s",
            ["3: server.limits.head_timeout_ms: must be greater than or equal to 1, not '0s'"],
        ),
        ("name: ''", ["1: name: must have at least 1 character"]),
        (f"name: {'x' * 256}", ["1: name: must have at most 255 characters"]),
        (
            "server:\n  limits: {dead_after_ms: 5s}",
            ["2: server.limits: dead_after_ms (5000) must be more than ping_interval_ms (20000)"],
        ),
        (
            "window:\n  bytes: 1GiB",
            ["1: window: bytes (1073741824) must not be more than memory_bytes (536870912)"],
        ),
        (
            "subscriber:\n  overflow: burst",
            ["2: subscriber.overflow: must be one of replay, drop_oldest, latest, block, close, not 'burst'"],
        ),
        (
            "subscriber:\n  overflow: drop_old",
            [
                "2: subscriber.overflow: must be one of replay, drop_oldest, latest, block, close, "
                "not 'drop_old'; did you mean 'drop_oldest'?"
            ],
        ),
        (
            "subscriber:\n  allow: [replay, burst]",
            ["2: subscriber.allow[1]: must be one of replay, drop_oldest, latest, block, close, not 'burst'"],
        ),
        (
            "subscriber:\n  block_fallback: block",
            [
                "2: subscriber.block_fallback: is what happens where 'block' does not hold the source: "
                "it must be another policy"
            ],
        ),
        (
            "sources:\n  - type: tick\n    id: a\n    subscriber:\n      overflow: replay",
            ["5: sources[0].subscriber.overflow: sources of type 'tick' cannot be read again"],
        ),
        # sources
        (
            "sources:\n  - {type: tick, id: a}\n  - {type: topic, topic: b}\n  - {type: plain, id: a}\n"
            "  - type: topic\n    topic: b",
            [
                "4: sources[2].id: the id 'a' is also that of the source in line 2",
                "5: sources[3]: the id 'b' is also that of the source in line 3",
            ],
        ),
        (
            "sources:\n  - {type: tick, id: ''}",
            ["2: sources[0].id: must be 1 to 255 bytes of printable text"],
        ),
        (
            "sources:\n  - {type: tik, id: a}",
            ["2: sources[0].type: unknown source type 'tik'; did you mean 'tick'?"],
        ),
        (
            "sources:\n  - {type: zzz, id: a}",
            ["2: sources[0].type: unknown source type 'zzz'; `kiwi-gw plugins` lists what is installed"],
        ),
        (
            "sources:\n  - type: tick\n    id: a\n    window:\n      memory_bytes: 1",
            [
                "5: sources[0].window.memory_bytes: is for all sources together; it belongs in the "
                "top-level 'window'"
            ],
        ),
        (
            "sources:\n  - type: tick\n    id: a\n    window:\n      bytes: 1GiB",
            ["4: sources[0].window: bytes (1073741824) must not be more than memory_bytes (536870912)"],
        ),
        # the original's hooks
        ("hooks:\n  intercept: a.wasm\n  authenticate: b.wasm", [f"1: hooks: {HOOKS}"]),
        ("hooks: a.wasm", [f"1: hooks: {HOOKS}"]),
        # substitution
        (
            "server:\n  address: ${ADDRESS}",
            [
                "2: server.address: the environment variable ADDRESS is not set; ${ADDRESS:-...} gives it "
                "a default"
            ],
        ),
    ],
)
def test_mistakes(text: str, expected: list[str], complaints: Complaints) -> None:
    assert complaints(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("- a", ["1: must be a mapping of keys, not a list"]),
        (
            "a: [",
            [
                "2: is not valid YAML: while parsing a flow node, expected the node content, but found "
                "'<stream end>'"
            ],
        ),
        ("cluster:\n  hosts: [mars]\n" + PLUGINS, ["2: cluster.hosts: 'mars' is too far away"]),
        ("cluster: {}\n" + PLUGINS, ["1: cluster.hosts: is missing"]),
        (
            "sources:\n  - {type: topic, topic: a}\n" + PLUGINS,
            [
                "2: sources[0].type: source type 'topic' needs the section 'cluster'",
                "3: plugins[0]: plugin 'ticking:plugin' needs the section 'cluster'",
            ],
        ),
        ("plugins: 5", ["1: plugins: must be a list, not the number 5"]),
        (
            "plugins:\n  - ticking:nothing",
            ["2: plugins[0]: plugin 'ticking:nothing': ticking has no 'nothing'"],
        ),
        (
            "plugins:\n  - not_there:plugin",
            ["2: plugins[0]: plugin 'not_there:plugin' cannot be imported: No module named 'not_there'"],
        ),
        (
            "plugins:\n  - ticking:plugin\n  - ticking:clashing\ncluster: {hosts: [a]}",
            [
                "3: plugins[1]: plugins 'ticking:plugin' and 'ticking:clashing' both provide the source "
                "type 'tick'"
            ],
        ),
    ],
)
def test_mistakes_about_the_whole(text: str, expected: list[str], complaints: Complaints) -> None:
    assert complaints(text, {}, "") == expected


def test_all_mistakes_come_together_in_the_order_of_lines(complaints: Complaints) -> None:
    text = (
        "window:\n  events: 0\nserver:\n  drain_ms: x\n  adress: 1\nsources:\n  - {type: tick}\n"
        "  - {type: tick}\nname: ${N}"
    )
    found = complaints(text, {"KIWI_GW_LOGGING__LEVEL": "loud"})
    assert [item.split(":")[0] for item in found] == [
        "2",
        "4",
        "5",
        "7",
        "8",
        "9",
        "environment KIWI_GW_LOGGING__LEVEL",
    ]


def test_a_missing_extra_is_named(complaints: Complaints, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "aiokafka", None)
    text = (
        "kafka:\n  bootstrap_servers: localhost:9092\nsources:\n  - type: kafka\n    topic: a\n"
        "  - type: kafka\n    topic: b"
    )
    assert complaints(text) == ["4: sources[0].type: source type 'kafka' needs: pip install 'kiwi-gw[kafka]'"]


def test_a_section_without_its_extra_is_no_mistake_if_no_source_needs_it(
    load_text: Loader, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [name for name in sys.modules if name.split(".")[0] == "kiwi_kafka"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "aiokafka", None)
    loaded = load_text("kafka:\n  bootstrap_servers: localhost:9092\nsources:\n  - {type: tick, id: a}")
    assert list(loaded.settings.sources) == ["a"]


def test_secrets_are_not_shown(complaints: Complaints) -> None:
    text = (
        "sources:\n  - {type: tick, id: a, password: 12345}\n  - {type: tick, id: b, password: [hush]}\n"
        "  - {type: tick, id: c, min: '${SECRET}'}\n  - type: tick\n    id: d\n    min: ${SECRET}"
    )
    found = complaints(text, {"SECRET": "hush"})
    assert found == [
        "2: sources[0].password: must be text, not a number (put it in quotes)",
        "3: sources[1].password: must be text, not a list",
        "4: sources[2].min: must be a whole number, not this text",
        "7: sources[3].min: must be a whole number, not this text",
    ]


def test_a_plugin_whose_check_crashes_is_a_mistake_with_a_line(
    complaints: Complaints, test_plugins: ModuleType
) -> None:
    class Broken(Section):
        @model_validator(mode="before")
        @classmethod
        def _crash(cls, data: object) -> object:
            raise KeyError("oops")

    class Plugin:
        @hookimpl
        def config_sections(self) -> Sequence[ConfigSection]:
            return (ConfigSection("broken", Broken),)

    vars(test_plugins)["broken"] = Plugin()
    found = complaints("plugins: ['ticking:broken']\nbroken: {}", {}, "")
    assert found == ["2: broken: cannot be checked: KeyError in the plugin that reads it"]


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    missing = tmp_path / "missing.yml"
    binary = tmp_path / "binary.yml"
    binary.write_bytes(b"a: \xff")
    for path, message in (
        (missing, "cannot be read: No such file or directory"),
        (tmp_path, "cannot be read: Is a directory"),
        (binary, "is not UTF-8 text (byte 3)"),
    ):
        with pytest.raises(ConfigError) as caught:
            load(path, {})
        assert str(caught.value) == f"{path}: {message}"


@pytest.mark.parametrize(
    ("sources", "wrong"),
    [
        (
            ["{type: join, id: a, of: [flihgts]}", "{type: topic, topic: flights}"],
            ["3: sources[0].of[0]: there is no source 'flihgts'; did you mean 'flights'?"],
        ),
        (["{type: join, id: a, of: [a]}"], ["3: sources[0].of[0]: the source 'a' depends on itself"]),
        (
            ["{type: join, id: a, of: [c]}", "{type: join, id: b, of: [a]}", "{type: join, id: c, of: [b]}"],
            ["3: sources[0].of[0]: sources depend on each other in a circle: 'a' -> 'c' -> 'b' -> 'a'"],
        ),
        (  # one that leads into a circle is not in it
            ["{type: join, id: a, of: [b]}", "{type: join, id: b, of: [c]}", "{type: join, id: c, of: [b]}"],
            ["4: sources[1].of[0]: sources depend on each other in a circle: 'b' -> 'c' -> 'b'"],
        ),
        (  # a source that is there, but wrong
            ["{type: join, id: a, of: [b]}", "{type: tick, id: b, min: x}"],
            ["4: sources[1].min: must be a whole number, not 'x'"],
        ),
        (  # nobody can say what the id would be
            ["{type: join, id: a, of: [b]}", "{type: topic}"],
            ["4: sources[1].topic: is missing"],
        ),
        (
            ["{type: join, id: a, bad: true}"],
            ["3: sources[0]: cannot be checked: ZeroDivisionError in the plugin that reads it"],
        ),
        (
            ["{type: join, id: a, text: fail}"],
            ["3: sources[0]: cannot be checked: ZeroDivisionError in the plugin that reads it"],
        ),
        (
            ["{type: join, id: a, of: [b, c], text: no ticks}", "{type: tick, id: b}", "{type: join, id: c}"],
            ["3: sources[0].of: ['b'] tick"],
        ),
        (  # what is wrong with the other one is said there
            ["{type: join, id: a, of: [b], text: no ticks}", "{type: tick, id: b, min: x}"],
            ["4: sources[1].min: must be a whole number, not 'x'"],
        ),
        (
            ["{type: join, id: a, subscriber: {overflow: replay}}", "{type: join, id: b, kept: true}"],
            ["3: sources[0].subscriber.overflow: sources of type 'join' like this one cannot be read again"],
        ),
    ],
)
def test_sources_that_depend_on_others(sources: list[str], wrong: list[str], complaints: Complaints) -> None:
    assert complaints("\nsources:\n" + "\n".join(f"  - {item}" for item in sources)) == wrong


def test_sources_may_depend_on_later_ones_and_in_a_diamond(load_text: Loader) -> None:
    text = "sources:\n  - {type: join, id: a, of: [b, c]}\n  - {type: join, id: b, of: [d]}\n"
    text += "  - {type: join, id: c, of: [d, d]}\n  - {type: tick, id: d}\n"
    context = load_text(text).context(1, 3)
    assert list(context.sources) == ["a", "b", "c", "d"]
    assert context.sources["d"].model_dump()["type"] == "tick"
    assert (context.worker, context.workers) == (1, 3)


def test_only_who_reads_a_section_needs_it(load_text: Loader, complaints: Complaints) -> None:
    # The plugin is not named by the file, so nobody else asks for its section.
    tail = "sources:\n  - {type: join, id: a}\n  - {type: join, id: b, kept: true}\n"
    found = complaints("", tail=PLUGINS + tail)
    assert "5: sources[1].type: source type 'join' needs the section 'cluster'" in found
    assert not [text for text in found if "sources[0]" in text]


def test_a_section_that_nobody_declares_until_the_file_has_it(
    complaints: Complaints, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = "sources:\n  - {type: join, id: a, sections: [kafka]}\n"
    assert complaints(text) == ["2: sources[0].type: source type 'join' needs the section 'kafka'"]
    monkeypatch.setattr(sys.modules["kiwi_gw.config.load"], "missing_extra", lambda name: "kiwi-gw[kafka]")
    words = "needs the section 'kafka', and that: pip install 'kiwi-gw[kafka]'"
    assert complaints(text) == [f"2: sources[0].type: source type 'join' {words}"]
