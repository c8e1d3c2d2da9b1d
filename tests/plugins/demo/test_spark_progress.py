"""What is said while Spark starts."""

from __future__ import annotations

import json
from pathlib import Path

import trio

from kiwi_demo.spark_progress import SparkProgress


async def test_what_it_waits_for_is_said(tmp_path: Path, autojump_clock: object) -> None:
    log = tmp_path / "gateway.log"
    log.touch()
    said: list[str] = []

    def logs(text: str) -> None:
        with log.open("a") as file:
            file.write(text)

    def logged(**entry: object) -> None:
        logs(json.dumps(entry) + "\n")

    async with trio.open_nursery() as nursery:
        nursery.start_soon(SparkProgress(log, said.append).run)
        await trio.sleep(5.2)
        assert said.pop() == "  Spark: waiting for its JVM to start (5 s)"
        logged(event="driver says", line="WARN this and that")
        logs("no JSON\n")
        logged(event="spark jars", said="  3 of 9 MB\x1b")
        logs('{"event": "spark driver is ready", ')
        await trio.sleep(1)
        assert said == ["  Spark: 3 of 9 MB\\x1b"]
        logs('"spark": "4.2.0"}\n')
        logged(event="query starts", source="late-flights", note="in real time")
        await trio.sleep(1)
        assert said[1:] == [
            "  Spark: version 4.2.0 is up; its queries start",
            "  Spark: late-flights: in real time",
        ]
        await trio.sleep(5)
        assert said.pop() == "  Spark: waiting for the first results of its queries (12 s)"
        logged(event="spark driver is gone; it is started again", problem="exit code 1")
        await trio.sleep(1)
        assert said.pop() == "  Spark: its JVM is gone, and is started again: exit code 1"
        nursery.cancel_scope.cancel()
