"""Options of the verbs that are clients of a gateway: where it is, who asks, whom they trust."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from kiwi_gw.cli.options import note

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable

    from kiwi_gw.client.address import Address

    F = TypeVar("F", bound=Callable[..., Any])


def _address(ctx: click.Context, param: click.Parameter, url: str) -> Address:
    from kiwi_gw.client.address import parse_address

    try:
        return parse_address(url)
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="URL") from None


URL_VARIABLE: Final = "KIWI_GW_URL"
"""Where the address may stand once for all."""

address_argument = click.argument("address", metavar="URL", envvar=URL_VARIABLE, callback=_address)


class AddressThenSource(click.Command):
    """A command of URL and SOURCE. Where only one of them is given, and the address is in the environment,
    that is the source."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if url := os.environ.get(URL_VARIABLE):
            given, _, _ = self.make_parser(ctx).parse_args([*args])
            if not isinstance(given.get("source"), str):
                args = [url, *args]
        return super().parse_args(ctx, args)


def client_options(command: F) -> F:
    """Add `--token`, `--token-file`, `--cacert` and `--insecure`."""
    for option in (
        click.option("-k", "--insecure", is_flag=True, help="Take any TLS certificate."),
        click.option(
            "--cacert", type=click.Path(exists=True, dir_okay=False), help="Trust this CA file (PEM)."
        ),
        click.option(
            "--token-file",
            type=click.Path(dir_okay=False, path_type=Path),
            envvar="KIWI_GW_TOKEN_FILE",
            show_envvar=True,
            help="A file that holds the token.",
        ),
        click.option(
            "--token",
            envvar="KIWI_GW_TOKEN",
            show_envvar=True,
            help="Sent as `Authorization: Bearer`. Better in the environment.",
        ),
    ):
        command = option(command)
    return command


def authorization(
    address: Address, token: str | None, token_file: Path | None, quiet: bool
) -> dict[str, str]:
    """Return the header that says who asks, and say so where it is not encrypted. Raise UsageError."""
    bearer = _token(token, token_file)
    if bearer is None:
        return {}
    if not address.tls and not address.loopback and not quiet:
        note(f"kiwi-gw: the token goes unencrypted to {address.host}; use wss:// where there is TLS")
    return {"Authorization": f"Bearer {bearer}"}


def trust(address: Address, cacert: str | None, insecure: bool) -> ssl.SSLContext | None:
    """Return what decides about the certificate; None: what Python trusts."""
    if not address.tls or not (insecure or cacert):
        return None
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
