"""`kiwi-gw health`: is a gateway there, and is it well? Made to be the HEALTHCHECK of a container."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import click
from click.core import ParameterSource

from kiwi_gw.cli.client_options import URL_VARIABLE, trust
from kiwi_gw.cli.http_get import asked, http_get
from kiwi_gw.cli.options import config_option, json_option, print_json
from kiwi_gw.errors import KiwiError
from kiwi_gw.terminal import escape

if TYPE_CHECKING:
    from kiwi_gw.client.address import Address


@click.command()
@click.argument("url", required=False, envvar=URL_VARIABLE)
@config_option
@click.option("--ready", is_flag=True, help="Ask whether it can serve (/readyz), not only whether it lives.")
@click.option(
    "--timeout", type=click.FloatRange(min=0, min_open=True), default=3.0, show_default=True, help="Seconds."
)
@click.option("-k", "--insecure", is_flag=True, help="Take any TLS certificate.")
@json_option
def health(
    url: str | None, config_path: Path, ready: bool, timeout: float, insecure: bool, as_json: bool
) -> int:
    """Ask a gateway how it is; exit code 0 if it is well, 1 if not.

    URL is an address as for `tail`; its path, if any, is asked for instead of /health. Without one, and
    without KIWI_GW_URL in the environment, the gateway of the configuration file on this machine is meant,
    and its certificate is not checked.
    """
    from kiwi_gw.client.address import parse_address

    if _is_given("config_path") and not _is_given("url"):
        url = None  # whatever is in the environment
    if url is None:
        address, own = _of_config(config_path), True
    else:
        try:
            address, own = parse_address(url), False
        except ValueError as error:
            raise click.BadParameter(str(error), param_hint="URL") from None
    path = address.resource if address.resource != "/" else "/readyz" if ready else "/health"
    try:
        context = trust(address, None, insecure or own)
        status, body = http_get(address, path, timeout, context=context, most_bytes=2000)
    except OSError as error:
        status, body = 0, error.strerror or str(error) or type(error).__name__
    well = 200 <= status < 300
    if as_json:
        print_json({"healthy": well, "address": asked(address), "status": status or None, "answer": body})
    else:
        answer = f"HTTP {status}: {body}" if status else body
        click.echo(f"{asked(address)}: {escape(answer)}", err=not well)
    return 0 if well else 1


def _is_given(name: str) -> bool:
    return click.get_current_context().get_parameter_source(name) is ParameterSource.COMMANDLINE


def _of_config(config_path: Path) -> Address:
    """Return where the gateway of this configuration listens, seen from its own machine.

    Reads two values of the file itself: a health check runs every few seconds and must be cheap, and a
    file that was broken since the gateway took it does not make the gateway unwell.
    """
    from kiwi_gw.client.address import Address

    text, tls = _server_of(config_path)
    text = os.environ.get("KIWI_GW_SERVER__ADDRESS", text)
    if text.startswith("unix:"):
        return Address("localhost", 80, "/", socket_path=text.removeprefix("unix:"))
    host, _, port = text.rpartition(":")
    host = host.strip("[]")
    if not port.isdigit() or "$" in host:
        raise KiwiError(f"{config_path}: server.address is {text!r}; give the address: kiwi-gw health URL")
    everywhere = {"": "127.0.0.1", "0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104  (to connect to)
    return Address(everywhere.get(host, host), int(port), "/", tls)


def _server_of(config_path: Path) -> tuple[str, bool]:
    import yaml

    try:
        document = yaml.safe_load(config_path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise KiwiError(f"{config_path}: {reason}; give the address: kiwi-gw health URL") from None
    server = document.get("server") if isinstance(document, dict) else None
    server = server if isinstance(server, dict) else {}
    address = server.get("address", "127.0.0.1:8000")
    if isinstance(address, list) and address:
        address = address[0]
    return str(address), bool(server.get("tls"))
