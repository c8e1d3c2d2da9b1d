"""One run of `kiwi-gw tail`: what the client sees goes to standard output and standard error."""

from __future__ import annotations

import signal
import sys
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass

import click
import trio

from kiwi_gw.cli.options import note
from kiwi_gw.cli.source_lists import not_among
from kiwi_gw.cli.tail import render
from kiwi_gw.cli.tail.output import Output
from kiwi_gw.client.address import Address
from kiwi_gw.client.messages import Event, Noticed
from kiwi_gw.client.transport import Dial
from kiwi_gw.client.watch import (
    Happening,
    NotResumed,
    Reconnecting,
    Refused,
    SubscriptionOpened,
    WatchPlan,
    watch,
)
from kiwi_gw.errors import KiwiError
from kiwi_gw.terminal import escape, escape_json, wants_colour


@dataclass(frozen=True, slots=True)
class Printing:
    """form: `lines` for people, `json` for scripts, `raw` for the bare values."""

    form: str = "lines"
    quiet: bool = False
    verbose: bool = False


Names = Callable[[], Mapping[str, str]]
"""Asks the gateway for the types of its sources by name; blocks. Raises OSError or ValueError."""


async def follow(address: Address, plan: WatchPlan, printing: Printing, dial: Dial, names: Names) -> int:
    """Watch until there is a reason to end; return the exit code. Raise KiwiError if it is refused.

    names: what is asked then, in case another source was meant.
    """
    output = Output(sys.stdout.fileno())
    screen = _Screen(plan, printing, output)
    code = 0
    failure: KiwiError | None = None
    with trio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
        async with trio.open_nursery() as nursery:

            async def interrupted() -> None:
                nonlocal code
                async for number in signals:
                    code = 128 + number
                    nursery.cancel_scope.cancel()

            async def unread(gone: Callable[[], Awaitable[None]]) -> None:
                await gone()
                nursery.cancel_scope.cancel()

            nursery.start_soon(interrupted)
            nursery.start_soon(unread, output.run)
            nursery.start_soon(unread, output.wait_reader_gone)
            try:
                await watch(address, plan, screen.take, dial=dial)
            except KiwiError as error:  # kept, as out of the nursery it would come in a group
                failure = error
            await output.drain()
            nursery.cancel_scope.cancel()
    if failure is not None:
        raise await _explained(failure, plan.source_id, names) if isinstance(failure, Refused) else failure
    return code


async def _explained(refused: Refused, source_id: str, names: Names) -> KiwiError:
    """Add what sources there are, if there is none of this name and they are public."""
    try:
        hint = not_among(source_id, await trio.to_thread.run_sync(names))
    except (OSError, ValueError):
        hint = ""
    return KiwiError(f"{refused}; {hint}") if hint else refused


class _Screen:
    """Turns what happens into lines. Standard error gets its line after all events before it."""

    def __init__(self, plan: WatchPlan, printing: Printing, output: Output) -> None:
        self._plan = plan
        self._printing = printing
        self._output = output
        self._tty = sys.stdout.isatty()
        colour = wants_colour(sys.stdout)
        self._lines = render.EventLines(lambda text, fg: click.style(text, fg=fg) if colour else text)

    async def take(self, happening: Happening) -> None:
        match happening:
            case Event():
                await self._output.write(self._event(happening))
            case Noticed(frame, notice):
                await self._notice(frame, render.say_notice(notice, self._printing.verbose))
            case SubscriptionOpened():
                source, mode = self._plan.source_id, self._plan.mode
                await self._say(render.say_subscribed(happening, source, mode, self._printing.verbose))
            case NotResumed():
                await self._say(render.say_not_resumed(happening))
            case Reconnecting():
                await self._say(render.say_reconnecting(happening))

    def _event(self, event: Event) -> bytes:
        if self._printing.form == "json":
            return escape_json(event.frame).encode()
        if self._printing.form == "lines":
            return self._lines(event.data).encode(errors="backslashreplace")
        value = render.raw(event.data)
        # A file or a program gets the bytes as they are, a terminal never.
        return escape(value.decode(errors="backslashreplace")).encode() if self._tty else value

    async def _notice(self, frame: str, text: str) -> None:
        if self._printing.form == "json":
            await self._output.write(escape_json(frame).encode())
        else:
            await self._say(text)

    async def _say(self, text: str) -> None:
        if not self._printing.quiet:
            await self._output.drain()
            note(f"kiwi-gw: {text}")
