"""Starts the workers of a gateway, replaces those that end by themselves, and lets all go together.

This process serves no client and loads no source. It holds the addresses, passes signals on (SIGHUP, SIGTERM,
SIGINT), and waits. A worker reads the configuration file itself and looks after its changes itself, so all
of them come to the same configuration by the same way; one that is started later starts with the newest.
"""

from __future__ import annotations

import os
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path

import structlog
import trio

from kiwi_gw import __version__
from kiwi_gw.backoff import Backoff
from kiwi_gw.config import LoadedConfig, load_again
from kiwi_gw.edge.admin.address import admin_socket
from kiwi_gw.errors import ConfigError
from kiwi_gw.systemd import SystemdNotifier
from kiwi_gw.workers.held_addresses import HeldAddresses
from kiwi_gw.workers.worker_config import LISTENING, VARIABLE, SharedAddress, WorkerConfig

log = structlog.get_logger(__name__)

FIRST_PAUSE, LONGEST_PAUSE = 0.5, 30.0
"""Seconds before a worker is replaced: doubled each time, from the beginning again after one that lasted."""

_GRACE_SECONDS = 5.0
"""How much longer than `drain_ms` workers may take to end, before they are killed."""


@dataclass(slots=True)
class _Slot:
    """One worker's place. listening: whether the process that is in it serves."""

    number: int
    restarts: int = 0
    process: trio.Process | None = None
    listening: bool = False
    code: int = 0
    output: bytes = field(default=b"", repr=False)


