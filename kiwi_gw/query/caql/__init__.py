"""CaQL, the query language of Zetta: its grammar and the reader that makes trees of it."""

from kiwi_gw.query.caql.reader import TOPIC_ROOTS, read

__all__ = ["TOPIC_ROOTS", "read"]
