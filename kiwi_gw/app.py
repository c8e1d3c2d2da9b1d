"""The composition root: puts configuration, plugins, dialects, runtime and edge together, and runs them."""

from __future__ import annotations

import gc
import os
import shutil
import signal
import sys
import threading
from collections.abc import AsyncIterator, Callable, Collection, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import structlog
import trio

from kiwi_gw import __version__, logs
from kiwi_gw.addresses import (
    build_dialects,
    certificates,
    open_admin,
    open_listener,
    open_private,
    served_names,
)
from kiwi_gw.config import LoadedConfig, load
from kiwi_gw.config.exposure import exposure_warnings
from kiwi_gw.edge.admin.admin_view import LocalAdmin
from kiwi_gw.edge.descriptors import raise_limit
from kiwi_gw.edge.listener import Listener
from kiwi_gw.edge.metrics.collect import Collector
from kiwi_gw.edge.tls import check_certificates
from kiwi_gw.query.warm_up import warm_up
from kiwi_gw.runtime import garbage
from kiwi_gw.runtime.gateway import Gateway
from kiwi_gw.runtime.loop_watch import LoopWatch
from kiwi_gw.runtime.reload import Reloader
from kiwi_gw.runtime.warm_up import WarmUp
from kiwi_gw.systemd import SystemdNotifier
from kiwi_gw.workers.supervisor import Supervisor
from kiwi_gw.workers.worker_config import LISTENING, WorkerConfig, worker_config_of

log = structlog.get_logger(__name__)


_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)

_CLEAN_UP_SECONDS = 10.0
"""How long sources and services may take to stop once every client is gone: on a busy machine a JVM does."""

_AT_ONCE_SECONDS = 0.2
"""The same after a second signal."""


Leave = Callable[[float, int], None]


@dataclass(frozen=True, slots=True)
class RunningGateway:
    """Hold the parts of a running gateway, for tests and for programs that embed it. admin: None without that
    address."""

    gateway: Gateway
    listener: Listener
    reloader: Reloader
    admin: Listener | None


def serve(config: Path, environ: Mapping[str, str]) -> int:
    """Run a gateway on a configuration file until a signal ends it. Returns the exit code.

    Raises ConfigError for a configuration (with its certificates) that cannot be used. Raises KiwiError if
    something else prevents the start (an address in use).
    """
    loaded = load(config, environ)
    check_certificates(loaded)
    logs.configure(loaded.settings.logging.level, loaded.settings.logging.format, sys.stderr)
    worker_config = worker_config_of(environ)
    if worker_config is None and loaded.settings.server.workers > 1:
        return trio.run(_supervise, loaded, strict_exception_groups=True)
    if (warning := raise_limit(loaded.settings.server.limits.max_connections)) is not None:
        log.warning(warning)
    garbage.set_thresholds()
    if worker_config is None:
        return trio.run(_main, loaded, strict_exception_groups=True)
    structlog.contextvars.bind_contextvars(worker=worker_config.slot)
    return trio.run(_work, loaded, worker_config, strict_exception_groups=True)


async def _main(loaded: LoadedConfig) -> int:
    with trio.open_signal_receiver(*_SIGNALS) as signals:
        return await run(loaded, signals, leave=_leave)


async def _supervise(loaded: LoadedConfig) -> int:
    for warning in exposure_warnings(loaded):
        log.warning(warning)
    with trio.open_signal_receiver(*_SIGNALS) as signals:
        return await Supervisor(loaded).run(signals)


async def _work(loaded: LoadedConfig, worker_config: WorkerConfig) -> int:
    """Run one worker: it ends like a gateway, and when the process that started it is gone."""
    send, received = trio.open_memory_channel[int](8)
    with trio.open_signal_receiver(*_SIGNALS) as signals:
        async with trio.open_nursery() as nursery, send, received:

            async def pass_on() -> None:
                async for number in signals:
                    await send.send(number)

            async def end_with_supervisor() -> None:
                async with trio.lowlevel.FdStream(os.dup(sys.stdin.fileno())) as stdin:
                    async for _ in stdin:
                        pass
                log.error("the process that started this worker is gone")
                shutil.rmtree(worker_config.folder, ignore_errors=True)
                await send.send(signal.SIGTERM)

            nursery.start_soon(pass_on)
            nursery.start_soon(end_with_supervisor)
            code = await run(loaded, received, leave=_leave, worker_config=worker_config)
            nursery.cancel_scope.cancel()
    return code


def _leave(seconds: float, code: int) -> None:
    """End the process with this code in so many seconds, whatever a plugin's clean-up still waits for."""

    def now() -> None:
        log.error("a clean-up did not end in time; leaving without it", code=code)
        sys.stderr.flush()
        os._exit(code)

    timer = threading.Timer(seconds, now)
    timer.daemon = True
    timer.start()


class _Applied:
    """Take every configuration that is applied while the gateway runs. quiet: another worker logs it."""

    def __init__(self, listener: Listener, loaded: LoadedConfig, *, quiet: bool) -> None:
        self._listener = listener
        self._quiet = quiet
        self.warnings = exposure_warnings(loaded)

    def __call__(self, loaded: LoadedConfig) -> None:
        logs.set_level(loaded.settings.logging.level)
        before, self.warnings = self.warnings, exposure_warnings(loaded)
        if not self._quiet:
            for warning in self.warnings:
                if warning not in before:
                    log.warning(warning)
        self._listener.use_certificates(certificates(loaded))


