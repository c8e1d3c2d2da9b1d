"""Spark's SQL, as far as conditions and columns go: its grammar, and the reader that makes trees of it."""

from kiwi_gw.query.sql.reader import MAX_WORDS, ROOTS, read

__all__ = ["MAX_WORDS", "ROOTS", "read"]
