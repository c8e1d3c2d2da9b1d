from __future__ import annotations

import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kiwi_gw.config.document import Document, dotted, read
from kiwi_gw.config.substitution import Substitution


def parse(text: str, environ: dict[str, str] | None = None) -> Document:
    return read(text, "f.yml", Substitution(environ or {}).expand)


def problems(text: str) -> list[str]:
    return [str(problem) for problem in parse(text).problems]


@pytest.mark.parametrize(
    ("scalar", "value"),
    [
        ("", None),
        ("~", None),
        ("null", None),
        ("true", True),
        ("False", False),
        ("yes", "yes"),
        ("on", "on"),
        ("12", 12),
        ("-0", 0),
        ("010", 10),
        ("0o10", 8),
        ("0x1F", 31),
        ("1_000", "1_000"),
        ("1:30", "1:30"),
        ("127.0.0.1:8000", "127.0.0.1:8000"),
        ("1.5", 1.5),
        (".5", 0.5),
        ("1e3", 1000.0),
        ("-.inf", -math.inf),
        ("2024-01-01", "2024-01-01"),
        ("9" * 101, 1e101),
        ("'12'", "12"),
        ('"true"', "true"),
        ("!!str 12", "12"),
        ("!!int '12'", 12),
        ("!!float 12", 12),
        ("!!bool true", True),
        ("!!null ''", None),
    ],
)
def test_scalars_are_those_of_yaml_1_2(scalar: str, value: object) -> None:
    document = parse(f"k: {scalar}")
    assert document.problems == []
    assert document.data == {"k": value}
    assert isinstance(document.data, dict)
    assert type(document.data["k"]) is type(value) or scalar.startswith("!!float")


def test_keys_are_text() -> None:
    assert parse("on: 1\n2: x\nnull: y").data == {"on": 1, "2": "x", "null": "y"}


def test_lines() -> None:
    document = parse("a:\n  b: 1\n  c:\n    - x\n    -\n      d: |\n        text\n")
    assert document.lines == {
        (): 1,
        ("a",): 1,
        ("a", "b"): 2,
        ("a", "c"): 3,
        ("a", "c", 0): 4,
        ("a", "c", 1): 6,
        ("a", "c", 1, "d"): 6,
    }


def test_anchors_and_merge_keys() -> None:
    document = parse(
        "base: &base {x: 1, y: 2}\nmore: &more {y: 3, z: 4}\n"
        "one:\n  y: 5\n  <<: *base\nmany:\n  <<: [*base, *more]\nsame: *base\n"
    )
    assert document.problems == []
    assert document.data == {
        "base": {"x": 1, "y": 2},
        "more": {"y": 3, "z": 4},
        "one": {"y": 5, "x": 1},
        "many": {"x": 1, "y": 2, "z": 4},
        "same": {"x": 1, "y": 2},
    }
    assert document.lines["one", "x"] == 1
    assert document.lines["one", "y"] == 4


def test_a_quoted_merge_key_is_a_key() -> None:
    assert parse("'<<': {x: 1}").data == {"<<": {"x": 1}}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: 1\nb: 2\na: 3", "f.yml:3: a: is given twice (first in line 1)"),
        ("a: 1\n---\nb: 2", "f.yml:2: a second YAML document begins here; the file may hold only one"),
        (
            "a:\n\t- 1",
            "f.yml:2: is not valid YAML: while scanning for the next token, found character '\\t' that "
            "cannot "
            "start any token (indent with blanks, not with tabs)",
        ),
        (
            "a: [1\nb: 2",
            "f.yml:2: is not valid YAML: while parsing a flow sequence, expected ',' or ']', but got ':'",
        ),
        ("a: b: c", "f.yml:1: is not valid YAML: mapping values are not allowed here"),
        ("a: *b", "f.yml:1: is not valid YAML: found undefined alias 'b'"),
        ("x: 1\na: \0", "f.yml:2: holds the character U+0000, which YAML does not allow"),
        ("x: 1\na: !foo 1", "f.yml:2: a: the tag '!foo' is not allowed here"),
        ("a: !!python/object:os.system x", None),
        ("a: !!int x", "f.yml:1: a: is not what its tag '!!int' says"),
        ('a: "\\ud800"', "f.yml:1: a: holds half of a surrogate pair, which is not text"),
        ("? [a]\n: 1", "f.yml:1: a key in line 1 is not plain text"),
        ("a: &a\n  <<: *a", "f.yml:1: a: '<<' merges a mapping into itself"),
        ("a:\n  <<: 5", "f.yml:1: a: '<<' merges mappings only"),
        ("[" * 2000, "f.yml:1: is nested more than 50 deep"),
        ("x" * (4 * 1024 * 1024 + 1), "f.yml:1: is larger than 4 MiB"),
    ],
)
def test_says_what_is_wrong(text: str, message: str | None) -> None:
    found = problems(text)
    assert len(found) == 1
    if message is not None:
        assert found == [message]


