"""`python -m kiwi_tokens hash`: the hash of a password, for `tokens.users`."""

from __future__ import annotations

import getpass
import sys

import click

from kiwi_tokens.password_hashes import MOST_PASSWORD_BYTES

_PASSES, _MEMORY_KIB, _LANES = 3, 64 * 1024, 1


@click.group()
def main() -> None:
    """Tools for the section `tokens` of a configuration."""


@main.command("hash")
def hash_command() -> None:
    """Print the argon2id hash of a password (`password_hash` of a user).

    The password is asked for twice at a terminal, without showing it; elsewhere it is the first line of the
    standard input. It is never an argument: those can be seen by others.
    """
    try:
        from argon2 import PasswordHasher
    except ImportError:
        raise click.ClickException("this needs: pip install 'kiwi-gw[password]'") from None
    password = _asked_for() if sys.stdin.isatty() else _first_line()
    if not password:
        raise click.ClickException("the password is empty")
    if len(password) > MOST_PASSWORD_BYTES:
        raise click.ClickException(f"a password has at most {MOST_PASSWORD_BYTES} bytes")
    try:
        password.decode()
    except UnicodeDecodeError:
        raise click.ClickException("the password is not UTF-8") from None
    click.echo(PasswordHasher(_PASSES, _MEMORY_KIB, _LANES).hash(password))


def _asked_for() -> bytes:
    first = getpass.getpass("Password: ", sys.stderr)
    if getpass.getpass("Once more: ", sys.stderr) != first:
        raise click.ClickException("they differ")
    return first.encode("utf-8", "surrogateescape")


def _first_line() -> bytes:
    line = sys.stdin.buffer.readline(MOST_PASSWORD_BYTES + 3)
    return line.removesuffix(b"\n").removesuffix(b"\r")


if __name__ == "__main__":
    main(prog_name="python -m kiwi_tokens")
