"""What is warmed up before the first query."""

from __future__ import annotations

import subprocess
import sys

import pytest

pytestmark = pytest.mark.slow


def test_afterwards_a_query_of_either_language_imports_nothing_more() -> None:
    program = (
        "import sys\n"
        "from kiwi_gw.query.warm import warm\n"
        "assert not {'sqlglot', 'lark', 're2'} & sys.modules.keys()\n"
        "warm()\n"
        "there = set(sys.modules)\n"
        "from kiwi_gw.query import caql, sql\n"
        "from kiwi_gw.query.compiler import compiled\n"
        "compiled(sql.read(\"value.n BETWEEN 1 AND 2 OR upper(key) RLIKE 'x+'\", 'value.n'), sql.ROOTS)\n"
        "compiled(caql.read('where data.a contains \"b\"'), frozenset(caql.TOPIC_ROOTS))\n"
        "print(sorted(set(sys.modules) - there))\n"
    )
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert found.stdout == "[]\n"


def test_a_sqlglot_that_cannot_be_used_is_said_before_the_first_query() -> None:
    program = (
        "from sqlglot.parsers.spark import SparkParser\n"
        "def compiled(self, *args, **kwargs):\n"
        "    raise TypeError('interpreted classes cannot inherit from compiled')\n"
        "SparkParser.__init__ = compiled\n"
        "from kiwi_gw.query.warm import warm\n"
        "try:\n"
        "    warm()\n"
        "except ImportError as error:\n"
        "    print(error)\n"
    )
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert "remove sqlglotc" in found.stdout
