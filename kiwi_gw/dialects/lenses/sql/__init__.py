"""SQL of the Lenses protocols: a statement that names its tables, read onto the trees of queries."""

from kiwi_gw.dialects.lenses.sql.engine_text import MAX_ROWS as MAX_ROWS
from kiwi_gw.dialects.lenses.sql.engine_text import engine_query as engine_query
from kiwi_gw.dialects.lenses.sql.engine_text import queried_table as queried_table
from kiwi_gw.dialects.lenses.sql.engine_text import result_columns as result_columns
from kiwi_gw.dialects.lenses.sql.engine_text import written as written
from kiwi_gw.dialects.lenses.sql.function_check import check_functions as check_functions
from kiwi_gw.dialects.lenses.sql.grouped import GroupedStatement as GroupedStatement
from kiwi_gw.dialects.lenses.sql.grouped import Table as Table
from kiwi_gw.dialects.lenses.sql.meaning import read_any as read_any
from kiwi_gw.dialects.lenses.sql.names import ROOTS as ROOTS
from kiwi_gw.dialects.lenses.sql.reader import read as read
from kiwi_gw.dialects.lenses.sql.statement import Narrowed as Narrowed
from kiwi_gw.dialects.lenses.sql.statement import Setting as Setting
from kiwi_gw.dialects.lenses.sql.statement import Statement as Statement
