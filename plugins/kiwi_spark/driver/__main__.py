"""The driver process: `python -m kiwi_spark.driver SOCKET`, started by the gateway.

It connects to the gateway's socket, shows the token that it finds in KIWI_SPARK_TOKEN, and carries out
the commands that come there. When that connection ends, so does it, with its JVM and every worker of it.
"""

from __future__ import annotations

import os
import shutil
import signal
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Final

from kiwi_spark.driver.command_loop import CommandLoop, end_group
from kiwi_spark.protocol.messages import FOLDER, GATEWAY, TOKEN

_PATIENCE_SECONDS: Final = 0.5


def main() -> None:
    if len(sys.argv) != 2:
        sys.exit("usage: python -m kiwi_spark.driver SOCKET")
    # Out of the environment, so that it is not inherited by what Spark starts.
    driver = CommandLoop(sys.argv[1], os.environ.pop(TOKEN, ""))
    parent, folder = int(os.environ.pop(GATEWAY, os.getppid())), Path(sys.argv[1]).parent
    signal.signal(signal.SIGTERM, lambda *_: driver.end())
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the gateway's to act on
    clean = False
    with suppress(OSError):  # the gateway has gone before it could be connected to
        clean = driver.serve() and os.getppid() == parent  # else nothing else ends the rest
    end_group(lambda: leave(folder, parent), clean=clean)


def leave(folder: Path, parent: int) -> None:
    """Remove all that is in the folder of the gateway, if it is no more. If it is there still, it does so
    itself.

    parent: the gateway's process id, as it was.
    """
    patience = time.monotonic() + _PATIENCE_SECONDS
    while os.getppid() == parent:  # its sockets are closed a moment before it is over
        if time.monotonic() > patience:
            return
        time.sleep(0.02)
    if folder.name.startswith(FOLDER):
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
