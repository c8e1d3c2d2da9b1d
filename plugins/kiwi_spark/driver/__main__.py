"""The driver process: `python -m kiwi_spark.driver SOCKET`, started by the gateway.

It connects to the gateway's socket, shows the token that it finds in KIWI_SPARK_TOKEN, and does what it is
told there. When that connection ends, so does it, with its JVM and every worker of it.
"""

from __future__ import annotations

import os
import signal
import sys

from kiwi_spark.driver.commands import Driver, end_group

TOKEN = "KIWI_SPARK_TOKEN"  # noqa: S105  (the name of a variable)


def main() -> None:
    if len(sys.argv) != 2:
        sys.exit("usage: python -m kiwi_spark.driver SOCKET")
    # Out of the environment, so that it is not inherited by what Spark starts.
    driver = Driver(sys.argv[1], os.environ.pop(TOKEN, ""))
    signal.signal(signal.SIGTERM, lambda *_: driver.end())
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the gateway's to act on
    clean = driver.serve()
    end_group(clean=clean)


if __name__ == "__main__":
    main()
