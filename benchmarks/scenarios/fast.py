"""As many records as fit through: every subscriber gets every one of them."""

from __future__ import annotations

from benchmarks.scenario import Goal, Scenario
from benchmarks.sizes import Sizes
from benchmarks.throughput import compare

_SMALL = {"subscribers": 5, "records": 2_000, "warm": 400, "peer_part": 4, "slices": (65_536,)}


def _fan_out(ceiling: float | None, peer: float | None) -> tuple[Goal, ...]:
    return (
        Goal("deliveries", "/s"),
        Goal("deliveries per cpu second", "/s"),
        Goal("server cpu per delivery", "us"),
        Goal("of the ceiling", "%", at_least=ceiling),
        Goal("of the ceiling, by cpu", "%"),
        Goal("of the best ceiling", "%"),
        Goal("times the peer", "x", at_least=peer),
        Goal("times the peer, by cpu", "x"),
        Goal("load client alone", "x", at_least=2.0),
    )


SCENARIOS = (
    Scenario(
        name="fanout",
        says="every record to 100 push subscribers",
        measure=compare("gateway", "ceiling", "best ceiling", "peer"),
        sizes=Sizes(peer_part=20),
        goals=_fan_out(0.6, 40.0),
        small=_SMALL,
    ),
    Scenario(
        name="fanout-1000",
        says="every record to 1,000 push subscribers",
        measure=compare("gateway", "ceiling", "best ceiling", "peer"),
        sizes=Sizes(subscribers=1_000, records=10_000, warm=1_000, peer_part=20),
        goals=_fan_out(0.6, 45.0),
        small=_SMALL | {"subscribers": 50, "records": 500},
    ),
    Scenario(
        name="fanout-pinned",
        says="as `fanout`, the server alone on one core, everything else on the other",
        measure=compare("gateway", "ceiling", "peer"),
        sizes=Sizes(peer_part=20, pin=True),
        goals=(
            Goal("deliveries", "/s"),
            Goal("server cpu per delivery", "us"),
            Goal("of the ceiling", "%"),
            Goal("of the ceiling, by cpu", "%"),
            Goal("times the peer", "x"),
            Goal("times the peer, by cpu", "x"),
        ),
        small=_SMALL,
    ),
    Scenario(
        name="single",
        says="every record to one push subscriber",
        measure=compare("gateway", "ceiling", "best ceiling", "peer", "getmany"),
        sizes=Sizes(subscribers=1, records=400_000, peer_part=4),
        goals=(
            Goal("records", "/s"),
            Goal("deliveries per cpu second", "/s"),
            Goal("server cpu per delivery", "us"),
            Goal("of getmany", "%", at_least=0.5),
            Goal("of getmany, by cpu", "%"),
            Goal("times the peer", "x", at_least=12.0),
            Goal("times the peer, by cpu", "x"),
            Goal("load client alone", "x", at_least=2.0),
        ),
        small=_SMALL | {"subscribers": 1},
    ),
    Scenario(
        name="pull-1000",
        says="every record to 100 pull subscribers, credits of 1,000 renewed at half",
        measure=compare("gateway", "push"),
        sizes=Sizes(mode="pull", credits=1_000),
        goals=(
            Goal("deliveries", "/s"),
            Goal("server cpu per delivery", "us"),
            Goal("of push", "%", at_least=0.6),
            Goal("of push, by cpu", "%"),
        ),
        small=_SMALL | {"credits": 100},
    ),
    Scenario(
        name="pull-10000",
        says="every record to 100 pull subscribers, credits of 10,000 renewed at half",
        measure=compare("gateway", "push"),
        sizes=Sizes(mode="pull", credits=10_000),
        goals=(
            Goal("deliveries", "/s"),
            Goal("server cpu per delivery", "us"),
            Goal("of push", "%", at_least=0.9),
            Goal("of push, by cpu", "%"),
        ),
        small=_SMALL,
    ),
    Scenario(
        name="tls",
        says="as `fanout`, over TLS",
        measure=compare("gateway", "plain"),
        sizes=Sizes(tls=True),
        goals=(
            Goal("deliveries", "/s"),
            Goal("server cpu per delivery", "us"),
            Goal("of plain", "%", at_least=0.5),
            Goal("of plain, by cpu", "%"),
            Goal("client headroom", "x"),
        ),
        small=_SMALL,
    ),
    Scenario(
        name="overhead",
        says="as `fanout`, with metrics and limits against without",
        measure=compare("gateway", "bare gateway"),
        sizes=Sizes(),
        goals=(
            Goal("server cpu per delivery", "us"),
            Goal("of bare", "%", at_least=0.97),
            Goal("of bare, by cpu", "%"),
        ),
        small=_SMALL,
        needs="metrics",
    ),
)
