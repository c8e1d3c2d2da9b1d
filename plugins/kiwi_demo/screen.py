"""The demo on a terminal: its clients side by side, what was done to them, and what Spark makes of it all."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Final

import trio
from rich.console import Console, ConsoleOptions, RenderResult
from rich.layout import Layout
from rich.live import Live
from rich.panel import Panel
from rich.text import Text

from kiwi_demo.stage import Stage
from kiwi_demo.viewer import Viewer

_REFRESH_SECONDS: Final = 0.2
_LOG_LINES: Final = 6
_WIDE: Final = 170
"""Columns from which on all four clients stand in one row."""
_STYLES: Final = ("green", "cyan", "yellow", "magenta")
_KEYS: Final = "s stall   r read again   g restart the gateway   b kill the broker   q quit"


class _Newest:
    """Show the newest lines, as many as there is room for; what is too long is cut."""

    def __init__(self, lines: Sequence[str]) -> None:
        self._lines = lines

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        room = max(1, options.height or options.max_height)
        for line in list(self._lines)[-room:]:
            style = "bold" if line.startswith("* ") else ""
            yield Text(line, style=style, no_wrap=True, overflow="ellipsis")


def client_panel(client: Viewer, produced: int, style: str) -> Panel:
    """Draw one client."""
    tally = client.tally
    counts = f"{tally.received} received, {tally.to_come(produced)} to come"
    if tally.announced:
        counts += f", {tally.announced} given up"
    if client.balance is not None:
        counts += f", balance {client.balance}"
    title = Text.assemble((client.label, f"bold {style}"), f"  {client.state}")
    return Panel(
        _Newest(client.lines), title=title, subtitle=Text(counts), border_style=style, title_align="left"
    )


class Screen:
    """Draw the stage until cancelled. story: the newest lines of what is told."""

    def __init__(self, stage: Stage, where: Sequence[str]) -> None:
        self.story: deque[str] = deque(maxlen=100)
        self._stage = stage
        self._where = where

    async def run(self) -> None:
        """Draw again and again."""
        console = Console()
        with Live(self.picture(console.width), console=console, screen=True, auto_refresh=False) as live:
            while True:
                live.update(self.picture(console.width), refresh=True)
                await trio.sleep(_REFRESH_SECONDS)

    def picture(self, width: int) -> Layout:
        """Draw all of it, for a terminal of so many columns."""
        stage = self._stage
        panels = [
            Layout(client_panel(client, stage.produced, style))
            for client, style in zip(stage.clients, _STYLES, strict=True)
        ]
        clients = Layout()
        if width >= _WIDE:
            clients.split_row(*panels)
        else:
            clients.split_column(Layout(name="upper"), Layout(name="lower"))
            clients["upper"].split_row(*panels[:2])
            clients["lower"].split_row(*panels[2:])
        below = Layout(size=_LOG_LINES + 2)
        parts = [Layout(Panel(_Newest(self.story), title="what happens", title_align="left"))]
        if stage.results is not None:
            late, table = _Newest(stage.results.late.lines), _Newest(stage.results.table)
            delay = Text(stage.results.delay())
            parts += [
                Layout(Panel(late, title="late-flights, by Spark", subtitle=delay, border_style="blue")),
                Layout(Panel(table, title="delays-by-carrier, by Spark", border_style="blue")),
            ]
        below.split_row(*parts)
        foot = Layout(
            Text("\n".join([*self._where, _KEYS]), no_wrap=True, overflow="ellipsis"),
            size=len(self._where) + 1,
        )
        whole = Layout()
        whole.split_column(clients, below, foot)
        return whole
