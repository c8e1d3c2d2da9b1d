"""`kiwi-gw explain`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING

import click

from kiwi_gw.cli.options import (
    config_option,
    environment,
    libraries_option,
    listen_to_libraries,
    timeout_option,
)
from kiwi_gw.cli.source_lists import complete_source
from kiwi_gw.errors import KiwiError
from kiwi_gw.terminal import escape

if TYPE_CHECKING:
    from kiwi_gw.config import LoadedConfig


@click.command()
@click.argument("source_id", metavar="SOURCE", shell_complete=complete_source)
@config_option
@timeout_option
@libraries_option
def explain(source_id: str, config_path: Path, timeout: float, verbose: bool) -> None:
    """Show how SOURCE of a configuration comes by its events: the plan of a query.

    Connects as far as that needs. Exit code 1 if it cannot be said, 78 if the file is wrong.
    """
    import trio

    from kiwi_gw.config import load
    from kiwi_gw.config.error_wording import did_you_mean

    loaded = load(config_path, environment())
    sources = loaded.settings.sources
    if source_id not in sources:
        hint = did_you_mean(source_id, sources) or f"; it has: {', '.join(sources) or 'none'}"
        raise KiwiError(f"{config_path} has no source {source_id!r}{hint}")
    listen_to_libraries(verbose)
    text = trio.run(_ask_plan, loaded, source_id, timeout)
    if text is None:
        kind = sources[source_id].type
        raise KiwiError(f"there is nothing to explain about {source_id!r}, a source of type {kind!r}")
    for line in text.rstrip("\n").split("\n"):
        click.echo(escape(line))


async def _ask_plan(loaded: LoadedConfig, source_id: str, seconds: float) -> str | None:
    """Return what the plugin of the source says; None if it says nothing. Raises KiwiError if it cannot."""
    import trio

    context = loaded.context(workers=loaded.settings.server.workers)
    try:
        with trio.fail_after(seconds):
            ask: Callable[[], Awaitable[str]] | None = loaded.plugins.hook.explain(
                context=context, sources=list(context.sources.values()), source_id=source_id
            )
            return None if ask is None else await ask()
    except trio.TooSlowError:
        raise KiwiError(f"no answer about {source_id!r} in {seconds:g} s") from None
    except KiwiError:
        raise
    except Exception as error:  # a plugin's own code; said in words, and the exit code says it
        if isinstance(error, ExceptionGroup) and error.split(KiwiError)[1] is None:
            raise
        raise KiwiError(f"{source_id!r} cannot be explained: {type(error).__name__}: {error}") from error
