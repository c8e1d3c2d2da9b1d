from __future__ import annotations

from collections.abc import Callable

import pytest

from kiwi_gw.config import NEEDS_RESTART, ConfigDifference, LoadedConfig, diff

Loader = Callable[..., LoadedConfig]

SOURCES = """
sources:
  - {type: tick, id: a}
  - {type: topic, topic: b}
  - {type: plain, id: c}
"""


@pytest.fixture
def compare(load_text: Loader) -> Callable[..., ConfigDifference]:
    def compare_them(old: str, new: str, *tails: str) -> ConfigDifference:
        before, after = load_text(old, {}, *tails[:1]), load_text(new, {}, *tails[1:])
        return diff(before.settings, after.settings, after.plugins.source_types())

    return compare_them


Compare = Callable[..., ConfigDifference]


def test_nothing_has_changed(compare: Compare) -> None:
    found = compare(SOURCES, "# moved\n\n" + SOURCES)
    assert found == ConfigDifference((), (), (), ("a", "b", "c"), (), ())
    assert found.empty


def test_sources_are_added_removed_and_altered(compare: Compare) -> None:
    new = "sources:\n  - {type: plain, id: c}\n  - {type: tick, id: a, min: 1}\n  - {type: tick, id: d}\n"
    found = compare(SOURCES, new)
    assert (found.added, found.removed, found.altered, found.untouched) == (("d",), ("b",), ("a",), ("c",))
    assert not found.empty
    assert found.live == found.restart_needed == ()


@pytest.mark.parametrize(
    "change",
    [
        "{type: plain, id: a}",
        "{type: tick, id: a, password: x}",
        "{type: tick, id: a, subscriber: {overflow: close}}",
        "{type: tick, id: a, window: {events: 5}}",
        "{type: tick, id: a, zetta: {data: value.x}}",
    ],
)
def test_what_alters_a_source(change: str, compare: Compare) -> None:
    assert compare(SOURCES, SOURCES.replace("{type: tick, id: a}", change)).altered == ("a",)


def test_defaults_that_are_written_down_alter_nothing(compare: Compare) -> None:
    change = (
        "{type: tick, id: a, min: 0, interval_ms: 1s, subscriber: {overflow: null}, window: {events: 65536}}"
    )
    assert compare(SOURCES, SOURCES.replace("{type: tick, id: a}", change)).empty


def test_an_id_that_is_written_down_alters_nothing(compare: Compare) -> None:
    assert compare(SOURCES, SOURCES.replace("topic: b", "topic: b, id: b")).empty


def test_what_holds_for_all_alters_those_that_have_no_own(compare: Compare) -> None:
    old = "sources:\n  - {type: tick, id: a}\n  - {type: tick, id: b, subscriber: {overflow: close}}"
    found = compare(old, old + "\nsubscriber: {overflow: close}")
    assert (found.altered, found.untouched) == (("a",), ("b",))
    assert found.live == ("subscriber.overflow",)


def test_a_section_alters_the_sources_that_read_it(compare: Compare) -> None:
    plugins = "plugins: ['ticking:plugin']\n"
    found = compare(
        SOURCES, SOURCES, plugins + "cluster: {hosts: [a]}", plugins + "cluster: {hosts: [b], port: 2}"
    )
    assert (found.altered, found.untouched) == (("b",), ("a", "c"))
    assert found.live == ("cluster.hosts", "cluster.port")
    found = compare(SOURCES, SOURCES + "option: {colour: green}")
    assert (found.altered, found.live) == ((), ("option.colour",))


def test_a_changed_secret_is_named_but_not_shown(compare: Compare) -> None:
    plugins = "plugins: ['ticking:plugin']\ncluster: {hosts: [a], users: [{name: a, password: %s}]}"
    found = compare(SOURCES, SOURCES, plugins % "one", plugins % "two")
    assert found.altered == ("b",)
    assert found.live == ("cluster.users",)


