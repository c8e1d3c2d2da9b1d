"""Filters and projections of subscriptions: two front ends (SQL, CaQL), one tree, one compiler.

Free of I/O and of every protocol: a dialect reads a query with a front end and puts it before its format.

The way of a query: its text -> `sql` or `caql` -> `tree` -> `compiler`. Expressions are defined in
`functions` (all functions and operators) and `values` (what a value is, and what Spark makes of one). The way
of a batch: `decoded_batch` has its columns, `decode` (with a `schema`, written in `ddl`) makes values of
their bytes, `filtered` runs the compiled query and puts it before a format. The cost of a client's query is
bounded by `limits` for its text, `cpu_budget` for its time, `patterns` for regular expressions
(`like_patterns` need few) and `weighted_lru` for what is kept of it. A large one is compiled by `worker`;
`worker_messages` has the questions to it and its answers. `errors` says what is wrong with a query,
`sql_compiler` in which of its two texts. `missing_members` names the members that no recent event has.
`warm_up` compiles a first query before a client waits for it.
"""
