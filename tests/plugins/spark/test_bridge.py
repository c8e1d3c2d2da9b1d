"""The bridge from end to end without Spark: a real gateway, a real socket, and the reader that Spark calls.

The reader blocks, so it is called in worker threads.
"""

from __future__ import annotations

import itertools
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio

from kiwi_gw.api import Gap
from kiwi_gw.testing import GatewayUnderTest, ScriptedSources
from kiwi_spark.bridge import serve_bridge
from kiwi_spark.driver.bridge_client import Bridge, BridgeAway
from kiwi_spark.driver.gateway_source import EventsLost, GatewayReader, Offset, _Prefetching
from tests.unit.runtime.listening import config, listening

NEWS = "id: news"
SMALL = "window: {events: 8}\n"
TOKEN = "secret"


class Bench:
    def __init__(self, socket: str, gateway: GatewayUnderTest, scripted: ScriptedSources) -> None:
        self.socket, self.gateway, self.scripted = socket, gateway, scripted
        self.losses: list[Gap] = []
        self._readers: list[GatewayReader] = []

    def reader(self, **options: object) -> GatewayReader:
        given = {"bridge": self.socket, "token": TOKEN, "source": "news", "start": "earliest", "patience": 3}
        self._readers.append(
            GatewayReader({name: str(value) for name, value in {**given, **options}.items()})
        )
        return self._readers[-1]

    def stop(self) -> None:
        """What Spark does with its readers in the end."""
        for reader in self._readers:
            reader.stop()

    async def publish(self, first: int, size: int, partition: int = 0) -> None:
        values = [b"%d" % number for number in range(first, first + size)]
        await self.scripted["news"].publish(values, partition=partition, timestamp=first)

    async def reload(self, text: str) -> None:
        self.gateway.file.write_text(text)
        assert await self.gateway.reloader.reload()


@asynccontextmanager
async def bench(text: str, *, replayable: bool = False) -> AsyncIterator[Bench]:
    async with listening(text, replayable=replayable) as (gateway, scripted, read):
        with tempfile.TemporaryDirectory() as private:
            found = Bench(f"{private}/bridge", gateway, scripted)
            async with trio.open_nursery() as nursery:
                await nursery.start(
                    lambda task_status: serve_bridge(
                        found.socket,
                        TOKEN,
                        read,
                        lost=lambda source, gap: found.losses.append(gap),
                        task_status=task_status,
                    )
                )
                try:
                    with trio.fail_after(30):
                        yield found
                finally:
                    found.stop()
                nursery.cancel_scope.cancel()


async def look(reader: GatewayReader, start: Offset) -> tuple[list[int], Offset]:
    """The offsets of what it reads, and where that ends."""
    batches, end = await trio.to_thread.run_sync(reader.read, start)
    return numbers(batches), end


async def again(reader: GatewayReader, start: Offset, end: Offset) -> list[int]:
    return numbers(await trio.to_thread.run_sync(lambda: list(reader.readBetweenOffsets(start, end))))


def numbers(batches: Any) -> list[int]:
    return [number for batch in batches for number in batch.column("_offset").to_pylist()]


async def test_it_reads_at_most_what_it_may_and_says_where_it_is() -> None:
    async with bench(config(NEWS)) as found:
        reader = found.reader(max=4)
        start = reader.initialOffset()
        assert start == {"start": "earliest"}
        await found.publish(0, 10)
        got, one = await look(reader, start)
        assert (got, one["positions"]) == ([0, 1, 2, 3], {"0": 4})
        got, two = await look(reader, one)
        got_again, _ = await look(reader, one)
        assert got == got_again == [4, 5, 6, 7]
        got, three = await look(reader, two)
        assert (got, three["positions"]) == ([8, 9], {"0": 10})
        assert await look(reader, three) == ([], three)
        await found.publish(10, 1)
        assert (await look(reader, three))[0] == [10]


