"""A driver whose gateway is gone."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Final

import pytest

from kiwi_spark.protocol.messages import FOLDER, GATEWAY, OpenSession
from tests.integration.spark.driver_peer import Talk, usual_session
from tests.integration.spark.held_gateway import in_group

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]

PATIENCE: Final = 100.0


@pytest.mark.parametrize("when", ["before it connects", "while its session is made", "when both are to end"])
def test_a_gateway_that_is_gone_leaves_no_driver_and_no_folder(tmp_path: Path, when: str) -> None:
    """As `kill -9` makes it, or a demo that is interrupted early."""
    folder = tmp_path / f"{FOLDER}x"
    (folder / "work").mkdir(parents=True)
    path = str(folder / "driver.sock")
    with socket.socket(socket.AF_UNIX) as listener, open(os.devnull, "w") as nothing:
        listener.bind(path)
        listener.listen()
        listener.settimeout(PATIENCE)
        words = [sys.executable, "-m", "kiwi_spark.driver", path]
        gone = subprocess.Popen(["true"])
        gone.wait()
        env = {**os.environ, GATEWAY: str(gone.pid), "TMPDIR": str(folder / "work")}
        if when == "before it connects":
            listener.close()
        process = subprocess.Popen(
            words, env=env, start_new_session=True, stdout=nothing, stderr=subprocess.PIPE, cwd=folder
        )
        assert process.stderr is not None
        if when != "before it connects":
            talk = Talk(listener.accept()[0])
            talk.say(OpenSession(session=usual_session()))
            assert process.stderr.read(1)  # of its JVM, which is the first to speak
            if when == "when both are to end":
                process.terminate()
                process.wait(PATIENCE)
            talk.close()
            listener.close()
        process.stderr.close()
        process.wait(PATIENCE)
    assert list(tmp_path.iterdir()) == []
    until = time.monotonic() + PATIENCE
    while left := in_group(process.pid):  # one that was killed takes a moment to be gone
        assert time.monotonic() < until, left
        time.sleep(0.01)
