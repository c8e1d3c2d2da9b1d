"""Spark's SQL, as far as conditions and columns go: its grammar, and the reader that makes trees of it."""

from kiwi_gw.query.sql.reader import MAX_WORDS as MAX_WORDS
from kiwi_gw.query.sql.reader import ROOTS as ROOTS
from kiwi_gw.query.sql.reader import read as read
