"""What Kafka still has: read by one that is far behind, and by everyone at once."""

from __future__ import annotations

from dataclasses import replace

from benchmarks.errors import RunVoid
from benchmarks.lab import RUN_SECONDS, Lab, all_sent, finished, made
from benchmarks.procfs import Meter
from benchmarks.records import offsets
from benchmarks.run import Run
from benchmarks.scenario import Figures, Goal, Scenario
from benchmarks.serving import START_SECONDS
from benchmarks.sizes import Sizes
from benchmarks.throughput import figures, read_file, run
from benchmarks.workers.child import now


async def replay(lab: Lab, sizes: Sizes) -> Figures:
    """Measure live traffic alone, and again while one client reads everything from the beginning; then only
    the latter."""
    alone, _ = await _live(lab, sizes, behind=False)
    beside, rate = await _live(lab, sizes, behind=True)
    only = await from_the_beginning(lab, replace(sizes, rate=0, warm=1_000, records=sizes.warm))
    return {
        "caught up": rate,
        "server cpu per delivery": only.cpu_each,
        "live p99 beside it": beside,
        "live p99 without": alone,
        "live p99 beside / without": beside / max(alone, 0.01),
    }


async def _live(lab: Lab, sizes: Sizes, *, behind: bool) -> tuple[float, float]:
    """Return the p99 of live traffic (ms). Also how many records per second the client that was behind read
    until it had all that were there when it came (0 if there is none)."""
    lab.note.say("  beside a replay" if behind else "  live alone")
    backlog, rate = sizes.warm, 0.0
    async with lab.topics(sizes) as topics, lab.producer(sizes, topics) as producer:
        await producer.tell()
        await all_sent(producer)
        async with (
            lab.gateway(sizes, topics) as server,
            lab.load(sizes, server, topics, first=backlog) as live,
        ):
            await live.hear("warm", START_SECONDS)
            await producer.tell()
            begun = (await producer.hear_any(START_SECONDS))["started"]
            if behind:
                one = replace(sizes, subscribers=1, delays=0, subscribe={"from": "earliest"})
                async with lab.load(one, server, topics) as reader:
                    came = now()
                    rate = backlog / (await reader.hear("warm", RUN_SECONDS) - came)
                    await finished(reader)
                    faults = (await reader.hear("result", RUN_SECONDS))["faults"]
                    if faults:
                        raise RunVoid(f"the one that was behind: {'; '.join(faults)}")
            done = await finished(live)
            result = await live.hear("result", RUN_SECONDS)
            late = (await producer.hear_any(START_SECONDS))["late"]
    measured = lab.checked(
        "gateway", sizes, made(sizes, result, done, begun, {}, late), behind=behind, caught_up=rate
    )
    return measured.delays["p99"], rate


async def from_the_beginning(lab: Lab, sizes: Sizes) -> Run:
    """Let one client read a topic from its beginning, all of it from Kafka's history: it was filled before
    the gateway began."""
    lab.note.say("  a replay alone")
    sizes = replace(sizes, subscribers=1, delays=0, subscribe={"from": "earliest"})
    filled = replace(sizes, warm=sizes.total)
    async with lab.topics(sizes) as topics, lab.producer(filled, topics, total=sizes.total) as producer:
        await producer.tell()
        await all_sent(producer)
        async with lab.gateway(sizes, topics) as server, lab.load(sizes, server, topics) as load:
            assert server.pid is not None
            begun = await load.hear("warm", START_SECONDS)
            meter = Meter({"server": server.pid})
            done, used = await finished(load), meter.used()
            result = await load.hear("result", RUN_SECONDS)
    return lab.checked("gateway", sizes, made(sizes, result, done, begun, used, {}), replay=True)


async def compared(lab: Lab, sizes: Sizes) -> Figures:
    """Compare a replay to one client with what the peer, which has none, gives one client live."""
    return figures({"gateway": await from_the_beginning(lab, sizes), "peer": await run(lab, "peer", sizes)})


async def herd(lab: Lab, sizes: Sizes) -> Figures:
    """Let clients that had the first records resume behind them at a new gateway, while Kafka has many more:
    one of them alone, then all."""
    async with lab.topics(sizes) as topics:
        async with lab.producer(sizes, topics) as producer:
            async with (
                lab.gateway(sizes, topics) as server,
                lab.load(sizes, server, topics, total=sizes.warm) as load,
            ):
                await producer.tell()
                await all_sent(producer)
                await load.hear("warm", RUN_SECONDS)
            await producer.tell()
            await all_sent(producer)
        alone, _ = await _resumed(lab, replace(sizes, subscribers=1), topics)
        everyone, one = await _resumed(lab, sizes, topics)
    return {
        "Kafka bytes, of one client's": everyone / alone,
        "until all are live": one.seconds,
        "server cpu per delivery": one.cpu_each,
    }


async def _resumed(lab: Lab, sizes: Sizes, topics: list[str]) -> tuple[int, Run]:
    """Return the bytes that a fresh gateway read from Kafka, and the run, from its start until all had
    everything."""
    lab.note.say(f"  {sizes.subscribers:,} resume")
    next_offsets = offsets([0] * sizes.partitions, sizes.warm)
    positions = {str(partition): offset for partition, offset in enumerate(next_offsets)}
    again = replace(sizes, subscribe={"from": {"positions": positions}})
    counts = lab.new_folder() / "counts"
    async with lab.gateway(sizes, topics, ("benchmarks.workers.counted_gateway", str(counts))) as server:
        assert server.pid is not None
        begun, meter = now(), Meter({"server": server.pid})
        async with lab.load(again, server, topics, first=sizes.warm) as load:
            await load.hear("warm", START_SECONDS)
            done, used = await finished(load), meter.used()
            result = await load.hear("result", RUN_SECONDS)
        found = await read_file(server, counts)
    one = made(sizes, result, done, begun, used, {})
    return found["kafka"], lab.checked("gateway", sizes, one, kafka_bytes=found["kafka"])


SCENARIOS = (
    Scenario(
        name="replay",
        says="one client a million records behind catches up while 500 records/s go to 10 others",
        measure=replay,
        sizes=Sizes(subscribers=10, warm=1_000_000, rate=500, seconds=20.0, delays=10),
        goals=(
            Goal("caught up", "/s", at_least=100_000),
            Goal("server cpu per delivery", "us"),
            Goal("live p99 beside / without", "x", at_most=1.5),
            Goal("live p99 beside it", "ms"),
            Goal("live p99 without", "ms"),
        ),
        small={"subscribers": 3, "warm": 5_000, "rate": 200, "seconds": 1.5, "delays": 3},
        needs="replay",
    ),
    Scenario(
        name="herd",
        says="1,000 clients resume at the same positions, 10,000 records back, after the gateway's restart",
        measure=herd,
        sizes=Sizes(subscribers=1_000, warm=4_000, records=10_000),
        goals=(
            Goal("Kafka bytes, of one client's", "x", at_most=2.0),
            Goal("until all are live", "s", at_most=10.0),
            Goal("server cpu per delivery", "us"),
        ),
        small={"subscribers": 10, "warm": 400, "records": 2_000},
        needs="replay",
    ),
)
