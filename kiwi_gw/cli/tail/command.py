"""What `kiwi-gw tail` takes."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from kiwi_gw.cli.options import note

if TYPE_CHECKING:
    import ssl

    from kiwi_gw.client.address import Address


def _address(ctx: click.Context, param: click.Parameter, url: str) -> Address:
    from kiwi_gw.client.address import parse_address

    try:
        return parse_address(url)
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="URL") from None


def _start(ctx: click.Context, param: click.Parameter, text: str | None) -> object:
    from kiwi_gw.cli.tail.start import parse_start

    try:
        return None if text is None else parse_start(text, datetime.now(UTC))
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="--from") from None


@click.command()
@click.argument("address", metavar="URL", callback=_address)
@click.argument("source")
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
    help="Where to begin: latest (the default), earliest, snapshot (the newest event of every key), "
    "-5m (s, m, h or d ago), 2026-01-31T12:00Z, or offsets as JSON: '{\"0\": 12}'.",
)
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
@click.option(
    "--token", envvar="KIWI_GW_TOKEN", help="Sent as `Authorization: Bearer`. Better in the environment."
)
@click.option(
    "--token-file",
    type=click.Path(dir_okay=False, path_type=Path),
    envvar="KIWI_GW_TOKEN_FILE",
    help="A file that holds the token.",
)
@click.option("--wait", is_flag=True, help="Keep trying if the gateway is not there yet.")
@click.option("--cacert", type=click.Path(exists=True, dir_okay=False), help="Trust this CA file (PEM).")
@click.option("-k", "--insecure", is_flag=True, help="Take any TLS certificate.")
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

    URL is the gateway's address: ws://host:8000, wss://host, host:port, unix:/path/to/socket. Lost
    connections are made again, and go on behind the last event where the gateway still has it; what was
    lost meanwhile is said on standard error. The exit code is 0 after -n events, at the end of the source or
    of the program that reads it, 1 where the gateway refuses, and 130 on Ctrl-C.
    """
    if rate is not None and mode == "push":
        raise click.UsageError("--rate needs --mode pull: a push subscription is sent all there is")
    bearer = _token(token, token_file)
    if bearer is not None and not address.tls and not address.loopback and not quiet:
        note(f"kiwi-gw: the token goes unencrypted to {address.host}; use wss:// where there is TLS")

    import trio

    from kiwi_gw.cli.tail.session import Printing, follow
    from kiwi_gw.client.transport import dialler
    from kiwi_gw.client.watch import WatchPlan

    authorization = [] if bearer is None else [("Authorization", f"Bearer {bearer}")]
    plan = WatchPlan(
        source,
        mode="pull" if rate is not None else (mode or "push"),
        rate=rate,
        **planned,
        headers=[("User-Agent", "kiwi-gw tail"), *authorization],
    )
    dial = dialler(_trust(cacert, insecure) if address.tls and (insecure or cacert) else None)
    return trio.run(follow, address, plan, Printing(form or "lines", quiet, verbose), dial)


def _trust(cacert: str | None, insecure: bool) -> ssl.SSLContext:
    import ssl

    context = ssl.create_default_context(cafile=cacert)
    if insecure:
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context


def _token(token: str | None, token_file: Path | None) -> str | None:
    if token_file is not None:
        if token is not None:
            raise click.UsageError("there are two tokens: one in a file, one in --token or KIWI_GW_TOKEN")
        try:
            token = token_file.read_text(encoding="utf-8").strip()
        except (OSError, UnicodeDecodeError) as error:
            raise click.BadParameter(str(error), param_hint="--token-file") from None
    if token is not None and not (token.isascii() and token.isprintable() and token and " " not in token):
        raise click.UsageError("a token is one word of printable ASCII characters")
    return token
