"""Compiles a query into loops over the decoded columns of a batch.

`query_codegen` puts them together of what the other modules write. `expression_codegen` writes expressions
(with `calls`, `comparisons` and `choices`), `paths` the members of a record, `projection` and `result_json`
the result. What they write are `code_fragments`, and the outcome is a `compiled_query`. `event_budget` bounds
what a query makes for one event, `footprint` estimates what it keeps. `expression_check` is for expressions
that are evaluated elsewhere.
"""

from __future__ import annotations

from kiwi_gw.query.compiler.compiled_query import CompiledQuery as CompiledQuery
from kiwi_gw.query.compiler.expression_check import check_expressions as check_expressions
from kiwi_gw.query.compiler.query_codegen import Bytecode as Bytecode
from kiwi_gw.query.compiler.query_codegen import compile_bytecode as compile_bytecode
from kiwi_gw.query.compiler.query_codegen import compile_query as compile_query
