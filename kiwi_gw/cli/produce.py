"""`kiwi-gw produce`: lines of standard input as records of a source."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from kiwi_gw.cli.client_options import (
    AddressThenSource,
    address_argument,
    authorization,
    client_options,
    trust,
)
from kiwi_gw.cli.options import note
from kiwi_gw.cli.source_lists import complete_source
from kiwi_gw.errors import KiwiError

if TYPE_CHECKING:
    from kiwi_gw.client.address import Address
    from kiwi_gw.client.publish import NotWritten

_MOST_LINE_BYTES = 1024 * 1024
_READ_BYTES = 64 * 1024


@click.command(cls=AddressThenSource)
@address_argument
@click.argument("source", shell_complete=complete_source)
@click.option("--key-separator", metavar="TEXT", help="What stands between key and value in a line.")
@click.option(
    "--json",
    "as_json",
    is_flag=True,
    help='Lines are {"key": .., "value": .., "partition": ..}, all optional.',
)
@client_options
def produce(
    address: Address,
    source: str,
    key_separator: str | None,
    as_json: bool,
    token: str | None,
    token_file: Path | None,
    cacert: str | None,
    insecure: bool,
) -> int:
    """Write the lines of standard input to SOURCE, each as the value of a record.

    The gateway must serve Lenses (`lenses: {enabled: true}`), SOURCE must say `publish: true`, and the
    token's role have the right to publish. An empty line is an empty value. The exit code is 1 if a line was
    not written; which, and why, is said on standard error.
    """
    if as_json and key_separator is not None:
        raise click.UsageError("--json has the key in the object: --key-separator is for plain lines")
    headers = authorization(address, token, token_file, quiet=False)
    context = trust(address, cacert, insecure)

    import trio

    from kiwi_gw.client.publish import publish
    from kiwi_gw.client.transport import dialler

    failed = 0

    def say(why: NotWritten) -> None:
        nonlocal failed
        failed += 1
        note(f"kiwi-gw: line {why.number + 1}: {why.why}")

    async def run() -> int:
        lines = _records(key_separator, as_json=as_json)
        return await publish(
            address, source, lines, say, dial=dialler(context), headers=list(headers.items())
        )

    written = trio.run(run)
    note(f"{written} written" + (f", {failed} not" if failed else ""))
    return 1 if failed else 0


async def _records(separator: str | None, *, as_json: bool) -> AsyncIterator[dict[str, Any]]:
    """Read standard input, a line at a time."""
    number = 0
    async for line in _lines():
        number += 1
        if len(line) > _MOST_LINE_BYTES:
            raise KiwiError(f"line {number} has more than {_MOST_LINE_BYTES} bytes")
        yield _record(line, number, separator, as_json=as_json)


async def _lines() -> AsyncIterator[bytes]:
    """Read what comes, as it comes; of a line that is too long only the beginning. A thread that waits for
    more is left behind where nobody wants it: no lock is held while it does (`raw`)."""
    import sys

    import trio

    read = getattr(sys.stdin.buffer, "raw", sys.stdin.buffer).read
    rest = b""
    while data := await trio.to_thread.run_sync(read, _READ_BYTES, abandon_on_cancel=True):
        *lines, rest = (rest + data).split(b"\n")
        for line in lines:
            yield line
        if len(rest) > _MOST_LINE_BYTES:
            yield rest
    if rest:
        yield rest


def _record(line: bytes, number: int, separator: str | None, *, as_json: bool) -> dict[str, Any]:
    import msgspec

    try:
        text = line.removesuffix(b"\r").decode()
        # Values stay as they are written: a number read and written again may be another one.
        found: dict[str, Any] = (
            msgspec.json.decode(text, type=dict[str, msgspec.Raw]) if as_json else {"value": text}
        )
    except msgspec.ValidationError:
        raise KiwiError(f"line {number} is no JSON object") from None
    except (ValueError, RecursionError) as error:
        raise KiwiError(f"line {number} is no {'JSON' if as_json else 'UTF-8'}: {error}") from None
    if separator is not None and separator in text:
        found["key"], _, found["value"] = text.partition(separator)
    return found
