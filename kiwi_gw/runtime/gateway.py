"""The nursery tree, and what hangs on it: gateway > {services, sources, pulse, connections of the edge}.

The gateway owns the hubs. A source that fails is restarted without touching its subscribers'
connections; a connection that fails takes only itself. Configuration is applied by difference.
"""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Hashable, Iterable
from contextlib import asynccontextmanager
from functools import partial

import structlog
import trio

from kiwi_gw.api import PluginContext, Source, SourceContext
from kiwi_gw.config import ConfigDifference, LimitSettings, LoadedConfig, diff
from kiwi_gw.core.accounts import COMPILING_SAVED_SECONDS, AccountCache, ClientAccount, SharedAccount
from kiwi_gw.core.commands import Commit, LogIn
from kiwi_gw.core.encoding import EncodingMemo
from kiwi_gw.core.evaluation import Evaluations
from kiwi_gw.core.evaluation_costs import CpuShares
from kiwi_gw.core.hub_limits import HubState
from kiwi_gw.core.round_budget import RoundBudget
from kiwi_gw.core.source_hub import SourceHub
from kiwi_gw.core.window import MemoryBudget
from kiwi_gw.errors import PluginError
from kiwi_gw.model import CloseReason, Credential, Identity, Password, Refusal, SourceInfo
from kiwi_gw.runtime.command_scheduler import CommandScheduler
from kiwi_gw.runtime.commits import commit
from kiwi_gw.runtime.connection import Connection
from kiwi_gw.runtime.continuations import Continuations
from kiwi_gw.runtime.delivery_turns import DeliveryTurns
from kiwi_gw.runtime.engine_queries import EngineQueries
from kiwi_gw.runtime.evaluator import Evaluator
from kiwi_gw.runtime.fan_out_pace import FanOutPace
from kiwi_gw.runtime.hooks import Hooks
from kiwi_gw.runtime.keepalive import Keepalive, unexpired
from kiwi_gw.runtime.login_guard import LoginGuard
from kiwi_gw.runtime.loop_rounds import renew_in_each_round
from kiwi_gw.runtime.memory_watch import MemoryWatch, Overload
from kiwi_gw.runtime.meters import Meters
from kiwi_gw.runtime.offloads import Offloads
from kiwi_gw.runtime.produce_queue import ProduceQueue
from kiwi_gw.runtime.reauthorization import Reauthorization
from kiwi_gw.runtime.refusal_log import login_refused
from kiwi_gw.runtime.reload_check import ReloadCheck
from kiwi_gw.runtime.request_load import RequestLoad
from kiwi_gw.runtime.services import Services
from kiwi_gw.runtime.source_metrics import SourceMetricValues
from kiwi_gw.runtime.source_plan import SourcePlan, limits_of, plan_of
from kiwi_gw.runtime.source_runner import SourceRunner
from kiwi_gw.runtime.warm_up import WarmUp

log = structlog.get_logger(__name__)

PULSE_SECONDS = 0.25
"""How often lags, deadlines and silent clients are looked for."""

_LOOK_SECONDS = 1.0
"""How often sources are looked at for stalls, and the memory."""

_ANNOUNCED_SOURCES = 100
"""Of more than these the log does not say one by one that they run."""


