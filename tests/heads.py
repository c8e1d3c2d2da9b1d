"""Heads of requests that have become connections."""

from __future__ import annotations

from kiwi_gw.model import HeadCredential


def head(query: str = "", path: str = "/") -> HeadCredential:
    return HeadCredential("GET", path, query, (("host", "gateway.example"),))


HEAD = head()
