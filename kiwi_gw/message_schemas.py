"""Write the JSON Schemas of the messages of protocols: `python -m kiwi_gw.message_schemas docs/schemas`."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import msgspec

from kiwi_gw.dialect_api import Messages
from kiwi_gw.plugin_manager import shipped

_DIALECT: Final = "https://json-schema.org/draft/2020-12/schema"


def message_schema(name: str, messages: Messages) -> Mapping[str, Any]:
    """Describe the messages of one protocol: `ClientMessage` is what a client sends, `ServerMessage` what it
    is sent."""
    (client, server), structs = msgspec.json.schema_components(
        (messages.client, messages.server), ref_template="#/$defs/{name}"
    )
    return {
        "$schema": _DIALECT,
        "title": f"The messages of the protocol {name}",
        "anyOf": [{"$ref": "#/$defs/ClientMessage"}, {"$ref": "#/$defs/ServerMessage"}],
        "$defs": {"ClientMessage": client, "ServerMessage": server, **structs},
    }


def files() -> Mapping[str, str]:
    """Make the schemas of the protocols that come with the gateway, by the names of their files."""
    found: dict[str, Messages] = {}
    for name, dialect in shipped().dialect_types().items():
        if dialect.messages is not None:
            found[name] = dialect.messages
        found.update(dialect.other_messages)
    return {
        f"{name}.json": json.dumps(message_schema(name, messages), indent=2) + "\n"
        for name, messages in found.items()
    }


def write(folder: Path) -> None:
    """Write them into a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files().items():
        (folder / name).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    write(Path(sys.argv[1]))
