"""What `kiwi-gw tail` takes."""

from __future__ import annotations

from datetime import UTC, datetime
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
from kiwi_gw.cli.source_lists import complete_source

if TYPE_CHECKING:
    from kiwi_gw.client.address import Address

_LIST_SECONDS = 3.0
"""How long a gateway that has refused a subscription is asked what it has."""


def _start(ctx: click.Context, param: click.Parameter, text: str | None) -> object:
    from kiwi_gw.cli.tail.start import parse_start

    try:
        return None if text is None else parse_start(text, datetime.now(UTC))
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="--from") from None


@click.command(cls=AddressThenSource)
@address_argument
@click.argument("source", shell_complete=complete_source)
@click.option(
    "--mode",
    type=click.Choice(["push", "pull"]),
    help="push: as they come (the default). pull: as fast as they are printed.",
)
@click.option(
    "--rate",
    type=click.FloatRange(min=0, min_open=True),
    help="At most so many events per second; implies --mode pull.",
)
@click.option(
    "--from",
    "start",
    metavar="START",
    callback=_start,
    help="Where to begin: latest (the default), earliest, snapshot (the newest event of every key that the "
    "gateway has seen), -5m (s, m, h or d ago), 2026-01-31T12:00Z, or offsets as JSON: '{\"0\": 12}'.",
)
@click.option("--until-end", is_flag=True, help="End behind the last event that there is by then.")
@click.option(
    "--resume/--no-resume",
    default=True,
    help="After a lost connection go on behind the last event (the default), or with what comes then.",
)
@click.option(
    "--where",
    metavar="SQL",
    help="Only events for which this is true: \"value.dep_delay > 30 AND key LIKE 'U%'\".",
)
@click.option(
    "--select",
    metavar="SQL",
    help='What of their values: "value.carrier, value.dep_delay * 60 AS seconds".',
)
@click.option("-n", "--number", "limit", type=click.IntRange(min=1), help="End after so many events.")
@click.option("--json", "form", flag_value="json", help="Every message as it came, one JSON object a line.")
@click.option("--raw", "form", flag_value="raw", help="The events' values and nothing else, one a line.")
@client_options
@click.option("--wait", is_flag=True, help="Keep trying if the gateway is not there yet.")
@click.option("-q", "--quiet", is_flag=True, help="Say nothing of connections and lag.")
@click.option("-v", "--verbose", is_flag=True, help="Show positions of LAG and closes too.")
def tail(
    address: Address,
    source: str,
    mode: str | None,
    rate: float | None,
    form: str | None,
    token: str | None,
    token_file: Path | None,
    cacert: str | None,
    insecure: bool,
    quiet: bool,
    verbose: bool,
    **planned: Any,
) -> int:
    """Print the events of SOURCE as they come.

    URL is the gateway's address: ws://host:8000, wss://host, host:port, unix:/path/to/socket; it may stand
    in the environment, as KIWI_GW_URL. Lost connections are made again, and go on behind the last event where
    the gateway still has it; what was lost meanwhile is said on standard error. The exit code is 0 after -n
    events, with --until-end behind the last event, at the end of the source or of the program that reads it,
    1 where the gateway refuses, and 130 on Ctrl-C.
    """
    if rate is not None and mode == "push":
        raise click.UsageError("--rate needs --mode pull: a push subscription is sent all there is")
    headers = authorization(address, token, token_file, quiet)
    context = trust(address, cacert, insecure)

    import trio

    from kiwi_gw.cli.source_lists import SourceLister
    from kiwi_gw.cli.tail.session import Printing, follow
    from kiwi_gw.client.transport import dialler
    from kiwi_gw.client.watch import WatchPlan

    plan = WatchPlan(
        source,
        mode="pull" if rate is not None else (mode or "push"),
        rate=rate,
        **planned,
        headers=[("User-Agent", "kiwi-gw tail"), *headers.items()],
    )
    lister = SourceLister(address, _LIST_SECONDS, context)
    printing = Printing(form or "lines", quiet, verbose)
    return trio.run(follow, address, plan, printing, dialler(context), lister.names)
