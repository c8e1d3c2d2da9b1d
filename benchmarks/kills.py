"""Kills, again and again: `python -m benchmarks.kills`, part of `make bench`.

The JVM of Spark, its driver and the gateway are killed (-9) 100 times each (`--times`), at moments left to
chance, while queries run in real time and in micro-batches and records come all the time: see
`tests/integration/spark/kills.py` (`make test-all` kills two of them once). What the clients were sent is
compared with what there was, row by row. What came of it goes to `results/kills.json`, and from there into
the table in docs/explanation/faults.md. The whole takes 50 minutes; `--who` takes one of the three, whose
results replace those that are there.
"""

from __future__ import annotations

import json
import os
import platform
import shutil
import statistics
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import click
import trio

from benchmarks.faults import PAGE, RESULTS
from kiwi_demo.broker import Broker
from tests.doc_blocks import rewrite
from tests.integration.spark.exactness import Account
from tests.integration.spark.kills import WHO, Kills

KILLS = RESULTS.with_name("kills.json")
PART = "kills"
NAMES = {"java": "Spark's JVM", "driver": "Spark's driver (Python)", "gateway": "the gateway"}


@click.command(help=__doc__)
@click.option(
    "--times", type=click.IntRange(1), default=100, show_default=True, help="How often each is killed."
)
@click.option("--who", type=click.Choice(WHO), multiple=True, default=WHO, help="Only these.")
def main(times: int, who: Sequence[str]) -> None:
    bad = [one for one in who if not trio.run(_kill, one, times)]
    rewrite(PAGE, PART, table(json.loads(KILLS.read_text())))
    if bad:
        raise click.ClickException(f"rows are missing, doubled or wrong: see {KILLS.name}")


async def _kill(who: str, times: int) -> bool:
    """Return whether everything was exact. If it was not, the folder with logs and checkpoints stays."""
    folder = Path(tempfile.mkdtemp(prefix="kills-"))
    began = time.monotonic()
    async with Broker(folder / "broker") as broker:
        kills = Kills(broker.bootstrap, folder, who, f"killed-{who}")
        await kills.run(times)
    seconds = round(time.monotonic() - began)
    found = [{**facts(who, mode, times, one), "seconds": seconds} for mode, one in kills.accounts.items()]
    store(found)
    click.echo("\n".join(map(json.dumps, found)))
    exact = all(one.exact for one in kills.accounts.values())
    if exact:
        shutil.rmtree(folder, ignore_errors=True)
    return exact


def facts(who: str, mode: str, times: int, account: Account) -> dict[str, Any]:
    """Return what came of the kills to the queries of one mode."""
    return {
        "who": who,
        "mode": mode,
        "kills": times,
        "rows": account.rows,
        "missing": account.missing,
        "doubled": account.doubled,
        "displaced": account.displaced,
        "wrong": account.wrong[:10],
        "served_p50_s": round(statistics.median(account.served), 2),
        "served_worst_s": round(max(account.served), 2),
    }


def store(found: Sequence[Mapping[str, Any]]) -> None:
    """Store new results in place of those of the same kind."""
    kept = json.loads(KILLS.read_text()) if KILLS.exists() else []
    new = {one["who"] for one in found}
    date = time.strftime("%Y-%m-%d")
    machine = {"cpus": os.cpu_count(), "python": platform.python_version(), "date": date}
    kinds = [*(one for one in kept if one["who"] not in new), *({**one, **machine} for one in found)]
    KILLS.write_text(json.dumps(sorted(kinds, key=lambda one: WHO.index(one["who"])), indent=1) + "\n")


def table(results: Sequence[Mapping[str, Any]]) -> str:
    """Return what came of the kills, as Markdown."""
    rows = [
        "| killed (-9) | queries run in | kills | rows | missing | doubled | out of order "
        "| on again: median, worst |",
        "|---|---|---|---|---|---|---|---|",
    ]
    rows += [
        f"| {NAMES[one['who']]} | {one['mode']} | {one['kills']} | {one['rows']:,} | "
        f"{one['missing']} | {one['doubled']} | {one['displaced']} | "
        f"{one['served_p50_s']:.1f} s, {one['served_worst_s']:.1f} s |"
        for one in results
    ]
    return "\n".join(rows)


if __name__ == "__main__":
    main()
