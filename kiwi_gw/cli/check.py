"""`kiwi-gw validate` (offline) and `kiwi-gw check` (connects)."""

from __future__ import annotations

import dataclasses
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import click

from kiwi_gw.cli.options import (
    EXIT_CONFIG,
    config_file,
    environment,
    json_option,
    libraries_option,
    listen_to_libraries,
    note,
    print_json,
    print_table,
    say_how_to_begin,
    timeout_option,
)
from kiwi_gw.errors import ConfigError
from kiwi_gw.terminal import escape

if TYPE_CHECKING:
    from kiwi_gw.config import LoadedConfig
    from kiwi_gw.model import Diagnostic


@click.command()
@config_file
@json_option
def validate(config_path: Path, as_json: bool) -> int:
    """Check a configuration FILE without connecting anywhere.

    Every problem is a line `file:line: path: what is wrong`; the exit code is then 78.
    """
    from kiwi_gw.config import load

    try:
        loaded = load(config_path, environment())
        if loaded.settings.server.tls is not None:
            from kiwi_gw.edge.tls import check_certificates  # (it brings the libraries of the network along)

            check_certificates(loaded)
    except ConfigError as error:
        if as_json:
            problems = [dataclasses.asdict(problem) for problem in error.problems]
            print_json({"valid": False, "problems": problems})
        else:
            for problem in error.problems:
                click.echo(escape(str(problem)))
            say_how_to_begin(error)
        return EXIT_CONFIG
    sources, plugins = list(loaded.settings.sources), list(loaded.settings.plugins)
    if as_json:
        print_json({"valid": True, "problems": [], "sources": sources, "plugins": plugins})
    else:
        words = f"{len(sources)} source{'' if len(sources) == 1 else 's'}"
        click.echo(f"{config_path}: valid ({words}; plugins: {', '.join(plugins) or 'none'})")
    return 0


@click.command()
@config_file
@timeout_option
@click.option("--strict", is_flag=True, help="Let warnings count as errors.")
@libraries_option
@json_option
def check(config_path: Path, timeout: float, strict: bool, verbose: bool, as_json: bool) -> int:
    """Check a configuration FILE and connect to what it names: brokers, topics, rights.

    It says who may write to which source, too, and how far behind the groups of clients are.
    What is about a line of the file is shown as file:line. Exit code 0 if the gateway could work with it,
    1 if not, 78 if the file itself is wrong.
    """
    import trio

    from kiwi_gw.config import load
    from kiwi_gw.config.exposure import writers

    loaded = load(config_path, environment())
    listen_to_libraries(verbose)
    told = trio.run(_ask_plugins, loaded, timeout)
    findings = [*_own_findings(loaded), *told, *writers(loaded, told)]
    counted = ("error", "warning") if strict else ("error",)
    failed = any(finding.level in counted for finding in findings)
    if as_json:
        print_json({"ok": not failed, "findings": [_as_json(finding, loaded) for finding in findings]})
    elif findings:
        _print(findings, loaded)
    if not as_json:
        note(f"{config_path}: {_verdict(findings)}")
    return 1 if failed else 0


def _verdict(findings: Sequence[Diagnostic]) -> str:
    warnings = sum(finding.level == "warning" for finding in findings)
    words = (
        "this would not work" if any(finding.level == "error" for finding in findings) else "this would work"
    )
    if not warnings:
        return words
    told = f"{warnings} warning{'' if warnings == 1 else 's'}"
    return f"{words}, but there {'is' if warnings == 1 else 'are'} {told}"


def _print(findings: Sequence[Diagnostic], loaded: LoadedConfig) -> None:
    places = [loaded.place(finding) for finding in findings]
    if not any(places):
        print_table(("LEVEL", "WHAT", "HOW IT IS"), [(f.level, f.subject, f.message) for f in findings])
        return
    shown = ["" if place is None else f"{place[0]}:{place[1]}" if place[1] else place[0] for place in places]
    rows = [(f.level, where, f.subject, f.message) for f, where in zip(findings, shown, strict=True)]
    print_table(("LEVEL", "WHERE", "WHAT", "HOW IT IS"), rows)


def _as_json(finding: Diagnostic, loaded: LoadedConfig) -> dict[str, object]:
    found: dict[str, object] = {
        "level": finding.level,
        "subject": finding.subject,
        "message": finding.message,
    }
    place = loaded.place(finding)
    return found if place is None else found | {"file": place[0], "line": place[1]}


def _own_findings(loaded: LoadedConfig) -> Sequence[Diagnostic]:
    """Return what the gateway itself can try: its certificate, and who could reach it."""
    from kiwi_gw.config.exposure import exposure_warnings
    from kiwi_gw.edge.tls import check_certificates
    from kiwi_gw.model import Diagnostic

    findings = [Diagnostic("warning", "server.address", words) for words in exposure_warnings(loaded)]
    tls = loaded.settings.server.tls
    if tls is not None:
        try:
            check_certificates(loaded)
        except ConfigError as error:
            findings += [
                Diagnostic("error", "server.tls", found.message, tuple(found.path.split(".")))
                for found in error.problems
            ]
        else:
            findings.append(Diagnostic("ok", "server.tls", f"the key fits the certificate {tls.cert}"))
    return findings


_Connect = Callable[[], Awaitable[Sequence[Any]]]


async def _ask_plugins(loaded: LoadedConfig, seconds: float) -> Sequence[Diagnostic]:
    """Return the findings of every plugin, in the order of the configuration; all are asked at once."""
    import trio

    from kiwi_gw.model import Diagnostic

    sources = [source.settings for source in loaded.settings.sources.values()]
    context = loaded.context(workers=loaded.settings.server.workers)
    answers: dict[str, Sequence[Diagnostic]] = {}

    async def ask(name: str, hook: Callable[..., object]) -> None:
        try:
            with trio.fail_after(seconds):
                connect = cast(_Connect | None, hook(context=context, sources=sources))
                answers[name] = [] if connect is None else list(await connect())
        except trio.TooSlowError:
            answers[name] = [Diagnostic("error", name, f"no answer in {seconds:g} s")]
        except Exception as error:  # noqa: BLE001  (a plugin's own code; the finding and the exit code say it)
            answers[name] = [Diagnostic("error", name, f"{type(error).__name__}: {error}")]

    async with trio.open_nursery() as nursery:
        for name, hook in loaded.plugins.each("check"):
            answers[name] = []
            nursery.start_soon(ask, name, hook)
    return [finding for name in loaded.settings.plugins for finding in answers.get(name, ())]
