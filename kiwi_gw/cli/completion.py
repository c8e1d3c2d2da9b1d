"""`kiwi-gw completion`."""

from __future__ import annotations

import click


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def completion(ctx: click.Context, shell: str) -> None:
    """Print the completion script of a shell; for bash: source <(kiwi-gw completion bash)."""
    from click.shell_completion import get_completion_class

    root = ctx.find_root()
    name = root.info_name or "kiwi-gw"
    kind = get_completion_class(shell)
    if kind is None:
        raise click.UsageError(f"there is no completion for {shell}")
    variable = f"_{name.replace('-', '_').replace('.', '_').upper()}_COMPLETE"
    click.echo(kind(root.command, {}, name, variable).source())
