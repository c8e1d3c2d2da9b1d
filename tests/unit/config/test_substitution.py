from __future__ import annotations

import contextlib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kiwi_gw.config.substitution import Substitution, SubstitutionError

ENVIRON = {"V": "value", "EMPTY": "", "TRICK": "${V} $$", "file": "a variable"}


@pytest.mark.parametrize(
    ("text", "result"),
    [
        ("plain", "plain"),
        ("${V}", "value"),
        ("a${V}b${V}", "avaluebvalue"),
        ("${EMPTY}", ""),
        ("${V:-d}", "value"),
        ("${EMPTY:-d}", "d"),
        ("${EMPTY-d}", ""),
        ("${NONE:-d}", "d"),
        ("${NONE-d}", "d"),
        ("${NONE:-}", ""),
        ("${NONE:-${V}}", "value"),
        ("${NONE:-${EMPTY:-deep}}!", "deep!"),
        ("${NONE:-a-b?c+d}", "a-b?c+d"),
        ("${NONE:-$${V}}", "${V}"),
        ("${V:+x}", "x"),
        ("${EMPTY:+x}", ""),
        ("${EMPTY+x}", "x"),
        ("${NONE:+x}", ""),
        ("${NONE+x}", ""),
        ("${V:?m}", "value"),
        ("${EMPTY?m}", ""),
        ("$$", "$"),
        ("$${V}", "${V}"),
        ("$V costs 5$", "$V costs 5$"),
        ("${TRICK}", "${V} $$"),
        ("${file:-x}", "a variable"),
        ("${V:-${NONE}}", "value"),
    ],
)
def test_substitutes_as_compose_does(text: str, result: str) -> None:
    assert Substitution(ENVIRON).expand(text) == result


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("${NONE}", "the environment variable NONE is not set; ${NONE:-...} gives it a default"),
        ("${NONE:?say it}", "the environment variable NONE is not set: say it"),
        ("${EMPTY:?say it}", "the environment variable EMPTY is not set: say it"),
        ("${NONE?}", "the environment variable NONE is not set: it is required"),
        ("${", "'${' has no closing brace; write $$ for a plain $"),
        ("a ${V", "'${V' has no closing brace; write $$ for a plain $"),
        ("${}", "'${}' names no variable; write $$ for a plain $"),
        ("${1}", "'${1}' names no variable; write $$ for a plain $"),
        (
            "${V!x}",
            "'${V!x}' is not understood; it may be ${V}, ${V:-default}, ${V:?message}, "
            "${V:+instead} or ${file:/path}",
        ),
        ("${N:-" * 20 + "}" * 20, "substitutions are nested more than 16 deep"),
        ("${file:/does/not/exist}", "the file /does/not/exist cannot be read: No such file or directory"),
        ("${file:a\0b}", "'a\\x00b' is not the name of a file: embedded null byte"),
    ],
)
def test_says_what_is_wrong(text: str, message: str) -> None:
    with pytest.raises(SubstitutionError) as caught:
        Substitution(ENVIRON).expand(text)
    assert str(caught.value) == message


def test_reads_files(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_bytes(b"  a ${V}\nb\r\n\n")
    substitution = Substitution({"DIR": str(tmp_path), "NAMED_FILE": str(secret)})
    assert substitution.expand("${file:${DIR}/secret}") == "  a ${V}\nb"
    assert substitution.expand("${NAMED}") == "  a ${V}\nb"
    assert list(substitution.files) == [secret]


def test_refuses_files_that_are_no_text(tmp_path: Path) -> None:
    (tmp_path / "binary").write_bytes(b"\xff")
    (tmp_path / "large").write_bytes(b"x" * (1024 * 1024 + 1))
    for name, message in (("binary", "is not UTF-8 text"), ("large", "is larger than 1 MiB")):
        with pytest.raises(SubstitutionError, match=message):
            Substitution({}).expand(f"${{file:{tmp_path / name}}}")


def test_variable_and_file_together_are_an_error(tmp_path: Path) -> None:
    environ = {"V": "x", "V_FILE": str(tmp_path)}
    with pytest.raises(SubstitutionError, match=r"^the environment has both V and V_FILE; keep one of them$"):
        Substitution(environ).expand("${V}")
    assert Substitution({"V": "x", "V_FILE": ""}).expand("${V}") == "x"


def test_a_variable_that_is_no_text_is_an_error() -> None:
    with pytest.raises(SubstitutionError, match=r"^the environment variable V is not UTF-8 text$"):
        Substitution({"V": "\udcff"}).expand("${V}")


@given(st.text(alphabet="${}:-?+Vfile/$ab"))
def test_never_fails_otherwise(text: str) -> None:
    with contextlib.suppress(SubstitutionError):
        Substitution({"V": "v"}).expand(text)


@given(st.text())
def test_escaping_keeps_any_text(text: str) -> None:
    assert Substitution({}).expand(text.replace("$", "$$")) == text