def test_an_alias_of_itself_ends() -> None:
    (problem,) = parse("a: &a [*a]").problems
    assert problem.message == "is nested more than 50 deep"


@pytest.mark.parametrize("link", ["[{}]", "{{<<: [{}]}}"])
def test_a_bomb_of_aliases_ends(link: str) -> None:
    lines = ["a0: &a0 {x: 1}"]
    lines += [f"a{n}: &a{n} {link.format(','.join([f'*a{n - 1}'] * 10))}" for n in range(1, 10)]
    assert problems("\n".join(lines)) == ["f.yml:1: has more than 200,000 values, its aliases resolved"]


def test_substitution_resolves_plain_scalars_again() -> None:
    document = parse("a: ${N}\nb: '${N}'\nc: x${N}\nd: ${N}${N}\ne: |-\n  ${N}\n${N}: k", {"N": "42"})
    assert document.data == {"a": 42, "b": "42", "c": "x42", "d": 4242, "e": "42", "${N}": "k"}
    assert document.texts == {("a",): "42", ("c",): "x42", ("d",): "4242"}


@given(st.text(min_size=1).filter(lambda text: text.isprintable()))
def test_substitution_never_changes_the_structure(value: str) -> None:
    text = "a: ${V}\nb: '${V}'\nc: [\"${V}\", '${V}']\nd: {e: \"${V}\"}\nf: |\n  ${V}\n"
    document = parse(text, {"V": value})
    assert document.problems == []
    assert isinstance(document.data, dict)
    data = document.data
    assert list(data) == ["a", "b", "c", "d", "f"]
    assert data["b"] == value
    assert data["c"][0] == value
    assert len(data["c"]) == 2
    assert list(data["d"]) == ["e"]
    assert data["f"] == value + "\n"
    assert not isinstance(data["a"], (dict, list))
    assert document.texts["a",] == value


_json = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**60), 2**60) | st.text(alphabet=st.characters(codec="utf-8")),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=15,
)


@given(_json)
def test_json_is_read_as_it_is(value: object) -> None:
    text = json.dumps(value).replace("$", "$$").replace("\x7f", "\\u007f")
    keys_have_dollars = "$" in text
    document = parse(text)
    assert document.problems == []
    if not keys_have_dollars:
        assert document.data == value


@given(st.text(alphabet="ab:-[]{}&*!|>'\"#%@`,? \n\t<~${}", max_size=60))
def test_no_text_makes_it_fail(text: str) -> None:
    document = parse(text)
    for problem in document.problems:
        assert problem.file == "f.yml"
        assert problem.line >= 1


def test_dotted() -> None:
    assert dotted(("sources", 2, "topic")) == "sources[2].topic"
    assert dotted(("a", "b\nc", "")) == "a.'b\\nc'.''"
    assert dotted(()) == ""


def test_every_place_has_its_line() -> None:
    text = "a:\n  - b: |\n\n      one\n      two\n    c: one\n  - &x >\n    three\n    four\n  - *x\n"
    places = parse(text).places
    assert places.of(("a", 0, "b")) == ("f.yml", 3)
    assert places.of(("a", 0, "b"), 2) == ("f.yml", 5)
    assert places.of(("a", 0, "c"), 2) == ("f.yml", 6)  # a text of one line has no other
    assert places.of(("a", 0, "missing"), 2) == ("f.yml", 2)
    assert places.of(("a", 1), 1) == ("f.yml", 7)  # folded: its lines are not those of the file
    assert places.of(("z",)) == ("f.yml", 1)


def test_a_block_through_an_alias_is_where_it_was_written() -> None:
    places = parse("a: &x |\n  one\n  two\nb: *x\n").places
    assert places.of(("b",), 1) == ("f.yml", 3)


def test_a_block_that_a_substitution_made_longer_has_only_its_beginning() -> None:
    places = parse("a: |\n  ${V}\n  two\nb: |\n  ${W}\n  two\n", {"V": "x\ny", "W": "x"}).places
    assert places.of(("a",), 1) == ("f.yml", 1)
    assert places.of(("b",), 1) == ("f.yml", 6)