async def run(
    loaded: LoadedConfig,
    signals: AsyncIterator[int],
    *,
    leave: Leave | None = None,
    worker_config: WorkerConfig | None = None,
    task_status: trio.TaskStatus[RunningGateway] = trio.TASK_STATUS_IGNORED,
) -> int:
    """Run the whole gateway. SIGHUP reloads, any other signal stops, a second one at once.

    leave: ends the process after so many seconds with that exit code, for sources that do not let themselves
    be stopped. worker_config: if this is one of several workers.
    """
    worker, workers = (worker_config.slot, worker_config.workers) if worker_config is not None else (0, 1)
    dialects = build_dialects(loaded, worker_config)
    warming = WarmUp(partial(_load, loaded, dialects))
    gateway = Gateway(loaded, worker=worker, workers=workers, warm_up=warming)
    listener = open_listener(gateway, dialects, worker_config)
    applied = _Applied(listener, loaded, quiet=worker != 0)
    # The process that started workers speaks for them.
    manager = SystemdNotifier(loaded.environ if worker_config is None else {})
    reloader = Reloader(gateway, applied, reloading=manager.reloading)
    try:
        served = served_names(dialects)
        collector = Collector(gateway, listener, reloader, served) if gateway.measured else None
        local_admin = LocalAdmin(gateway, collector, lone=worker_config is None)
        admin = open_admin(gateway, local_admin, worker_config)
        private = open_private(gateway, local_admin, worker_config) if worker_config is not None else None
    except BaseException:
        listener.stop_accepting()
        raise
    own = [item for item in (admin, private) if item is not None]
    if worker_config is None:  # else the process that started it has said so
        for warning in applied.warnings:
            log.warning(warning)
    stop = _ShutDown(leave)
    try:
        async with trio.open_nursery() as nursery:
            await nursery.start(gateway.run)
            for item in (listener, *own):
                await nursery.start(item.run)
            nursery.start_soon(reloader.watch)
            nursery.start_soon(LoopWatch().run)
            nursery.start_soon(garbage.collect_while_idle)
            nursery.start_soon(_warm_up, warming, manager)
            nursery.start_soon(manager.show_life)
            _announce(listener, admin, worker_config)
            task_status.started(RunningGateway(gateway, listener, reloader, admin))
            await stop.wait(signals, reloader)
            manager.stopping()
            nursery.start_soon(stop.at_once, signals, nursery.cancel_scope)
            await _drain(gateway, listener)
            if leave is not None:
                leave(_CLEAN_UP_SECONDS, 1)
            nursery.cancel_scope.cancel()
    finally:
        for item in (listener, *own):
            item.stop_accepting()
    log.info("gateway stopped")
    return stop.code


def _load(loaded: LoadedConfig, dialects: Collection[str]) -> None:
    """Import what the first clients of these protocols would wait for."""
    warm_up()
    types = loaded.plugins.dialect_types()
    for name in dialects:
        types[name].warm_up()


async def _warm_up(warming: WarmUp, manager: SystemdNotifier) -> None:
    """Load what protocols and queries need, while requests are answered already; then clients are let in."""
    await warming.run()
    gc.freeze()  # what was made for the start stays: no collection need look at it again
    manager.ready()


class _ShutDown:
    """Hold what ends a gateway. code: the exit code of its process."""

    def __init__(self, leave: Leave | None) -> None:
        self._leave = leave
        self.code = 0

    async def wait(self, signals: AsyncIterator[int], reloader: Reloader) -> None:
        """Return at the first signal that does not ask for a reload."""
        async for number in signals:
            if number != signal.SIGHUP:
                return
            reloader.ask()

    async def at_once(self, signals: AsyncIterator[int], everything: trio.CancelScope) -> None:
        """Cancel everything at the next signal that does not ask for a reload."""
        async for number in signals:
            if number != signal.SIGHUP:
                self.code = 128 + number
                if self._leave is not None:
                    self._leave(_AT_ONCE_SECONDS, self.code)
                everything.cancel()


async def _drain(gateway: Gateway, listener: Listener) -> None:
    """Say goodbye to every client, answer the requests that there are, and let no more in."""
    log.info("gateway stops", connections=len(gateway.connections))
    gc.freeze()  # what lives now dies with the process: collecting it would cost a third of the stop
    gateway.draining = True
    listener.stop_accepting()
    within = gateway.loaded.settings.server.drain_ms / 1000
    async with trio.open_nursery() as nursery:
        nursery.start_soon(gateway.drain, "draining", within)
        with trio.move_on_after(within):
            await listener.wait_answered()


def _announce(listener: Listener, admin: Listener | None, worker_config: WorkerConfig | None) -> None:
    if worker_config is not None:
        own = {"address": worker_config.own[0].address} if worker_config.own else {}
        log.info("worker listens", pid=os.getpid(), **own)
        os.write(sys.stdout.fileno(), LISTENING)
        return
    operators = admin.addresses[0] if admin is not None else None
    log.info("gateway listens", addresses=listener.addresses, admin=operators, version=__version__)
