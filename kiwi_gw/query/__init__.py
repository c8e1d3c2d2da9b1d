"""Filters and projections of subscriptions: two front ends (SQL, CaQL), one tree, one compiler.

Free of I/O and of every protocol: a dialect reads a query with a front end and puts it before its format.
"""
