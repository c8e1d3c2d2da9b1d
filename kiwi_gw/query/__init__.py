"""Filters and projections of subscriptions: two front ends (SQL, CaQL), one tree, one compiler.

Free of I/O and of every protocol: a dialect reads a query with a front end and puts it before its format.

The way of a query: its text -> `sql` or `caql` -> `tree` -> `compiler`. What an expression can be is in
`functions` (what there is) and `values` (what a value is, and what Spark makes of one). The way of a batch:
`views` has its columns, `decode` (with a `schema`, if there is one) makes values of their bytes, `filtered`
runs the compiled query and puts it before a format. What a stranger's query may cost: `limits` for its text,
`effort` for its time, `patterns` for regular expressions, `recent` for what is kept of it. `errors` is what
is wrong with it; `warm` reads a first one before anybody waits, and `reference` writes `config/QUERIES.md`.
"""
