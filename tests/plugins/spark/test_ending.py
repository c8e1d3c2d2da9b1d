"""How the driver's process ends."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest

pytestmark = pytest.mark.slow

SCRIPT = """
import os, subprocess
from kiwi_spark.driver import command_loop

def listed(folder, known=os.listdir):
    if {missing} and folder == "/proc":
        raise FileNotFoundError(folder)
    return known(folder)

os.listdir = listed
subprocess.Popen(["sleep", "100"])
command_loop.end_group(lambda: print("left", flush=True), clean=False)
"""


@pytest.mark.parametrize("missing", [False, True])
def test_it_ends_with_all_others_of_its_group_also_where_there_is_no_proc(missing: bool) -> None:
    ended = subprocess.run(
        [sys.executable, "-c", SCRIPT.format(missing=missing)],
        stdout=subprocess.PIPE,
        start_new_session=True,
        check=False,
        timeout=60,
    )
    # `run` returns when nobody has the output any more: the other one is gone, too.
    assert (ended.returncode, ended.stdout) == (-signal.SIGKILL, b"left\n")
