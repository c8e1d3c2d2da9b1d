"""The structs of the messages are what is really said: recorded exchanges consist of them, to the byte."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, get_args

import jsonschema
import msgspec
import pytest

from kiwi_gw.dialect_api import Messages
from kiwi_gw.dialects.kiwi import messages as kiwi
from kiwi_gw.dialects.kiwi import requests as kiwi_requests
from kiwi_gw.dialects.kiwi.plugin import KIWI
from kiwi_gw.dialects.zetta import requests as zetta_requests
from kiwi_gw.dialects.zetta.plugin import ZETTA
from kiwi_gw.errors import ConnectionEnd
from kiwi_gw.message_schemas import files
from tests.transcripts.recorded import transcripts

SCHEMAS = Path(__file__).parents[3] / "docs" / "schemas"
RENEW = "renew it with: python -m kiwi_gw.message_schemas docs/schemas"
PROTOCOLS = {"kiwi": KIWI.messages, "zetta": ZETTA.messages}


def _kiwi_takes(text: str) -> bool:
    try:
        return isinstance(kiwi_requests.read(text), kiwi.ClientMessage)
    except ConnectionEnd:
        return False


READ: dict[str, Callable[[str], bool]] = {
    "kiwi": _kiwi_takes,
    "zetta": lambda text: not isinstance(zetta_requests.read(text), zetta_requests.RequestError),
}
"""Whether the gateway takes a message."""


def lines(protocol: str, mark: str) -> Iterator[str]:
    """The texts of all recorded messages with this mark: `>` of clients, `<` of the gateway."""
    for path in transcripts(protocol):
        for line in path.read_text(encoding="utf-8").splitlines():
            if line.startswith(f"{mark} {{"):
                yield line[2:]


def messages(protocol: str) -> Messages:
    found = PROTOCOLS[protocol]
    assert found is not None
    return found


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_all_that_the_gateway_says_is_a_message_of_its_structs_to_the_byte(protocol: str) -> None:
    decoder = msgspec.json.Decoder(messages(protocol).server)
    seen = set()
    for text in lines(protocol, "<"):
        message = decoder.decode(text)
        if type(message).__name__ not in ("Result", "Event"):  # the numbers of their data are the sources'
            assert msgspec.json.encode(message).decode() == text
        seen.add(type(message))
    assert seen == set(get_args(messages(protocol).server)), "each is recorded somewhere"


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_the_schemas_are_fresh(protocol: str) -> None:
    assert (SCHEMAS / f"{protocol}.json").read_text(encoding="utf-8") == files()[f"{protocol}.json"], RENEW


def test_there_is_no_schema_of_a_protocol_that_is_gone() -> None:
    assert {path.name for path in SCHEMAS.glob("*.json")} - {"openapi.json"} == set(files())


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize(("mark", "side"), [("<", "ServerMessage"), (">", "ClientMessage")])
def test_the_schema_takes_what_the_structs_take(protocol: str, mark: str, side: str) -> None:
    schema = json.loads(files()[f"{protocol}.json"])
    jsonschema.Draft202012Validator.check_schema(schema)
    validator = jsonschema.Draft202012Validator({"$ref": f"#/$defs/{side}", "$defs": schema["$defs"]})
    taken = [text for text in lines(protocol, mark) if mark == "<" or READ[protocol](text)]
    assert len(taken) > 20
    for text in taken:
        validator.validate(json.loads(text))


@pytest.mark.parametrize(
    "message",
    [
        {"type": "SUBSCRIBE", "sourceId": ""},
        {"type": "SUBSCRIBE", "sourceId": "a", "mode": "poll"},
        {"type": "SUBSCRIBE", "sourceId": "a", "mod": "pull"},
        {"type": "SUBSCRIBE", "sourceId": "a", "from": {}},
        {"type": "SUBSCRIBE", "sourceId": "a", "from": {"offsets": {"01": 1}}},
        {"type": "SUBSCRIBE", "sourceId": "a", "positionsEveryMs": 99},
        {"type": "REQUEST", "sourceId": "a", "n": 0},
        {"type": "REQUEST", "sourceId": "a"},
        {"type": "PUBLISH", "sourceId": "a"},
    ],
)
def test_the_schema_refuses_what_the_gateway_refuses(message: dict[str, Any]) -> None:
    schema = json.loads(files()["kiwi.json"])
    schema.pop("anyOf")
    validator = jsonschema.Draft202012Validator({**schema, "$ref": "#/$defs/ClientMessage"})
    assert not validator.is_valid(message)
    with pytest.raises(msgspec.ValidationError):
        msgspec.json.decode(json.dumps(message), type=kiwi.ClientMessage)