class Supervisor:
    """Runs the workers of one configuration. `run` returns the exit code of the gateway.

    Raises ListenError for an address that cannot be had.
    """

    def __init__(self, loaded: LoadedConfig) -> None:
        self._loaded = loaded
        self._slots = [_Slot(number) for number in range(loaded.settings.server.workers)]
        self._manager = SystemdNotifier(loaded.environ)
        self._stopping = trio.Event()
        self._all_listening = trio.Event()
        self._failed: int | None = None
        self._folder = Path()
        self._start_id, self._secret = secrets.token_hex(8), secrets.token_hex(32)
        self._reserved = HeldAddresses(loaded.settings.server.unix_mode_bits)
        self._public: tuple[SharedAddress, ...] = ()
        self._own: list[tuple[SharedAddress, ...]] = []
        self._admin: SharedAddress | None = None

    async def run(self, signals: AsyncIterator[int]) -> int:
        """Until a signal ends it, or a worker cannot even start. A second signal ends the workers at once."""
        self._folder = Path(tempfile.mkdtemp(prefix="kiwi-gw-"))
        try:
            server = self._loaded.settings.server
            self._public = tuple(map(self._reserved.take, server.addresses))
            for slot in self._slots:
                self._own.append(tuple(map(self._reserved.take, server.worker_addresses(slot.number))))
            self._admin = admin_socket(server, self._reserved.take)
            return await self._run(signals)
        finally:
            for slot in self._slots:
                if slot.process is not None and slot.process.returncode is None:
                    slot.process.kill()
            self._reserved.close()
            shutil.rmtree(self._folder, ignore_errors=True)

    # --- inside ----------------------------------------------------------------------------

    async def _run(self, signals: AsyncIterator[int]) -> int:
        hurried = 0

        async def obey() -> None:
            nonlocal hurried
            async for number in signals:
                if number == signal.SIGHUP:
                    self._send(number)
                elif self._stopping.is_set():
                    hurried = 128 + number
                    self._send(number)
                else:
                    log.info("gateway stops", workers=len(self._slots))
                    self._stop()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(obey)
            nursery.start_soon(self._announce)
            nursery.start_soon(self._manager.show_life)
            async with trio.open_nursery() as keeping:
                for slot in self._slots:
                    keeping.start_soon(self._keep, slot)
                await self._stopping.wait()
                self._manager.stopping()
                keeping.cancel_scope.cancel()  # from here on none is replaced
            nursery.start_soon(self._kill_late)
            for slot in self._slots:
                await self._wait_ended(slot)
            nursery.cancel_scope.cancel()
        if self._failed is not None:
            return self._failed
        log.info("gateway stopped")
        return hurried or int(any(slot.code for slot in self._slots))

    async def _announce(self) -> None:
        await self._all_listening.wait()
        self._manager.ready()
        log.info(
            "gateway listens",
            addresses=[place.address for place in self._public],
            admin=self._admin.address if self._admin is not None else None,
            workers=len(self._slots),
            version=__version__,
        )

    async def _keep(self, slot: _Slot) -> None:
        """Have a worker in this slot for ever."""
        backoff = Backoff(FIRST_PAUSE, LONGEST_PAUSE, jitter=0.0)
        while True:
            began = trio.current_time()
            try:
                code = await self._work(slot)
            except OSError as error:  # the machine has no process, memory or descriptor left for it
                log.error("worker cannot be started", worker=slot.number, error=str(error))
                code = 1
            await trio.lowlevel.checkpoint_if_cancelled()
            if not slot.listening and not self._all_listening.is_set():
                # It is not the worker: with this configuration, on this machine, none can start.
                self._failed = max(code, 1)
                self._stop()
                return
            slot.listening = False
            if trio.current_time() - began > LONGEST_PAUSE:
                backoff.reset()
            pause = backoff.next()
            log.error("worker ended", worker=slot.number, code=code, pause=pause)
            await trio.sleep(pause)
            slot.restarts += 1

    async def _work(self, slot: _Slot) -> int:
        """One worker from its start to its end; its exit code, below 0 for a signal."""
        process = await self._start(slot)
        await self._listen_to(slot, process)
        code = await process.wait()
        _close_pipes(process)
        return code

    async def _start(self, slot: _Slot) -> trio.Process:
        worker_config = WorkerConfig(
            slot.number,
            len(self._slots),
            slot.restarts,
            str(self._folder),
            self._start_id,
            self._secret,
            self._public,
            self._own[slot.number],
            self._admin,
        )
        places = [*self._public, *([self._admin] if self._admin is not None else [])]
        slot.output = b""
        with trio.CancelScope(shield=True):  # or it would be started without our knowledge
            process = await trio.lowlevel.open_process(
                _command(self._loaded.path),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                env={**self._loaded.environ, VARIABLE: worker_config.dump()},
                pass_fds=[place.fd for place in places if place.fd is not None],
                # Ctrl-C is for this process, which passes it on: twice would be a second signal.
                start_new_session=True,
            )
        slot.process = process
        if self._stopping.is_set():
            process.terminate()  # the others were stopped before it was there
        return process

    async def _listen_to(self, slot: _Slot, process: trio.Process) -> None:
        """Read what it writes until it ends, or closes its output."""
        assert process.stdout is not None  # noqa: S101  a pipe was asked for
        async for chunk in process.stdout:
            slot.output = (slot.output + bytes(chunk))[-64:]
            if not slot.listening and LISTENING in slot.output:
                slot.listening = True
                if slot.restarts:
                    log.info("worker replaced", worker=slot.number, pid=process.pid)
                if all(item.listening for item in self._slots):
                    self._all_listening.set()

    def _send(self, number: int) -> None:
        for slot in self._slots:
            process = slot.process
            # One that is still starting would die of a SIGHUP, and reads the newest file anyway.
            if process is not None and process.poll() is None and (slot.listening or number != signal.SIGHUP):
                process.send_signal(number)

    def _stop(self) -> None:
        self._stopping.set()
        self._reserved.close()  # none accepts from now on
        self._send(signal.SIGTERM)

    async def _wait_ended(self, slot: _Slot) -> None:
        if slot.process is not None:
            slot.code = await slot.process.wait()
            _close_pipes(slot.process)
            if slot.code == -signal.SIGTERM and not slot.listening:
                slot.code = 0  # it was so young that it did not know yet how to leave in order

    async def _kill_late(self) -> None:
        """End one that hangs: a worker drains by itself and has deadlines of its own."""
        try:
            drain_ms = load_again(self._loaded).settings.server.drain_ms  # what the workers go by
        except ConfigError:
            drain_ms = self._loaded.settings.server.drain_ms
        await trio.sleep(drain_ms / 1000 + _GRACE_SECONDS)
        for slot in self._slots:
            if slot.process is not None and slot.process.poll() is None:
                log.error("worker does not end; killed", worker=slot.number, pid=slot.process.pid)
                slot.process.kill()


def _close_pipes(process: trio.Process) -> None:
    for pipe in (process.stdin, process.stdout):
        if isinstance(pipe, trio.lowlevel.FdStream):
            pipe.close()


def _command(config: Path) -> list[str]:
    # `-m` puts the working directory on the path; a plugin there must not be found by workers only.
    safe = [] if "" in sys.path or os.getcwd() in sys.path else ["-P"]
    return [sys.executable, *safe, "-m", "kiwi_gw", "run", "--config", str(config)]
