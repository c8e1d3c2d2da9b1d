"""The root command and its verbs."""

from __future__ import annotations

import click

from kiwi_gw import __version__
from kiwi_gw.cli.broker import broker, demo
from kiwi_gw.cli.check import check, validate
from kiwi_gw.cli.completion import completion
from kiwi_gw.cli.config import config
from kiwi_gw.cli.explain import explain
from kiwi_gw.cli.health import health
from kiwi_gw.cli.plugins import plugins
from kiwi_gw.cli.run import run
from kiwi_gw.cli.tail.command import tail
from kiwi_gw.cli.version import version


class _RunByDefault(click.Group):
    """Without a verb it runs the gateway: `kiwi --config FILE` is `kiwi run --config FILE`."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        own = {name for option in self.get_params(ctx) for name in option.opts}
        if not ctx.resilient_parsing and (not args or (args[0].startswith("-") and args[0] not in own)):
            args = ["run", *args]
        return super().parse_args(ctx, args)

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.commands)  # in the order of their use, not of the alphabet


@click.group(
    cls=_RunByDefault,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="Without a command, `run` is meant: kiwi-gw --config FILE.",
)
@click.version_option(__version__, "-V", "--version", message="%(prog)s %(version)s")
def verbs() -> None:
    """A gateway between live sources (Kafka topics, counters, Spark streams) and everyone who wants to
    watch them."""


for _verb in (
    run,
    validate,
    check,
    explain,
    config,
    plugins,
    tail,
    health,
    broker,
    demo,
    version,
    completion,
):
    verbs.add_command(_verb)
