"""One broker for several processes of pytest that run at once.

`python -m tests.integration.shared_broker COMMAND ...` runs the command while a broker is there, and returns
its exit code. What pytest finds in that environment is this broker; without it it starts one of its own.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

from kiwi_demo.broker import Broker
from kiwi_demo.loopback import Node
from tests.integration.held_broker import HeldBroker

VARIABLE = "KIWI_GW_TEST_BROKER"
"""Its port on loopback."""


def shared(folder: Path) -> Broker | None:
    """The broker that somebody else has started and will end; `folder` is for nothing of it."""
    port = os.environ.get(VARIABLE)
    return None if port is None else Broker(folder, cluster=(Node(1, int(port), 0),))


def main(command: list[str]) -> int:
    """Run `command` beside a broker."""
    with tempfile.TemporaryDirectory(prefix="kiwi-gw-broker-") as folder:
        held = HeldBroker(Path(folder))
        held.start()
        try:
            environment = {**os.environ, VARIABLE: str(held.broker.port)}
            return subprocess.run(command, env=environment, check=False).returncode
        finally:
            held.stop()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
