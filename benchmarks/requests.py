"""REQUESTs alone and the same every time: read, checked, granted, answered, and what they let out sent,
through the connection of a Kiwi client to a socket that takes everything. Without event loop and kernel, so
that nothing but the gateway's own work is counted.

`python -m benchmarks hot-path` takes its time.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterable
from typing import Final, cast

from benchmarks.frames import masked
from benchmarks.hot_path import INFO, Memory, batch, no_task
from kiwi_gw.core.encoding import EncodingMemo
from kiwi_gw.core.hub_limits import HubLimits
from kiwi_gw.core.publishing import publish
from kiwi_gw.core.round_budget import RoundBudget
from kiwi_gw.core.source_hub import SourceHub
from kiwi_gw.core.window import MemoryBudget
from kiwi_gw.dialect_api import SessionLimits
from kiwi_gw.dialects.kiwi.dialect import KiwiDialect
from kiwi_gw.edge.frame_reader import FrameReader
from kiwi_gw.edge.websocket import ClientInput
from kiwi_gw.edge.websocket_writer import WebSocketWriter
from kiwi_gw.model import ANONYMOUS, HeadCredential, SourceInfo
from kiwi_gw.plugin_manager import PluginManager
from kiwi_gw.runtime.command_scheduler import TimeAllowance
from kiwi_gw.runtime.connection import Connection
from kiwi_gw.runtime.delivery_turns import DeliveryTurns
from kiwi_gw.runtime.hooks import Hooks
from kiwi_gw.runtime.meters import Meters
from kiwi_gw.runtime.ports import GatewayContext

_MIB: Final = 1024 * 1024
_CLIENTS: Final = 100
_BATCH: Final = 400
N: Final = 500
"""What a REQUEST asks for."""
_PUSH = masked({"type": "SUBSCRIBE", "sourceId": INFO.id})
_PULL = masked({"type": "SUBSCRIBE", "sourceId": INFO.id, "mode": "pull"})
_REQUEST = masked({"type": "REQUEST", "sourceId": INFO.id, "n": N})
_HEAD = HeadCredential("GET", "/", "", ())


class NoQueries:
    """Stand for the queries over whole sources: there are none."""

    def of(self, hub: SourceHub) -> None:
        return None


class Context:
    """Stand for the gateway, with one source. Implements as much of `runtime.ports.GatewayContext` as pull
    subscriptions need."""

    refusing = False

    def __init__(self) -> None:
        self.meters = Meters(10)
        self.hooks = Hooks(PluginManager())
        self.clock = time.monotonic
        self.rounds = RoundBudget()
        budget = MemoryBudget(512 * _MIB)
        self._hub = SourceHub(INFO, HubLimits(), EncodingMemo(64 * _MIB, budget), budget, self.clock)
        self.engine_queries = NoQueries()
        self._hub.started(dict.fromkeys(range(4), 0))

    def hub(self, source_id: str) -> SourceHub:
        return self._hub

    def sources(self) -> Iterable[SourceInfo]:
        return [INFO]


class Client:
    """Hold one connection."""

    def __init__(self, number: int, context: Context) -> None:
        self._context = context
        turns = DeliveryTurns(context.rounds, lambda: False)
        writer = WebSocketWriter(Memory(), no_task, context.clock, turns)
        session = KiwiDialect().open_session(_HEAD, {}, ANONYMOUS, SessionLimits(requests_per_second=0))
        surroundings = cast(GatewayContext, context)
        self.connection = Connection(
            number, surroundings, session, writer, ANONYMOUS, "kiwi", "", 0.0, lambda: None
        )
        frames = FrameReader(64 * 1024, counts=context.meters.frames("kiwi"))
        allowance = TimeAllowance(RoundBudget())
        self._input = ClientInput(self.connection, writer, frames, context.meters, allowance)
        self.connection.start()

    def send(self, data: bytes) -> None:
        """Send in a round of its own."""
        self._context.rounds.renew(0.0)
        for _ in self._input.take(data):
            pass

    @property
    def received(self) -> int:
        return sum(each.delivery.matched for each in self.connection.subscriptions.values())


def ask(rounds: int, events: int) -> float:
    """Return the seconds of CPU time that a REQUEST takes, in the best round: each of 100 clients asks once.
    events: that there are, each for every client.

    Raises:
        RuntimeError: a client was not sent what it has asked for.
    """
    context = Context()
    clients = [Client(number, context) for number in range(_CLIENTS)]
    for client in clients:
        client.send(_PULL)
    Client(_CLIENTS, context).send(_PUSH)  # has everything encoded before anyone asks for it
    for number in range(events // _BATCH):
        for _ in publish(context.hub(""), batch(number, _BATCH)):
            pass
    spent = math.inf
    for _ in range(rounds):
        began = time.process_time()
        for client in clients:
            client.send(_REQUEST)
        spent = min(spent, time.process_time() - began)
    if any(client.received != min(events // _BATCH * _BATCH, rounds * N) for client in clients):
        raise RuntimeError("not everyone was sent what was asked for")
    return spent / _CLIENTS
