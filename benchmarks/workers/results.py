"""What the subscribers of a run have, and what is wrong with it."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.check import Check, order, parted
from benchmarks.latency import Delays, summed
from benchmarks.records import offsets

if TYPE_CHECKING:
    from benchmarks.workers.load_client import Client, Load

_MOST = 5
_SAMPLE = 20
"""So many clients' notices of a loss are compared with what they did not get, event by event."""


def said(load: Load, begun: int, ended: int) -> dict[str, Any]:
    """Return it as JSON. begun, ended: of the measured part, ns of the monotonic clock."""
    settings = load.settings
    expected = settings["total"] - settings["first"]
    everyone = [*load.clients.values(), *load.left]
    periods = [Delays() for _ in range(settings["periods"])]
    wrong: list[str] = []
    for stream, reference in load.references.items():
        check = Check(
            reference.data, settings["total"], settings["bases"], settings["first"], settings["protocol"]
        )
        wrong += (
            [f"{stream[0]}: {fault}" for fault in check.faults] if len(load.references) > 1 else check.faults
        )
        if check.faults:
            continue
        mine = [client for client in everyone if client.stream == stream]
        wrong += _wrong_order([client for client in mine if client.reader.segments], check, load)
        for client in mine:
            if client.notes is not None:
                client.notes.count(reference.ends, check.times, periods, begun, ended)
        for client in [client for client in mine if client.reader.gaps][:_SAMPLE]:
            wrong += _wrong_gaps(client, check)
    readers = [client.reader for client in everyone]
    wrong += [reader.wrong for reader in readers if reader.wrong is not None][:_MOST]
    counts = [client.reader.events for client in load.clients.values()]
    short = [count for count in counts if count != expected]
    if short:
        wrong.append(f"{len(short)} clients have not {expected} events but {min(short)} to {max(short)}")
    if load.lost:
        wrong.append(f"{load.lost} connections were lost")
    given_up = [reader.given_up for reader in readers]
    if any(client.reader.given_up for client in everyone if client not in load.stalled):
        wrong.append(f"clients that always read were told of a loss of {max(given_up)} events")
    control: Counter[str] = Counter()
    for reader in readers:
        control.update(reader.control)
    if settings["capture"] is not None:
        Path(settings["capture"]).write_bytes(next(iter(load.references.values())).data)
    return {
        "faults": wrong,
        "control": dict(control),
        "bytes": sum(len(reference.data) for reference in load.references.values()),
        "events": sum(len(reference.ends) for reference in load.references.values()),
        "receives": load.receives,
        "received": load.received,
        "delays": summed(periods) if settings["delays"] else {},
        "clients": len(load.clients),
        "own_order": sum(bool(reader.segments) for reader in readers),
        "left": len(load.left),
        "given_up": sum(given_up),
    }


def _wrong_order(clients: list[Client], check: Check, load: Load) -> list[str]:
    """Return what is wrong with clients whose events came in an order of their own."""
    bases, first = load.settings["bases"], load.settings["first"]
    here = {id(client) for client in load.clients.values()}
    found: list[str] = []
    for client in clients:
        found += order(
            client.reader.all_segments,
            check.places,
            offsets(bases, first) if client.reader.first == 0 else None,
            offsets(bases, load.settings["total"]) if id(client) in here else None,
        )
    return found if len(found) <= _MOST else [*found[:_MOST], f"and so {len(found) - _MOST} other clients"]


def _wrong_gaps(client: Client, check: Check) -> list[str]:
    """Check whether the ranges of a client's notices are those of the events that it did not get."""
    for begin, end, ranges in client.reader.gaps:
        have: dict[str, list[int]] = {}
        for one in check.places[begin:end]:
            partition, offset = parted(one)
            have.setdefault(str(partition), [offset, offset])[1] = offset
        if have != ranges:
            return [f"a notice before event {end} says {ranges}, and {have} did not come"]
    return []
