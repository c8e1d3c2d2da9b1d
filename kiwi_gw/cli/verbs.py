"""The root command and its verbs: the gateway's own, and those that plugins add by entry points."""

from __future__ import annotations

import click

from kiwi_gw import __version__
from kiwi_gw.cli import plugin_commands
from kiwi_gw.cli.check import check, validate
from kiwi_gw.cli.completion import completion
from kiwi_gw.cli.config import config
from kiwi_gw.cli.explain import explain
from kiwi_gw.cli.health import health
from kiwi_gw.cli.plugins import plugins
from kiwi_gw.cli.produce import produce
from kiwi_gw.cli.run import run
from kiwi_gw.cli.sources import sources
from kiwi_gw.cli.tail.command import tail
from kiwi_gw.cli.version import version


class _Verbs(click.Group):
    """Without a verb it runs the gateway: `kiwi --config FILE` is `kiwi run --config FILE`."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        own = {name for option in self.get_params(ctx) for name in option.opts}
        if not ctx.resilient_parsing and (not args or (args[0].startswith("-") and args[0] not in own)):
            args = ["run", *args]
        return super().parse_args(ctx, args)

    def list_commands(self, ctx: click.Context) -> list[str]:
        # In the order of their use, not of the alphabet.
        return list(dict.fromkeys([*self.commands, *sorted(plugin_commands.installed().names)]))

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        return super().get_command(ctx, cmd_name) or plugin_commands.load(cmd_name)


@click.group(
    cls=_Verbs,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="Without a command, `run` is meant: kiwi-gw --config FILE.",
)
@click.version_option(__version__, "-V", "--version", message="%(prog)s %(version)s")
def verbs() -> None:
    """A gateway between live sources (Kafka topics, counters, Spark streams) and everyone who wants to
    watch them."""


_VERBS = (run, validate, check, explain, config, plugins, sources, tail, produce, health, version, completion)

for _verb in _VERBS:
    verbs.add_command(_verb)
