"""CaQL, the query language of Zetta: its grammar and the reader that makes trees of it."""

from kiwi_gw.query.caql.reader import TOPIC_ROOTS as TOPIC_ROOTS
from kiwi_gw.query.caql.reader import read as read
