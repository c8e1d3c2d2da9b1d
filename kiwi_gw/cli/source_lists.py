"""What sources there are: as a running gateway says, or as a configuration names them. For people's eyes."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kiwi_gw.cli.http_get import asked, http_get
from kiwi_gw.errors import KiwiError

if TYPE_CHECKING:
    import ssl

    import click

    from kiwi_gw.client.address import Address

_LISTED = 12
"""So many names are shown where one was not found."""

_DETAIL = 200
"""Characters of a refusal that are shown."""


class SourceLister:
    """Ask one gateway. Its methods block for as long as the gateway takes, `timeout` seconds a request."""

    def __init__(
        self,
        address: Address,
        timeout: float,
        context: ssl.SSLContext | None = None,
        headers: Mapping[str, str] = {},
    ) -> None:
        self._address = address
        self._timeout = timeout
        self._context = context
        self._headers = headers

    def names(self) -> dict[str, str]:
        """Return the type of every source by name, as clients may see it; none where names are not public.
        Raise OSError or ValueError for what is no such gateway."""
        return {item["id"]: item.get("type", "") for item in self.ready()}

    def ready(self) -> list[dict[str, Any]]:
        """Return the sources with `id`, `type` and `state`, from where clients connect. Raise as `names`."""
        _, found = self._get("/readyz?verbose")
        return list(found.get("sources") or ())

    def operators(self) -> list[dict[str, Any]] | None:
        """Return the sources as the admin address shows them, all pages; None: this is not that address.
        Raise OSError, ValueError, or KiwiError for a refusal."""
        items: list[dict[str, Any]] = []
        after = ""  # as it stands in a URL
        while True:
            status, page = self._get(f"/api/v1/sources?limit=1000&after={after}")
            if status == 404 and not items:
                return None
            if status != 200:
                detail = page.get("detail") or page.get("title") or ""
                raise KiwiError(f"{asked(self._address)}: HTTP {status}" + (f": {detail}" if detail else ""))
            items += page["sources"]
            following = page.get("next")
            if not following:
                return items
            after = following.partition("&after=")[2]

    def _get(self, path: str) -> tuple[int, dict[str, Any]]:
        import json

        status, body = http_get(
            self._address, path, self._timeout, context=self._context, headers=self._headers
        )
        try:
            found = json.loads(body)
        except ValueError:  # a refusal in plain text
            found = {} if body.startswith("<") else {"detail": body.partition("\n")[0][:_DETAIL]}
        return status, found if isinstance(found, dict) else {}


def not_among(source_id: str, known: Mapping[str, str]) -> str:
    """Say what may have been meant by a name that is none of these; empty if it is one, or there are none."""
    from difflib import get_close_matches

    if source_id in known or not known:
        return ""
    near = get_close_matches(source_id, known, 1)
    shown = [f"{name} ({kind})" if kind else name for name, kind in list(known.items())[:_LISTED]]
    more = f" and {len(known) - _LISTED} more" if len(known) > _LISTED else ""
    hint = f"did you mean {near[0]!r}? " if near else ""
    return f"{hint}There is: {', '.join(shown)}{more}"


def complete_source(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    """Complete the name of a source from the configuration that the command, or the environment, names."""
    from kiwi_gw.cli.options import DEFAULT_CONFIG

    named = ctx.params.get("config_path") or os.environ.get("KIWI_GW_CONFIG") or os.environ.get("CONFIG")
    return [name for name in _named_in(Path(named or DEFAULT_CONFIG)) if name.startswith(incomplete)]


def _named_in(config: Path) -> list[str]:
    """Return what sources of a file are called, as far as that can be seen without their plugins."""
    import yaml

    try:
        document = yaml.safe_load(config.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError):
        return []
    items = document.get("sources") if isinstance(document, dict) else None
    names = (
        item.get("id") or item.get("topic")
        for item in (items if isinstance(items, list) else ())
        if isinstance(item, dict)
    )
    return [name for name in names if isinstance(name, str)]
