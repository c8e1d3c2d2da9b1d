"""Frames that nobody expects, for any protocol of JSON messages."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy


def anything(*words: str) -> SearchStrategy[Any]:
    """Any JSON, in which these words are likely."""
    leaves = st.none() | st.booleans() | st.integers() | st.floats() | st.text()
    return st.recursive(
        leaves | st.sampled_from(words) if words else leaves,
        lambda children: st.lists(children) | st.dictionaries(st.text(), children),
        max_leaves=10,
    )


def frames(messages: SearchStrategy[str], values: SearchStrategy[Any]) -> SearchStrategy[str | bytes]:
    """Messages whole and cut off, other JSON, any text and any bytes."""
    cut = messages.flatmap(lambda text: st.integers(0, len(text)).map(lambda end: text[:end]))
    return messages | cut | values.map(json.dumps) | st.text() | st.binary()
