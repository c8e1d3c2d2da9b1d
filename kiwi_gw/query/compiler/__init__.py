"""Compiles a query into loops over the decoded columns of a batch.

`query_codegen` puts them together of what the others write: `expression_codegen` expressions (with `calls`,
`comparisons` and `choices`), `paths` the members of a record, `projection` and `result_json` the result. What
comes of it is a `compiled_query`. `code_fragments` is what they write; `event_budget` bounds what it makes
for one event, `footprint` what it keeps.
"""

from __future__ import annotations

from kiwi_gw.query.compiler.compiled_query import CompiledQuery as CompiledQuery
from kiwi_gw.query.compiler.query_codegen import Bytecode as Bytecode
from kiwi_gw.query.compiler.query_codegen import compile_bytecode as compile_bytecode
from kiwi_gw.query.compiler.query_codegen import compile_query as compile_query
