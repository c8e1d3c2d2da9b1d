"""The gateway with its sends counted: tells the mean slice, for a run that is not timed.

    python -m benchmarks.workers.counted_gateway FILE run --config ...

On SIGUSR1 the counts so far are written to FILE: sends that took something, the bytes that they took,
sends that took nothing, and the bytes that came from Kafka.
"""

from __future__ import annotations

import json
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

from kiwi_gw.cli import main as gateway
from kiwi_gw.edge import listener, transports
from kiwi_kafka.client import connection


class CountedTransport(transports.SocketTransport):
    sends = 0
    sent = 0
    refused = 0

    def try_send(self, data: transports.Bytes) -> int:
        return self._count(super().try_send(data))

    def try_send_many(self, buffers: Sequence[transports.Bytes]) -> int:
        if len(buffers) == 1:
            return self.try_send(buffers[0])
        return self._count(super().try_send_many(buffers))

    @staticmethod
    def _count(taken: int) -> int:
        if taken:
            CountedTransport.sends += 1
            CountedTransport.sent += taken
        else:
            CountedTransport.refused += 1
        return taken


class CountedKafka(connection.PlainStream):
    received = 0

    async def receive_into(self, buffer: memoryview) -> int:
        got = await super().receive_into(buffer)
        CountedKafka.received += got
        return got


def main() -> int:
    file = Path(sys.argv[1])

    def write(*_: object) -> None:
        counts = {name: getattr(CountedTransport, name) for name in ("sends", "sent", "refused")}
        counts["kafka"] = CountedKafka.received
        part = file.with_suffix(".part")
        part.write_text(json.dumps(counts))
        part.rename(file)  # the process that waits for it finds it whole

    signal.signal(signal.SIGUSR1, write)
    listener.SocketTransport = CountedTransport  # type: ignore[attr-defined]
    connection.PlainStream = CountedKafka  # type: ignore[misc]
    return gateway(sys.argv[2:])


if __name__ == "__main__":
    sys.exit(main())