async def test_columns_are_those_of_the_schema() -> None:
    async with bench(config(NEWS)) as found:
        await found.scripted["news"].publish([b"v", None], keys=[b"k", None], timestamp=1_500)
        await found.scripted["news"].publish([b"w"])
        batches, _ = await trio.to_thread.run_sync(found.reader().read, {"start": "earliest"})
        rows = [row for batch in batches for row in batch.to_pylist()]
        assert [row["_timestamp"] and row["_timestamp"].timestamp() for row in rows] == [1.5, 1.5, None]
        assert [(row["key"], row["value"], row["_partition"], row["_offset"]) for row in rows] == [
            (b"k", b"v", 0, 0),
            (None, None, 0, 1),
            (None, b"w", 0, 2),
        ]


async def test_latest_begins_with_a_batch_without_rows_that_nothing_can_move() -> None:
    async with bench(config(NEWS)) as found:
        await found.publish(0, 3)
        reader = found.reader(start="latest")
        start = reader.initialOffset()
        got, one = await look(reader, start)
        assert (got, one["positions"]) == ([], {"0": 3})
        await found.publish(3, 2)
        assert await again(found.reader(start="latest"), start, one) == []
        assert (await look(reader, one))[0] == [3, 4]


@pytest.mark.parametrize("replayable", [False, True])
async def test_between_two_offsets_is_exactly_what_was_there(replayable: bool) -> None:
    async with bench(config(NEWS), replayable=replayable) as found:
        for first in range(6):
            await found.publish(first * 10, 10, partition=first % 2)
        reader = found.reader(max=25)
        offsets = [reader.initialOffset()]
        got: list[Any] = []
        while len(got) < 3:
            rows, end = await look(reader, offsets[-1])
            got.append(sorted(rows))
            offsets.append(end)
        for index, rows in enumerate(got):  # as a new process is asked after a crash
            assert sorted(await again(found.reader(), offsets[index], offsets[index + 1])) == rows
        assert sorted(await again(found.reader(), offsets[0], offsets[3])) == sorted(itertools.chain(*got))
        assert found.losses == []


async def test_history_gives_what_the_window_no_longer_has() -> None:
    async with bench(config(NEWS, more=SMALL), replayable=True) as found:
        await found.publish(0, 5)
        reader = found.reader()
        _, start = await look(reader, {"start": "earliest"})
        for first in range(5, 105, 10):
            await found.publish(first, 10)
        got: list[int] = []
        here = start
        while here["positions"] != {"0": 105}:
            rows, here = await look(reader, here)
            got += rows
        assert got == list(range(5, 105))
        assert await again(found.reader(), start, here) == got
        assert found.losses == []


async def test_what_the_window_no_longer_has_is_said_once_and_the_rest_is_given() -> None:
    async with bench(config(NEWS, more=SMALL)) as found:
        await found.publish(0, 4)
        _, start = await look(found.reader(), {"start": "earliest"})
        for first in range(4, 20, 4):
            await found.publish(first, 4)
        end = {**start, "positions": {"0": 16}}
        assert await again(found.reader(), start, end) == [12, 13, 14, 15]
        assert found.losses == [Gap({0: (4, 11)}, None)]


async def test_one_that_must_be_exact_fails_where_history_is_gone() -> None:
    async with bench(config(NEWS, more=SMALL), replayable=True) as found:
        await found.publish(0, 4)
        _, start = await look(found.reader(), {"start": "earliest"})
        for first in range(4, 40, 4):
            await found.publish(first, 4)
        found.scripted["news"].history.delete(0, 10)
        end = {**start, "positions": {"0": 16}}
        strict = found.reader(failOnDataLoss="true")
        with pytest.raises(EventsLost):
            await again(strict, start, end)
        with pytest.raises(EventsLost):
            await look(strict, start)
        found.losses.clear()  # where what is known of the source is a moment old, it is found out by reading
        assert await again(found.reader(), start, end) == list(range(10, 16))
        assert [gap.ranges for gap in found.losses] == [{0: (4, 9)}]


