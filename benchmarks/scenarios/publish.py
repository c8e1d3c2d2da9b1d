"""How fast records can be written by a client of the gateway."""

from __future__ import annotations

from benchmarks.errors import RunVoid
from benchmarks.lab import RUN_SECONDS, Lab
from benchmarks.process import started
from benchmarks.procfs import Meter
from benchmarks.scenario import Figures, Goal, Scenario
from benchmarks.serving import START_SECONDS
from benchmarks.sizes import Sizes

_KEYS = 100


async def publish(lab: Lab, sizes: Sizes) -> Figures:
    """Have one connection send all of them without waiting, after those of the warm-up."""
    async with lab.topics(sizes) as topics, lab.gateway(sizes, topics) as server:
        assert server.pid is not None
        settings = {
            "host": server.host,
            "port": server.port,
            "source": topics[0],
            "size": sizes.size,
            "keys": _KEYS,
        }
        for records in (sizes.warm, sizes.records):
            async with started("publisher", settings | {"records": records}, lab.new_folder()) as publisher:
                await publisher.hear("ready", START_SECONDS)
                meter = Meter({"server": server.pid})
                await publisher.tell()
                said = await publisher.hear_any(RUN_SECONDS)
                used = meter.used()["server"]
            if said["faults"]:
                raise RunVoid("; ".join(said["faults"]))
    lab.note.line({"system": "gateway", **said, "server_cpu": used})
    return {
        "published": said["published"] / said["seconds"],
        "published per cpu second": said["published"] / max(used, 0.01),
    }


SCENARIOS = (
    Scenario(
        name="publish",
        says="PUBLISH of 200 bytes, pipelined on one connection of Lenses' v1, acks=all",
        measure=publish,
        sizes=Sizes(size=200, source={"publish": True}, settings={"lenses": {"enabled": True}}),
        goals=(Goal("published", "/s", at_least=20_000), Goal("published per cpu second", "/s")),
        small={"records": 1_000, "warm": 400},
    ),
)
