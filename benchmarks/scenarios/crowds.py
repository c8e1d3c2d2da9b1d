"""Many connections: what they cost when nothing happens, how fast they come, and what they cost when they
do not read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import trio

from benchmarks import procfs
from benchmarks.errors import RunVoid
from benchmarks.lab import RUN_SECONDS, Lab, all_sent, finished, made
from benchmarks.process import started
from benchmarks.procfs import Meter
from benchmarks.scenario import Figures, Goal, Scenario
from benchmarks.serving import START_SECONDS
from benchmarks.sizes import Sizes

_KIB = 1024
_MIB = 1024 * 1024


async def idle(lab: Lab, sizes: Sizes) -> Figures:
    """Subscribe everyone and produce nothing for a while; then everyone gets a few records."""
    async with lab.topics(sizes) as topics, lab.gateway(sizes, topics) as server:
        assert server.pid is not None
        empty = procfs.resident_bytes(server.pid)
        async with (
            lab.producer(sizes, topics) as producer,
            lab.load(sizes, server, topics) as load,
        ):
            full = procfs.resident_bytes(server.pid)
            meter = Meter({"server": server.pid})
            await trio.sleep(sizes.seconds)  # what is measured is this time
            used = meter.used()["server"]
            run = lab.checked("gateway", sizes, await lab.measure(sizes, load, producer, server.pid))
    return {
        "memory per connection": (full - empty) / sizes.subscribers / _KIB,
        "cpu": used / sizes.seconds,
        "empty gateway": empty / _MIB,
        "first event to the last client": run.seconds,
    }


async def churn(lab: Lab, sizes: Sizes) -> Figures:
    """Run dialers that open and subscribe; then such that also close, and come again."""
    found: dict[str, float] = {}
    async with lab.topics(sizes) as topics, lab.gateway(sizes, topics) as server:
        assert server.pid is not None
        for stay in (True, False):
            settings = {
                "host": server.host,
                "port": server.port,
                "source": topics[0],
                "dialers": sizes.subscribers,
                "connections": sizes.records,
                "stay": stay,
            }
            lab.note.say("  open" if stay else "  open and close")
            async with started("dialers", settings, lab.new_folder()) as dialers:
                meter = Meter({"server": server.pid})
                said = await dialers.hear("opened", RUN_SECONDS)
                used = meter.used()["server"]
            what = "opened" if stay else "opened and closed"
            lab.note.line({"system": "gateway", "what": what, **said, "server_cpu": used})
            if said["faults"]:
                raise RunVoid("; ".join(said["faults"]))
            found[what] = said["opened"] / said["seconds"]
            found[f"cpu of one {what}"] = used / said["opened"] * 1e3
    return found


async def stalled(lab: Lab, sizes: Sizes) -> Figures:
    """Fill the window. The stalled clients come, do not read while records are produced, and read in the end.
    What they get and what their notices say is lost is all there was."""
    first = sizes.warm
    async with lab.topics(sizes) as topics, lab.gateway(sizes, topics) as server:
        assert server.pid is not None
        async with lab.producer(sizes, topics) as producer:
            one = replace(sizes, subscribers=1, stalled=0)
            async with lab.load(one, server, topics, total=first) as witness:
                await producer.tell()
                await all_sent(producer)
                await witness.hear("warm", RUN_SECONDS)
            full, kernel = procfs.resident_bytes(server.pid), procfs.tcp_bytes()
            async with lab.load(sizes, server, topics, first=first) as load:
                await load.hear("warm", START_SECONDS)
                meter = Meter({"server": server.pid})
                await producer.tell()
                begun = (await producer.hear_any(START_SECONDS))["started"]
                done = await finished(load, RUN_SECONDS + sizes.seconds)
                used = meter.used()
                behind, held = procfs.resident_bytes(server.pid), procfs.tcp_bytes()
                await load.tell("read")
                drained = await load.hear("drained", RUN_SECONDS)
                after = procfs.resident_bytes(server.pid)
                result = await load.hear("result", RUN_SECONDS)
    run = made(sizes, result, done, begun, used, {})
    lab.checked("gateway", sizes, run, rss=[full, behind, after], tcp=[kernel, held])
    return {
        "memory beyond the window": (behind - full) / _MIB,
        "memory after they have read": (after - full) / _MIB,
        "kernel, each, both ends": (held - kernel) / sizes.stalled / _KIB,
        "disconnected": sizes.stalled - result["stalled_intact"],
        "given up, each": result["given_up"] / sizes.stalled,
        "until all have read": drained - done["done"],
        "server cpu per delivery": run.cpu_each,
    }


_DROPS = {"overflow": "drop_oldest"}
_WINDOW = {"events": 65_536, "bytes": 64 * _MIB, "memory_bytes": 512 * _MIB}
"""As by default, whatever the sizes of the run."""

_STALLED = (
    Goal("memory beyond the window", "MiB", at_most=64.0),
    Goal("kernel, each, both ends", "KiB", at_most=200.0),
    Goal("disconnected", at_most=0),
    Goal("given up, each"),
    Goal("memory after they have read", "MiB"),
    Goal("until all have read", "s"),
    Goal("server cpu per delivery", "us"),
)
_MANY_STALLED = Sizes(
    subscribers=1,
    stalled=1_000,
    rate=2_000,
    seconds=60.0,
    warm=70_000,
    subscribe=_DROPS,
    settings={"window": _WINDOW},
)
_FEW_STALLED: Mapping[str, object] = {"stalled": 10, "rate": 5_000, "seconds": 2.0, "warm": 1_000}
_FEW_WINDOW = {"window": _WINDOW | {"events": 2_000}}
_LENSES = {"lenses": {"enabled": True}}

SCENARIOS = (
    Scenario(
        name="idle",
        says="5,000 connections with one subscription each, nothing produced",
        measure=idle,
        sizes=Sizes(subscribers=5_000, records=10, warm=1, seconds=30.0),
        goals=(
            Goal("memory per connection", "KiB", at_most=11.0),
            Goal("cpu", "%", at_most=0.03),
            Goal("empty gateway", "MiB"),
            Goal("first event to the last client", "s"),
        ),
        small={"subscribers": 50, "seconds": 1.0},
    ),
    Scenario(
        name="churn",
        says="connections opened and subscribed by 64 concurrent dialers",
        measure=churn,
        sizes=Sizes(subscribers=64, records=8_000),
        goals=(
            Goal("opened", "/s", at_least=1_400),
            Goal("cpu of one opened", "ms"),
            Goal("opened and closed", "/s"),
        ),
        small={"subscribers": 8, "records": 100},
    ),
    Scenario(
        name="stalled-1000",
        says="1,000 subscribers that do not read for 60 s while 2,000 records/s are produced, then do",
        measure=stalled,
        sizes=_MANY_STALLED,
        goals=_STALLED,
        small={**_FEW_STALLED, "settings": _FEW_WINDOW},
        repeat=1,
    ),
    Scenario(
        name="stalled-lenses",
        says="the same with 1,000 clients of Lenses' v1, who may each own the rest of one KAFKAMSG",
        measure=stalled,
        sizes=replace(
            _MANY_STALLED,
            protocol="lenses",
            subscribe={},
            source={"subscriber": _DROPS},
            settings={"window": _WINDOW, **_LENSES},
        ),
        goals=_STALLED,
        small={**_FEW_STALLED, "settings": {**_FEW_WINDOW, **_LENSES}},
        repeat=1,
    ),
)
