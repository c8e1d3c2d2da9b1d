"""SQL of the Lenses protocols: a statement that names its table, read onto the trees of queries."""

from kiwi_gw.dialects.lenses.sql.names import ROOTS as ROOTS
from kiwi_gw.dialects.lenses.sql.reader import read as read
from kiwi_gw.dialects.lenses.sql.statement import Narrowed as Narrowed
from kiwi_gw.dialects.lenses.sql.statement import Setting as Setting
from kiwi_gw.dialects.lenses.sql.statement import Statement as Statement
