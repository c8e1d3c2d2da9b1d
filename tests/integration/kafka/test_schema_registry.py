"""What a real schema registry answers to what is written, and the stand-in of the other tests likewise."""

from __future__ import annotations

import json
from typing import Any

import pytest

from kiwi_gw.api import RefusalCode, RegisteredSchema, SchemaRefused, SchemaVersion
from kiwi_kafka.registry.client import RegistryClient
from kiwi_kafka.registry.schema_cache import SchemaCache
from kiwi_kafka.registry.subject_versions import SubjectVersions
from kiwi_kafka.settings import RegistrySettings
from tests.integration.schema_registry import url as url
from tests.plugins.kafka.registry_server import V1, registered

pytestmark = pytest.mark.integration

WRITTEN = json.dumps(V1)
LATER = json.dumps({**V1, "fields": [*V1["fields"], {"name": "gate", "type": "string", "default": ""}]})
OTHER = json.dumps({**V1, "fields": [{"name": "carrier", "type": "int"}]})


def versions_of(url: str) -> SubjectVersions:
    return SubjectVersions(RegistryClient(RegistrySettings(url=url), 30.0), SchemaCache())


async def refused(asked: Any) -> SchemaRefused:
    with pytest.raises(SchemaRefused) as caught:
        await asked
    return caught.value


async def test_versions_refusals_and_what_is_not_there(url: str) -> None:
    versions = versions_of(url)
    first = await versions.register("a.b-value", WRITTEN)
    second = await versions.register("a.b-value", LATER)
    assert (first.version, second.version, first.id != second.id) == (1, 2, True)
    # Another gateway, which knows nothing, is told the same.
    others = versions_of(url)
    assert await others.register("a.b-value", WRITTEN) == first
    found = await others.find("a.b-value", 2)
    assert (found.id, found.version, json.loads(found.definition)) == (second.id, 2, json.loads(LATER))
    assert found == SchemaVersion(found.id, 2, found.definition)
    error = await refused(versions.register("a.b-value", OTHER))
    assert error.code == RefusalCode.INCOMPATIBLE
    assert "ncompatible" in str(error)
    for subject, version in (("a.b-value", 3), ("none-value", 1)):
        error = await refused(versions.find(subject, version))
        assert error.code == RefusalCode.UNKNOWN_VERSION
    # Keys have versions of their own, and every kind of schema that Avro knows may be one.
    for version, text in enumerate(('"string"', '["null", "string"]'), 1):
        assert (await versions.register("a.b-key", text)).version == version
    # What is written by its id can be read by who has only the id.
    read = await RegistryClient(RegistrySettings(url=url)).schema(second.id)
    assert isinstance(read, RegisteredSchema)
    value = {"carrier": "AA", "delay": 5, "gate": "B1"}
    assert read.read(registered(second.id, json.loads(LATER), value)) == value
