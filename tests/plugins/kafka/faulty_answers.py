"""How answers of a scripted broker go out when they do not go out as they are."""

from __future__ import annotations

from collections.abc import Callable

import trio

from tests.plugins.kafka.scripted_broker import Node, Send, whole


def trickled(only: int) -> Send:
    """Send answers of one API byte by byte."""

    async def send(stream: trio.SocketStream, api: int, answer: bytes) -> None:
        step = 1 if api == only else len(answer)
        for at in range(0, len(answer), step):
            await stream.send_all(answer[at : at + step])

    return send


def cut_once(node: Node, only: int, at: int) -> Send:
    """Close the connection after so many bytes of the next answer of one API; then all is well."""

    async def send(stream: trio.SocketStream, api: int, answer: bytes) -> None:
        if api != only:
            await stream.send_all(answer)
            return
        node.send = whole
        await stream.send_all(answer[:at])
        await stream.aclose()

    return send


def instead(only: int, change: Callable[[bytes], bytes]) -> Send:
    """Send something else for the answers of one API."""

    async def send(stream: trio.SocketStream, api: int, answer: bytes) -> None:
        await stream.send_all(change(answer) if api == only else answer)

    return send
