"""The keys that are pressed in a terminal, one by one."""

from __future__ import annotations

import os
import sys
import termios
import tty
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager

import trio


@contextmanager
def single_keys() -> Iterator[None]:
    """Have the terminal give each key at once, and show none, within the block."""
    stdin = sys.stdin.fileno()
    before = termios.tcgetattr(stdin)
    tty.setcbreak(stdin)
    try:
        yield
    finally:
        termios.tcsetattr(stdin, termios.TCSADRAIN, before)


async def keys() -> AsyncIterator[str]:
    """Give the keys as they are pressed; end with the terminal."""
    stdin = sys.stdin.fileno()
    while True:
        await trio.lowlevel.wait_readable(stdin)
        pressed = os.read(stdin, 64)
        if not pressed:
            return
        for key in pressed.decode(errors="replace"):
            yield key