@pytest.mark.parametrize(
    ("old", "new", "live", "restart"),
    [
        ("", "name: b", (), ("name",)),
        ("", "server: {address: 'a:1', drain_ms: 1}", ("server.drain_ms",), ("server.address",)),
        ("", "server: {healthcheck: false}", (), ("server.healthcheck",)),
        ("", "server: {tls: {cert: a, key: b}}", (), ("server.tls",)),
        (
            "server: {tls: {cert: a, key: b}}",
            "server: {tls: {cert: c, key: b}, allowed_origins: ['*']}",
            ("server.allowed_origins", "server.tls.cert"),
            (),
        ),
        ("", "server: {limits: {max_connections: 1}}", ("server.limits.max_connections",), ()),
        ("", "server: {limits: {unsent_bytes: 1}}", (), ("server.limits.unsent_bytes",)),
        ("", "window: {events: 1}", ("window.events",), ()),
        ("", "window: {memory_bytes: 1GiB}", (), ("window.memory_bytes",)),
        ("", "logging: {level: debug, format: json}", ("logging.level",), ("logging.format",)),
        ("", "kiwi: {envelope: nested}", (), ("kiwi.envelope",)),
    ],
)
def test_what_is_applied_at_once(
    old: str, new: str, live: tuple[str, ...], restart: tuple[str, ...], compare: Compare
) -> None:
    found = compare(old, new)
    assert (found.live, found.restart_needed) == (live, restart)


def test_memory_for_all_alters_no_source(compare: Compare) -> None:
    assert compare(SOURCES, SOURCES + "window: {memory_bytes: 1GiB}").altered == ()


def test_plugins_that_come_and_go(compare: Compare) -> None:
    one = "plugins: ['ticking:plugin']\ncluster: {hosts: [earth]}"
    two = one.replace("]\n", ", 'ticking:second']\n", 1)
    assert compare("", "", one, two).live == ("plugins",)
    assert compare("", "", two, one).live == ("plugins",)
    assert compare("", "", one, "{}").live == ("cluster", "option", "plugins")


def test_every_setting_that_needs_a_restart_exists(load_text: Loader) -> None:
    settings = load_text("").settings
    for key in NEEDS_RESTART:
        found: object = settings
        for part in key.split("."):
            found = getattr(found, part)


JOINS = """
sources:
  - {type: join, id: c, of: [b]}
  - {type: join, id: b, of: [a, x]}
  - {type: tick, id: a}
  - {type: tick, id: x}
  - {type: join, id: d, of: [x]}
"""


def test_who_depends_on_an_altered_source_is_altered(compare: Compare) -> None:
    found = compare(JOINS, JOINS.replace("id: a}", "id: a, min: 1}"))
    assert (found.altered, found.untouched) == (("c", "b", "a"), ("x", "d"))
    found = compare(JOINS, JOINS.replace("{type: tick, id: a}", "{type: plain, id: a}"))
    assert found.altered == ("c", "b", "a")


def test_the_order_of_sources_means_nothing(compare: Compare) -> None:
    lines = JOINS.strip().splitlines()
    assert compare(JOINS, "\n".join([lines[0], *reversed(lines[1:])])).empty


def test_who_depends_on_a_new_source_is_altered(compare: Compare) -> None:
    found = compare(JOINS, JOINS.replace("of: [x]", "of: [n]") + "  - {type: tick, id: n}\n")
    assert (found.added, found.altered) == (("n",), ("d",))


def test_a_section_alters_only_who_reads_it(compare: Compare) -> None:
    sources = "sources:\n  - {type: join, id: a}\n  - {type: join, id: b, kept: true}\n"
    plugins = "plugins: ['ticking:plugin']\n"
    found = compare(sources, sources, plugins + "cluster: {hosts: [a]}", plugins + "cluster: {hosts: [b]}")
    assert (found.altered, found.untouched) == (("b",), ("a",))
