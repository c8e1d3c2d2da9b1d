"""Compiles a query into loops over the decoded columns of a batch.

`loops` puts them together of what the others write: `writing` expressions, `paths` the members of a record,
`projection` the result. `codes` is what they write.
"""

from __future__ import annotations

from kiwi_gw.query.compiler.loops import Codes, Compiled, compiled

__all__ = ["Codes", "Compiled", "compiled"]