class Gateway:
    """All sources and connections of one process. `run` is its life; the rest is for the edge.

    clock: monotonic seconds, as messages come by. worker, workers: which of how many processes with this
    configuration it is. warm_up: done before clients are let in; None: they are from the start. memory:
    what all windows and encodings hold, and may hold. leaving: hubs of sources that are gone, while they are
    still read.
    """

    def __init__(
        self,
        loaded: LoadedConfig,
        clock: Callable[[], float] = time.monotonic,
        *,
        worker: int = 0,
        workers: int = 1,
        warm_up: WarmUp | None = None,
    ) -> None:
        self._warm_up = warm_up
        self.loaded = loaded
        self.clock = clock
        self._worker_of = (worker, workers)
        self._context = PluginContext({})  # of the configuration that the plugins know
        self.hooks = Hooks(loaded.plugins)
        self.connections: set[Connection] = set()
        self.meters = Meters(loaded.settings.metrics.max_sources)
        self.measured = loaded.settings.metrics.enabled
        self.draining = self._started = False
        self.request_load = RequestLoad()
        window, limits = loaded.settings.window, loaded.settings.server.limits
        self.memory = MemoryBudget(window.memory_bytes)
        percents = limits.queries_percent, limits.connection_queries_percent, limits.query_percent
        shares = CpuShares(*[percent / 100 for percent in percents])
        self._round_budget = RoundBudget()
        self.evaluations = Evaluations(shares, self._round_budget, clock)
        self._accounts: AccountCache[ClientAccount] = AccountCache()
        self.compiling = SharedAccount(limits.compiling_percent / 100, COMPILING_SAVED_SECONDS)
        self.offloads = Offloads(self._round_budget)
        self.command_scheduler = CommandScheduler(self._round_budget)
        self._continuations = Continuations(self._round_budget, clock)
        contenders = self.evaluations, self.command_scheduler, self._continuations
        self._fan_out_pace = FanOutPace(clock, self._round_budget, *contenders)
        self.delivery_turns = DeliveryTurns(self._round_budget, self._fan_out_pace.serves_writers)
        self.encodings = EncodingMemo(window.encodings_bytes, self.memory, _log_mistake, self.evaluations)
        self._runners: dict[str, SourceRunner] = {}
        self._known: set[str] = set()  # ids of all sources that there ever were
        self.leaving: list[SourceHub] = []
        self._numbers = itertools.count(1)
        self._login_guard = LoginGuard()
        self._left = trio.lowlevel.ParkingLot()
        self._nursery: trio.Nursery | None = None
        self._services = Services()
        parts = self.hooks, self._services, self.encodings, self.memory, self.meters, clock
        self.engine_queries = EngineQueries(*parts, self._fan_out_pace, lambda: (self.loaded, self._context))
        self.reload_check = ReloadCheck(self._services, self._worker_of)
        self._reauthorization = Reauthorization(self.hub, clock)
        self.keepalive = Keepalive(loaded.settings.server.limits)
        self.memory_watch = MemoryWatch(loaded.settings.server.limits, workers, self.encodings, self.memory)

    # --- life ------------------------------------------------------------------------------

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Serve until cancelled. `started` means that every source has its hub, not that it works."""
        self.hooks_configure(self.loaded)
        plans = [plan_of(entry, self.loaded) for entry in self.loaded.settings.sources.values()]
        async with trio.open_nursery() as outer:
            outer.start_soon(self._services.run)
            try:
                await self._services.started.wait()
                async with trio.open_nursery() as nursery:
                    self._nursery = nursery
                    for plan in plans:
                        self._start(plan)
                    nursery.start_soon(renew_in_each_round, self._round_budget)
                    nursery.start_soon(self._pulse)
                    nursery.start_soon(self._reauthorization.run)
                    nursery.start_soon(Evaluator(self.evaluations).run)
                    nursery.start_soon(self._continuations.run)
                    nursery.start_soon(self.delivery_turns.run)
                    nursery.start_soon(self.offloads.run)
                    nursery.start_soon(self.engine_queries.run)
                    task_status.started()
            finally:
                self._services.stop()

    async def drain(self, reason: str, within: float) -> None:
        """Say goodbye to every client and wait for those that answer, for `within` seconds at most. They
        learn when to come back, spread over a second per 1,000 of them."""
        self.draining = True
        for runner in self._runners.values():
            runner.tell()
        connections = list(self.connections)
        step = max(1.0, 1_000 / max(1, len(connections)))
        for index, connection in enumerate(connections):
            connection.drain(reason, retry_after_ms=100 + int(index * step))
            if index % 64 == 63:
                await trio.lowlevel.checkpoint()
        with trio.move_on_after(within):
            while self.connections:
                await self._left.park()

    def connection_opened(self, connection: Connection) -> None:
        """Count a client that is connected, under the rules of now."""
        self.connections.add(connection)
        self.meters.opened[connection.dialect] += 1
        self.keepalive.tell_of_expiry(connection, time.time())
        connection.reauthorize()  # it was on its way when the others were
        if self.draining:
            connection.drain("draining", retry_after_ms=100)

    def connection_closed(self, connection: Connection) -> None:
        """Count off a client that is gone, and has let go of everything."""
        if connection in self.connections:
            self.connections.remove(connection)
            writer = connection.writer
            lived = self.clock() - connection.opened_at
            self.meters.connection_over(connection.dialect, writer.close_code, lived, writer.sent_bytes)
        self._left.unpark_all()

    # --- configuration ---------------------------------------------------------------------

    def hooks_configure(self, loaded: LoadedConfig) -> None:
        """Tell the plugins. Raises PluginError if one refuses: the configuration is then not to be used."""
        self._context = loaded.context(*self._worker_of)
        try:
            loaded.plugins.hook.configure(context=self._context)
        except Exception as error:
            words = str(error) or type(error).__name__
            raise PluginError(f"a plugin refuses the configuration: {words}") from error

    def apply(self, loaded: LoadedConfig) -> ConfigDifference:
        """Change over to a valid configuration, by difference. Nothing is changed if a plugin refuses it."""
        try:
            self.hooks_configure(loaded)
            difference = diff(self.loaded.settings, loaded.settings, loaded.plugins.source_types())
            starting = (*difference.altered, *difference.added)
            plans = {
                key: plan_of(loaded.settings.sources[key], loaded, altered=key in self._known)
                for key in starting
            }
        except BaseException:
            self.hooks_configure(self.loaded)  # those that had agreed must go back
            raise
        self.loaded, self._started = loaded, self.started  # what a reload adds takes nobody out of service
        self.hooks.replace(loaded.plugins)
        self.keepalive.limits = self.memory_watch.limits = loaded.settings.server.limits
        self.engine_queries.tables_changed(difference)
        drain = loaded.settings.server.drain_ms / 1000
        for source_id in difference.removed:
            self._remove(source_id, CloseReason.REMOVED, "the source was removed", drain)
        for source_id in difference.altered:
            self._remove(source_id, CloseReason.ALTERED, "the source was altered", drain)
            self.meters.source(source_id).restarts["altered"] += 1
            self._start(plans[source_id])
        for source_id in difference.added:
            self._start(plans[source_id])
        self._reauthorization.ask(self.connections, starting)
        return difference

    # --- what connections need (runtime.ports.GatewayContext) -----------------------------

    @property
    def limits(self) -> LimitSettings:
        """What clients may cost, by the configuration in force."""
        return self.loaded.settings.server.limits

    @property
    def refusing(self) -> bool:
        """Whether memory is so short that no new client is let in."""
        return self.memory_watch.level is Overload.REFUSING

    def runner(self, source_id: str) -> SourceRunner | None:
        return self._runners.get(source_id)

    def hub(self, source_id: str) -> SourceHub | None:
        return runner.hub if (runner := self._runners.get(source_id)) is not None else None

    def sources(self) -> Iterable[SourceInfo]:
        return [runner.hub.info for runner in self._runners.values()]

    def account(self, who: Hashable) -> ClientAccount:
        """Give a connection of this client one that it has left behind and that is not full, or a new one."""
        return self._accounts.take(who, self.clock()) or ClientAccount(self.evaluations.shares.connection)

    def account_left(self, who: Hashable, account: ClientAccount) -> None:
        """Keep what a connection that is gone has left behind."""
        self._accounts.keep(who, account, self.clock())

    def call_later(self, request: LogIn, done: Callable[[Identity | Refusal], None]) -> None:
        async def ask() -> None:
            done(await self.authenticate(request.credential, request.within))

        self.spawn(ask)

    def spawn(self, task: Callable[[], Awaitable[None]]) -> None:
        if self._nursery is not None:
            self._nursery.start_soon(task)

    def running_source(self, source_id: str) -> object:
        return runner.source if (runner := self._runners.get(source_id)) is not None else None

    @property
    def write_seconds(self) -> float:
        return self.loaded.settings.server.publish_timeout_ms / 1000

    def produce_queue(self, source_id: str) -> ProduceQueue:
        return self._runners[source_id].produce_queue(self.spawn)

    def commit_later(self, command: Commit, within: float, done: Callable[[Refusal | None], None]) -> None:
        async def keep() -> None:
            source, meter = self.running_source(command.source_id), self.meters.source(command.source_id)
            done(await commit(source, command, within, meter))

        self.spawn(keep)

    def later(self, seconds: float, then: Callable[[], None]) -> None:
        async def wait() -> None:
            await trio.sleep(seconds)
            then()

        self.spawn(wait)

    def continue_later(self, seconds: float, then: Callable[[bool], None]) -> None:
        self._continuations.add(seconds, then)

    async def authenticate(self, credential: Credential, within: float = math.inf) -> Identity | Refusal:
        """Who is it? Takes at most `server.auth_timeout_ms`, and so many seconds."""
        deadline = min(within, self.loaded.settings.server.auth_timeout_ms / 1000)
        if isinstance(credential, Password):
            ask = partial(self.hooks.authenticate, credential, deadline)
            answer = await self._login_guard.check(credential, ask, self.clock)
        else:
            answer = await self.hooks.authenticate(credential, deadline)
        answer = unexpired(answer)
        self.meters.authentication_over(credential, answer)
        if isinstance(answer, Refusal):
            login_refused(credential, answer)
        return answer

    # --- what the edge needs ---------------------------------------------------------------

    def next_number(self) -> int:
        """Return a number for a connection, unique in this process."""
        return next(self._numbers)

    def runners(self) -> Iterable[SourceRunner]:
        return self._runners.values()

    async def wait_warmed_up(self) -> None:
        """Return when clients may be let in."""
        if self._warm_up is not None:
            await self._warm_up.wait()

    @property
    def started(self) -> bool:
        """Return whether clients are let in, and every source has worked once, or never will; it stays so."""
        warm = self._warm_up is None or self._warm_up.done
        worked = all(runner.hub.state is not HubState.STARTING for runner in self._runners.values())
        return self._started or (warm and worked)

    # --- inside ----------------------------------------------------------------------------

    def _start(self, plan: SourcePlan) -> None:
        entry, kind, loaded, context = plan.entry, plan.kind, self.loaded, self._context
        limits = limits_of(entry, loaded, kind.start_ms, replayable=plan.info.replayable)
        hub = SourceHub(plan.info, limits, self.encodings, self.memory, self.clock)

        @asynccontextmanager
        async def build() -> AsyncIterator[Source]:
            kinds = loaded.plugins.service_types()
            async with self._services.use(kinds, plan.services, context) as values:
                own = SourceContext(entry.id, context, values, plan.altered, runner.metrics)
                yield kind.build(entry.settings, own)

        def changed(message: str) -> None:
            if self._runners.get(entry.id) is not runner:
                return  # it was stopped meanwhile: its hub is seen to
            # The old hub drains; a new one takes its place and its id.
            drain = self.loaded.settings.server.drain_ms / 1000
            self._remove(entry.id, CloseReason.CHANGED, message, drain)
            self.meters.source(entry.id).restarts["changed"] += 1
            self._start(plan)
            self._reauthorization.ask(self.connections, (entry.id,), reauthorize=False)

        meter = self.meters.source(entry.id) if self.measured else None
        self._known.add(entry.id)
        quiet = len(loaded.settings.sources) > _ANNOUNCED_SOURCES
        metrics = SourceMetricValues(kind.metrics, meter)
        runner = SourceRunner(hub, build, changed, self._fan_out_pace, meter, metrics, quiet=quiet)
        self._runners[entry.id] = runner
        self.spawn(runner.run)

    def _remove(self, source_id: str, reason: CloseReason, message: str, drain: float) -> None:
        runner = self._runners.pop(source_id)
        runner.stop()
        runner.hub.removed(reason, message, drain)
        self.leaving.append(runner.hub)

    async def _pulse(self) -> None:
        look_at = self.clock()
        while True:
            due = trio.current_time() + PULSE_SECONDS
            await trio.sleep_until(due)
            now = self.clock()
            if self.measured:
                self.meters.loop_lag.observe(trio.current_time() - due)
            if now >= look_at:
                look_at = now + _LOOK_SECONDS
                self.memory_watch.look()
                if self.measured:
                    for runner in self._runners.values():
                        runner.look(now)
            for runner in list(self._runners.values()):
                runner.hub.sweep()
                if runner.hub.state is HubState.FAILED and not runner.hub.subscribers:
                    runner.hub.close()  # no subscriber can come any more
            self.engine_queries.sweep()
            for hub in list(self.leaving):
                hub.sweep()
                if not hub.subscribers:
                    hub.close()
                    self.leaving.remove(hub)
                    self.meters.hub_over(hub)
            for _ in self.keepalive.look(self.connections, now, time.time(), trio.current_time() - due):
                await trio.lowlevel.checkpoint()
            if self.hooks.reauthentication_due():
                self._reauthorization.ask(self.connections)


def _log_mistake(error: Exception) -> None:
    log.error("events could not be encoded", exc_info=error)
