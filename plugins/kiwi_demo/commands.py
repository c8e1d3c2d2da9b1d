"""`kiwi-gw broker` and `kiwi-gw demo`."""

from __future__ import annotations

from pathlib import Path

import click

from kiwi_gw.errors import PluginError

_NEEDS_KAFKA = "needs: pip install 'kiwi-gw[demo]', or 'kiwi-gw[kafka]' for --no-spark"


@click.command()
@click.option(
    "--port", type=click.IntRange(0, 65_535), default=9092, show_default=True, help="0: a free one."
)
@click.option(
    "--data",
    "data_dir",
    type=click.Path(file_okay=False, path_type=Path),
    help="Keep the topics in this folder; without it they are gone at the end.",
)
@click.option("--auto-create", is_flag=True, help="Create a topic when a client asks for it.")
def broker(port: int, data_dir: Path | None, auto_create: bool) -> None:
    """Run a real Kafka broker on this machine, for experiments.

    One node in KRaft mode on loopback. The first start fetches its jars from Maven Central, or from the
    mirror that the environment variable KIWI_GW_MAVEN names. It needs Java 17 or later: an installed one, or
    the one of the extra `java`.
    """
    import trio

    from kiwi_demo.broker import run_broker

    trio.run(run_broker, port, data_dir, auto_create)


@click.command()
@click.option("--seconds", type=click.FloatRange(min=0, min_open=True), help="End after so long by itself.")
@click.option(
    "--speed",
    type=click.FloatRange(min=0, min_open=True),
    help="How many times faster than the flights of 2013 took off. [default: 1800]",
)
@click.option(
    "--port", type=click.IntRange(0, 65_535), default=8000, show_default=True, help="The gateway's."
)
@click.option(
    "--kafka-port", type=click.IntRange(0, 65_535), default=9092, show_default=True, help="The broker's."
)
@click.option("--spark/--no-spark", default=True, help="With what Spark makes of the flights, or without.")
def demo(seconds: float | None, speed: float | None, port: int, kafka_port: int, spark: bool) -> None:
    """Show it all: a broker, real flights replayed into it, a gateway, and four clients.

    One is pushed to, one pulls, and two stop reading for a while: one is told what it has missed, the other
    misses nothing. Then the gateway is restarted under them, and Spark's results come. Ends with Ctrl-C, or
    after --seconds, counted from the first event; then what every client received is set against what was
    produced. A port that is taken is replaced by a free one.
    """
    import trio

    try:
        from kiwi_demo.show import SPEED, DemoPlan, run_demo
    except ModuleNotFoundError as error:
        raise PluginError(f"{_NEEDS_KAFKA} ({error})") from error

    trio.run(run_demo, DemoPlan(seconds, speed or SPEED, port, kafka_port, spark))