async def test_a_source_that_begins_anew_is_read_from_its_beginning() -> None:
    async with bench(config(NEWS)) as found:
        reader = found.reader()
        await found.publish(0, 3)
        _, one = await look(reader, {"start": "earliest"})
        await found.publish(3, 2)
        await found.reload(config("id: news, note: other"))
        got, two = await look(reader, one)  # the rest of what it was
        assert (got, two["epoch"]) == ([3, 4], one["epoch"])
        await found.publish(5, 2)
        while (found_now := await look(reader, two))[0] == []:  # it says first that it is over
            two = found_now[1]
        got, three = found_now
        assert got == [5, 6]
        assert three["epoch"] != two["epoch"]
        assert found.losses == []  # of its former life everything was read
        # A crash now: of the former life nothing is left, of the new one all.
        assert await again(found.reader(), one, two) == []
        assert await again(found.reader(), two, three) == [5, 6]
        assert found.losses == [Gap({}, None)]
        # And a query that was away meanwhile.
        assert (await look(found.reader(), one))[0] == [5, 6]
        assert found.losses == [Gap({}, None)] * 2


async def test_a_source_that_is_away_is_waited_for() -> None:
    async with bench(config(NEWS)) as found:
        reader = found.reader()
        await found.publish(0, 3)
        _, one = await look(reader, {"start": "earliest"})
        await found.reload(config())
        here = one
        for _ in range(3):
            got, here = await look(reader, here)
            assert (got, here) == ([], one)
        await found.reload(config(NEWS))
        await found.publish(3, 2)
        assert (await look(reader, here))[0] == [3, 4]


async def test_a_finite_source_is_read_to_its_end() -> None:
    async with bench(config(NEWS)) as found:
        reader = found.reader(max=2)
        await found.publish(0, 1)
        rows, here = await look(reader, reader.initialOffset())
        await found.publish(1, 4)
        await found.scripted["news"].end()
        for _ in range(4):
            more, here = await look(reader, here)
            rows += more
        assert rows == [0, 1, 2, 3, 4]
        assert found.losses == []


async def test_a_gateway_that_is_away_is_waited_for_and_a_wrong_token_gets_nothing() -> None:
    async with bench(config(NEWS)) as found:
        away = found.reader(bridge="/nowhere/bridge", patience=0)
        here = {"epoch": "e", "positions": {"0": 1}}
        assert await look(away, here) == ([], here)
        with pytest.raises(BridgeAway):
            await again(away, here, {"epoch": "e", "positions": {"0": 2}})
        assert await look(found.reader(token="guessed"), here) == ([], here)


async def test_all_there_is_for_a_query_that_runs_once() -> None:
    async with bench(config(NEWS, more=SMALL), replayable=True) as found:
        for first in range(0, 50, 10):
            await found.publish(first, 10)
        got, end = await look(found.reader(max=0), {"start": "earliest"})
        assert (got, end["positions"]) == (list(range(50)), {"0": 50})


async def test_it_keeps_nothing_of_looks_that_found_nothing() -> None:
    async with bench(config(NEWS)) as found:
        keeps = _Prefetching(found.reader())
        first = await trio.to_thread.run_sync(keeps.latestOffset)
        for _ in range(5):
            assert await trio.to_thread.run_sync(keeps.latestOffset) == first
        assert len(keeps.cache) == 1
        await found.publish(0, 3)
        end = await trio.to_thread.run_sync(keeps.latestOffset)
        assert numbers(keeps.getCache(first, end)) == [0, 1, 2]


async def test_connections_that_say_nothing_sensible_are_closed() -> None:
    async with bench(config(NEWS)) as found:
        for data in (b"\xff" * 9, b"\x00\x00\x00\x03\x02{}", b"GET / HTTP/1.1\r\n\r\n"):
            async with await trio.open_unix_socket(found.socket) as stream:
                await stream.send_all(data)
                assert await stream.receive_some() == b""
        bridge = await trio.to_thread.run_sync(Bridge, found.socket, TOKEN)
        with bridge, pytest.raises(BridgeAway):
            await trio.to_thread.run_sync(bridge.take, 5)
