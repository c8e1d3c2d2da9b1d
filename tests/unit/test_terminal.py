import json
from io import StringIO

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kiwi_gw.terminal import escape, escape_json, wants_colour


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain, ünïcode 🥝 漢字", "plain, ünïcode 🥝 漢字"),
        ("\x1b[2J\x07", "\\x1b[2J\\x07"),
        ("a\r\n\tb", "a\\r\\n\\tb"),
        ("\x9b31m\x7f\x00", "\\x9b31m\\x7f\\x00"),
        ("abc\u202edcb\u2066\u2069\u200f", "abc\\u202edcb\\u2066\\u2069\\u200f"),
        ("\u2028\ud800", "\\u2028\\ud800"),
    ],
)
def test_what_steers_a_terminal_is_shown_instead(text: str, shown: str) -> None:
    assert escape(text) == shown


@given(st.text(st.characters(codec=None)))
def test_nothing_harmful_is_left(text: str) -> None:
    for character in escape(text):
        assert character.isprintable() or character not in "\x1b\x9b\n\r\x07\x00\u202e"
        assert not "\x00" <= character < " "
    escape(text).encode()


@given(
    st.recursive(st.text() | st.integers(), lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner))
)
def test_json_means_the_same(value: object) -> None:
    text = json.dumps(value, ensure_ascii=False, indent=2)
    line = escape_json(text)
    assert json.loads(line) == value
    assert "\n" not in line
    assert "\x9b" not in line


class Terminal(StringIO):
    def isatty(self) -> bool:
        return True


def test_colour_only_where_it_is_wanted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    assert wants_colour(Terminal())
    assert not wants_colour(StringIO())
    monkeypatch.setenv("TERM", "dumb")
    assert not wants_colour(Terminal())
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("NO_COLOR", "1")
    assert not wants_colour(Terminal())
