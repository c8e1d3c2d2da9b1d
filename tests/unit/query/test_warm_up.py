"""What is warmed up before the first query."""

from __future__ import annotations

import subprocess
import sys

import pytest

pytestmark = pytest.mark.slow


def test_afterwards_a_query_of_either_language_imports_nothing_more() -> None:
    program = (
        "import sys\n"
        "from kiwi_gw.query.warm_up import warm_up\n"
        "assert not {'re2'} & sys.modules.keys()\n"
        "warm_up()\n"
        "there = set(sys.modules)\n"
        "from kiwi_gw.query import caql, sql\n"
        "from kiwi_gw.query.compiler import compile_query\n"
        "query = sql.read(\"value.n BETWEEN 1 AND 2 OR upper(key) RLIKE 'x+'\", 'value.n')\n"
        "compile_query(query, sql.ROOTS)\n"
        "compile_query(caql.read('where data.a contains \"b\"'), frozenset(caql.TOPIC_ROOTS))\n"
        "print(sorted(set(sys.modules) - there))\n"
    )
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert found.stdout == "[]\n"
