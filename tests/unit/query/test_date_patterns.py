"""Patterns of dates, beside a reader that goes back and tries every number of digits."""

from __future__ import annotations

import re

from hypothesis import given, settings
from hypothesis import strategies as st

from kiwi_gw.query.values import formats
from tests.effort import examples

FIELDS = {
    "y": r"\d{1,6}", "yyyy": r"\d{4,6}", "M": r"\d{1,2}", "MM": r"\d{2}", "d": r"\d{1,2}", "dd": r"\d{2}",
    "D": r"\d{1,3}", "H": r"\d{1,2}", "HH": r"\d{2}", "m": r"\d{1,2}", "s": r"\d{1,2}", "SSS": r"\d{3}",
    "MMM": "[A-Z][a-z]{2}", "a": "AM|PM", "X": r"Z|[+-]\d{2}",
}  # fmt: skip
BETWEEN = ("-", "/", ":", " ", "1", "12", "'T'")
fields = st.lists(
    st.tuples(st.sampled_from(sorted(FIELDS)), st.sampled_from(BETWEEN)), min_size=1, max_size=5
)
texts = st.lists(
    st.sampled_from(("2013", "1", "01", "12", "31", "120", "Jan", "AM", "Z", "+01", "-", "/", ":", " ", "T")),
    max_size=9,
).map("".join)


@settings(max_examples=examples(600), deadline=None)
@given(fields, texts | st.none())
def test_a_text_is_taken_apart_as_by_one_who_tries_everything(
    parts: list[tuple[str, str]], text: str | None
) -> None:
    pattern = "".join(field + between for field, between in parts)
    plain = "".join(f"({FIELDS[field]}){re.escape(between.strip(chr(39)))}" for field, between in parts)
    if text is None:
        text = "".join(
            {"y": "7", "MMM": "Jan", "a": "PM", "X": "Z"}.get(f, "1" * len(f)) + b.strip("'")
            for f, b in parts
        )
    groups, letters = formats.reader(pattern)
    found = re.fullmatch(plain, text)
    assert groups(text) == (None if found is None else found.groups())
    assert letters == tuple(field[0] for field, _ in parts)
