"""Filters and projections of subscriptions: two front ends (SQL, CaQL), one tree, one compiler.

Free of I/O and of every protocol: a dialect reads a query with a front end and puts it before its format.

The way of a query: its text -> `sql` or `caql` -> `tree` -> `compiler`. What an expression can be is in
`functions` (what there is) and `values` (what a value is, and what Spark makes of one). The way of a batch:
`decoded_batch` has its columns, `decode` (with a `schema`, written in `ddl`) makes values of their bytes,
`filtered` runs the compiled query and puts it before a format. What a client's query may cost: `limits`
for its text, `cpu_budget` for its time, `patterns` for regular expressions (`like_patterns` need few),
`weighted_lru` for what is kept of it; a large one is compiled by `worker`, and `worker_messages` is what that
is asked and answers. `errors` is what is wrong with a query; `sql_compiler` says in which of its two texts,
and `missing_members` names the members that no recent event has. `warm_up` compiles a first one before a
client waits for it.
"""
