"""`kiwi-gw sources`: what a running gateway has to watch."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from kiwi_gw.cli.client_options import address_argument, authorization, client_options, trust
from kiwi_gw.cli.http_get import asked
from kiwi_gw.cli.options import json_option, note, print_json, print_table
from kiwi_gw.errors import KiwiError

if TYPE_CHECKING:
    from kiwi_gw.cli.source_lists import SourceLister
    from kiwi_gw.client.address import Address

Items = Sequence[dict[str, Any]]


@click.command()
@address_argument
@click.option(
    "--seconds",
    type=click.FloatRange(min=0, min_open=True),
    default=1.0,
    show_default=True,
    help="For how long events are counted, for the rates.",
)
@client_options
@click.option(
    "--timeout", type=click.FloatRange(min=0, min_open=True), default=5.0, show_default=True, help="Seconds."
)
@json_option
def sources(
    address: Address,
    seconds: float,
    token: str | None,
    token_file: Path | None,
    cacert: str | None,
    insecure: bool,
    timeout: float,
    as_json: bool,
) -> int:
    """List the sources of a gateway: their names, types, states, rates and troubles.

    URL is its admin address (127.0.0.1:9464 by default), which knows all of it, or the address of its
    clients, which says names, types, states and troubles where those are public. It may stand in the
    environment, as KIWI_GW_URL.
    """
    from kiwi_gw.cli.source_lists import SourceLister

    headers = authorization(address, token, token_file, quiet=False)
    lister = SourceLister(address, timeout, trust(address, cacert, insecure), headers)
    try:
        rows = _rows(lister, seconds)
    except (OSError, ValueError) as error:
        words = getattr(error, "strerror", None) or str(error) or type(error).__name__
        raise KiwiError(f"{asked(address)}: {words}") from None
    if as_json:
        print_json(rows)
    elif not rows:
        words = "no sources are shown here; where clients need credentials, ask the admin address"
        note(f"{asked(address)}: {words}")
    elif "rate" in rows[0]:
        print_table(
            ("SOURCE", "TYPE", "STATE", "EVENTS/S", "SUBSCRIPTIONS", "TROUBLE"),
            [(*_named(row), f"{row['rate']:.6g}", str(row["subscriptions"]), _trouble(row)) for row in rows],
        )
    else:
        print_table(("SOURCE", "TYPE", "STATE", "TROUBLE"), [(*_named(row), _trouble(row)) for row in rows])
        note("rates are shown on the admin address (127.0.0.1:9464 by default)")
    return 0


def _rows(lister: SourceLister, seconds: float) -> list[dict[str, Any]]:
    """Return what is to be shown. Raise OSError, ValueError or KiwiError."""
    import time

    first, began = lister.operators(), time.monotonic()
    if first is None:
        return [
            {key: item.get(key, "") for key in ("id", "type", "state")}
            | {"trouble": item.get("message") or None}
            for item in lister.ready()
        ]
    time.sleep(seconds)
    second, ended = lister.operators(), time.monotonic()
    return with_rates(first, second or (), ended - began)


def with_rates(first: Items, second: Items, seconds: float) -> list[dict[str, Any]]:
    """Join two lists of the admin address, so many seconds apart, into a row for every source.

    Each of several workers reads every source: the fastest says how fast that is.
    """
    before = {(item["id"], item.get("worker")): item["events"] for item in first}
    rows: dict[str, dict[str, Any]] = {}
    for item in second:
        counted = item["events"] - before.get((item["id"], item.get("worker")), item["events"])
        row = rows.setdefault(
            item["id"],
            {"id": item["id"], "type": item["type"], "state": item["state"], "rate": 0.0, "subscriptions": 0}
            | {"trouble": None, "reloadRefused": None},
        )
        # A source that was started anew counts from 0.
        row["rate"] = max(row["rate"], round(max(0, counted) / seconds, 3))
        row["subscriptions"] += item["subscriptions"]
        row["trouble"] = row["trouble"] or item.get("error") or item.get("degraded")
        row["reloadRefused"] = row["reloadRefused"] or item.get("reloadRefused")
    return list(rows.values())


def _named(row: dict[str, Any]) -> tuple[str, str, str]:
    return row["id"], row["type"], row["state"]


def _trouble(row: dict[str, Any]) -> str:
    refused = row.get("reloadRefused")
    return "\n".join(filter(None, (row["trouble"], refused and f"the last reload was refused: {refused}")))
