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

from aiokafka import conn
from aiokafka.conn import AIOKafkaProtocol

from kiwi_gw.cli import main as gateway
from kiwi_gw.edge import listener, transports


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


class CountedKafka(AIOKafkaProtocol):  # type: ignore[misc]  # aiokafka carries no types
    received = 0

    def data_received(self, data: bytes) -> None:
        CountedKafka.received += len(data)
        super().data_received(data)


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
    conn.AIOKafkaProtocol = CountedKafka
    return gateway(sys.argv[2:])


if __name__ == "__main__":
    sys.exit(main())
